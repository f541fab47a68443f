//! Calls: requests, retries, and what the caller learns.

mod attempt;
mod client;
mod execution;
mod multipart;
mod retry_after;
mod tokens;
mod verdict;

pub(crate) use self::{client::RestClient, execution::Execution};
