//! Parts of the gateway process. `main` reads the settings, then opens the connections.

mod connections;
mod settings;

pub(crate) use self::{connections::Connections, settings::Settings};
