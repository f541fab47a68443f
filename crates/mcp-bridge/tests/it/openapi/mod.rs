//! OpenAPI documents as servers, with an API on this machine.

mod api;
mod calls;
mod documents;
mod large;
