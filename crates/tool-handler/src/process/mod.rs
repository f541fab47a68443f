//! Parts of the process: its configuration, and the handler with its tools.

mod handler;
mod settings;

use std::fmt::Display;

use rockbot_service::ServeError;

pub(crate) use self::{handler::start_handler, settings::Settings};

pub(crate) fn configuration_error(error: impl Display) -> ServeError {
    ServeError::Configuration(error.to_string())
}
