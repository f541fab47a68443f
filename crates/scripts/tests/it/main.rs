//! Benign and hostile scripts on real runners.

#![cfg(target_os = "linux")]
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test fails by panicking")]

mod basics;
mod cgroups;
mod degraded;
mod docker;
mod fixture;
mod hostile;
mod memory;
mod package_index;
mod packages;
