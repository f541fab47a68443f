//! Parts of the process: its configuration, the cluster, and the manager.

mod cluster;
mod settings;
mod start;

use std::fmt::Display;

use rockbot_service::ServeError;

pub(crate) use self::{cluster::Cluster, settings::Settings, start::start_manager};

fn configuration_error(error: impl Display) -> ServeError {
    ServeError::Configuration(error.to_string())
}
