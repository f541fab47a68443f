//! Scripts in pods of a real cluster, run with the permissions of the manager's service account.

#![allow(clippy::expect_used, clippy::unwrap_used, reason = "a failed step fails its test")]

mod api_errors;
mod fake_cluster;
mod fixture;
mod hostile;
mod install;
mod manifests;
mod outcomes;
mod overhead;
mod packages;
mod process;
mod retries;
mod service;
mod start;
