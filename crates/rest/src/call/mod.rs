//! Calls: requests, retries, and what the caller learns.

mod attempt;
mod client;
mod description;
mod execution;
mod exposure;
mod multipart;
mod redaction;
mod retry_after;
mod tokens;
mod verdict;

pub(crate) use self::{client::RestClient, execution::Execution};
