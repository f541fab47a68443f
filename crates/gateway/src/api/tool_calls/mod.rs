//! Calls of tools by hand.

mod handler;
mod view;

pub(crate) use self::handler::call;

// The description of the route, for the OpenAPI document.
pub(crate) use self::handler::__path_call;
