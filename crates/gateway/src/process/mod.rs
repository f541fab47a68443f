//! Parts of the gateway process. `main` reads the settings, then opens the connections.

mod connections;
mod login_link;
mod settings;

use std::fmt::Display;

use rockbot_service::ServeError;

pub(crate) use self::{connections::Connections, login_link::print_login_link, settings::Settings};

pub(crate) fn configuration_error(error: impl Display) -> ServeError {
    ServeError::Configuration(error.to_string())
}

pub(crate) fn unavailable_error(error: impl Display) -> ServeError {
    ServeError::Unavailable(error.to_string())
}
