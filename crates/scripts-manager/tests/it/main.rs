//! Scripts in pods of a real cluster, run with the rights of the manager's own service account.

#![allow(clippy::expect_used, clippy::unwrap_used, reason = "a failed step fails its test")]

mod again;
mod bed;
mod ends;
mod hostile;
mod manifests;
mod odd_answers;
mod process;
mod service;
mod share;
mod start;
