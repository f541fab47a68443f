//! Tools for REST APIs.

pub mod openapi;
pub mod request;

pub use request::{
    BuildRequest, ClientCredentials, InvalidArguments, Part, RequestBody, RequestParts,
};
