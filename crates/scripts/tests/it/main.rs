//! Scripts, run in earnest: friendly and hostile ones.

#![cfg(target_os = "linux")]
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test fails by panicking")]

mod bed;
mod degraded;
mod docker;
mod hostile;
mod ordinary;
mod packages;
