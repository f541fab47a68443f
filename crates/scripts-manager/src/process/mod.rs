//! Parts of the process: its configuration, the cluster, and the manager.

mod cluster;
mod manager;
mod settings;

use std::fmt::Display;

use rockbot_service::ServeError;

pub(crate) use self::{cluster::Cluster, manager::start_manager, settings::Settings};

fn configuration_error(error: impl Display) -> ServeError {
    ServeError::Configuration(error.to_string())
}
