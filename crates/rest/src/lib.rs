//! Tools for REST APIs.

pub mod request;

pub use request::{
    BuildRequest, ClientCredentials, InvalidArguments, Part, RequestBody, RequestParts,
};
