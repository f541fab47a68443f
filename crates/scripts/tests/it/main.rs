//! Scripts, run in earnest.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test fails by panicking")]

mod bed;
mod docker;
mod ordinary;
