//! Scripts on this machine, friendly and hostile.

#![cfg(target_os = "linux")]

mod bed;
mod degraded;
mod hostile;
mod ordinary;
mod packages;
