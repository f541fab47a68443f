//! Scripts on this machine, friendly and hostile.

#![cfg(target_os = "linux")]
#![allow(clippy::unwrap_used, reason = "a failed step fails its test")]

mod bed;
mod degraded;
mod hostile;
mod ordinary;
mod packages;
