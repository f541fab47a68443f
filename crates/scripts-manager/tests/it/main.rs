//! Scripts in pods of a real cluster, run with the rights of the manager's own service account.

#![allow(clippy::expect_used, clippy::unwrap_used, reason = "a failed step fails its test")]

mod api_errors;
mod fixture;
mod hostile;
mod manifests;
mod outcomes;
mod overhead;
mod process;
mod retries;
mod service;
mod start;
