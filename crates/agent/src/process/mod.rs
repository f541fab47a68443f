//! Parts of the agent process. `main` starts settings, stores, fleet, conversations, tools, agents in this
//! order.

mod agents;
mod conversation_stores;
mod fleet;
mod observed_log;
mod settings;
mod stores;
mod tools;

use std::fmt::Display;

use rockbot_service::ServeError;

pub(crate) use self::{
    agents::Agents, conversation_stores::ConversationStores, fleet::FleetClient,
    settings::Settings, stores::Stores, tools::Tools,
};

pub(crate) fn unavailable_error(error: impl Display) -> ServeError {
    ServeError::Unavailable(error.to_string())
}

pub(crate) fn configuration_error(error: impl Display) -> ServeError {
    ServeError::Configuration(error.to_string())
}
