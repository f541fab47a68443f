//! Parts of the process: its configuration, and the bridge with its service.

mod service;
mod settings;

use std::fmt::Display;

use rockbot_service::ServeError;

pub(crate) use self::{service::start_service, settings::Settings};

pub(crate) fn configuration_error(error: impl Display) -> ServeError {
    ServeError::Configuration(error.to_string())
}
