//! The section of the configuration that says where state is kept.

use std::{path::PathBuf, time::Duration};

use rockbot_contracts::period::optional_duration;
use secrecy::SecretString;
use serde::Deserialize;

use crate::url::StoreUrl;

/// `[store]`: where the journal of calls is kept.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct StoreSection {
    /// `memory:`, `sqlite:PATH` or `postgres://USER:PASSWORD@HOST:PORT/DATABASE`. Default: a SQLite
    /// file in the user's folder for state.
    pub url: Option<SecretString>,
    /// Whether every handler of the namespace uses this store: then a call that is not in it has
    /// not begun anywhere. Default: true for PostgreSQL, false for the others.
    pub shared: Option<bool>,
    /// How long the end of a call is kept. Default 24 hours; 10 minutes for `memory:`.
    #[serde(deserialize_with = "optional_duration")]
    pub keep: Option<Duration>,
}

impl StoreSection {
    /// Which store it is.
    ///
    /// # Errors
    /// What is wrong with it, in words for an operator.
    pub fn parse(&self) -> Result<StoreUrl, String> {
        match &self.url {
            Some(url) => StoreUrl::parse(url).map_err(|error| format!("store.url: {error}")),
            None => state_folder().map(|folder| StoreUrl::Sqlite(folder.join("calls.db"))).ok_or(
                "store.url: there is no folder for state (neither XDG_STATE_HOME nor HOME is \
                 set): name a file, such as sqlite:/var/lib/rockbot/calls.db"
                    .to_owned(),
            ),
        }
    }
}

/// Where programs keep what outlives them, by the XDG base directory specification. None without a
/// home.
#[must_use]
pub fn state_folder() -> Option<PathBuf> {
    let folder = |name| std::env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute());
    let state = folder("XDG_STATE_HOME").or_else(|| Some(folder("HOME")?.join(".local/state")));
    state.map(|state| state.join("rockbot"))
}
