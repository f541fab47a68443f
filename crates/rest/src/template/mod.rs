//! Requests as templates: configured texts with placeholders, filled in for each call.
//!
//! Variables are expanded once, when the configuration is read. Parameters are filled in for each call,
//! and only where they cannot change what the request is: never in scheme, host or port, never in the
//! name of a header or a query key, and never so that they add a path segment.

mod body;
mod environment;
mod error;
mod expand;
mod header;
mod query;
mod request;
mod text;
mod url;

pub(crate) use self::{
    body::BodyKind,
    environment::Environment,
    error::TemplateError,
    expand::expand,
    header::header_name,
    request::{RequestTemplate, RequestTemplateParts},
    text::ParameterPath,
    url::is_unsafe,
};
