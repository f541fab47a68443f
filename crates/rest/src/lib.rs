//! Tools for REST APIs, from configuration and from OpenAPI documents.
//!
//! - [`RestProvider`]: the tools of a file, usually `rest.json`;
//! - [`ApiTools`]: the tools of one API, for a process that offers them under its own names;
//! - [`openapi`]: import of OpenAPI documents;
//! - [`request`]: the requests that both kinds of tools build.
//!
//! A tool calls one API: neither a model nor the API can direct its credentials elsewhere. Addresses are
//! checked when they are dialed, by `rockbot_egress`.

mod api;
mod call;
mod config;
mod metrics;
pub mod openapi;
mod provider;
pub mod request;
mod response;
mod secrets;
mod section;
mod stream;
mod template;
mod tool;

pub use self::{
    api::{ApiClient, ApiEntry, ApiTool, ApiTools, DocumentWatch, SkippedTool},
    config::RestFileError,
    provider::{EntryStatus, RestOptions, RestProvider, RestStatus, Variables},
    request::{BuildRequest, ClientCredentials, InvalidArguments, Part, RequestBody, RequestParts},
    section::RestSection,
};
