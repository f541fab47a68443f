//! The parts of the process, in the order in which it starts them.

mod agents;
mod fleet;
mod settings;
mod stores;
mod tools;

use std::fmt::Display;

use rockbot_service::ServeError;

pub(crate) use self::{
    agents::Agents, fleet::Fleet, settings::Settings, stores::Stores, tools::Tools,
};

pub(crate) fn unavailable(error: impl Display) -> ServeError {
    ServeError::Unavailable(error.to_string())
}

pub(crate) fn invalid(error: impl Display) -> ServeError {
    ServeError::Configuration(error.to_string())
}
