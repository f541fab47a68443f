//! The file of REST tools, usually `rest.json`.

mod api;
mod credentials;
mod entry;
mod file;
mod settings;
mod tool;

pub use self::file::RestFileError;
pub(crate) use self::{
    api::{ApiConfig, SpecLocation},
    entry::is_disabled,
    file::{EntryKind, RestFile},
    settings::CallSettings,
    tool::ToolConfig,
};
