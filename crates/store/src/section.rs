//! The configuration section `[store]`.

use std::{path::PathBuf, time::Duration};

use rockbot_contracts::period::optional_duration;
use secrecy::SecretString;
use serde::Deserialize;

use crate::url::StoreUrl;

/// The section `[store]`: the store of the call journal.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct StoreSection {
    /// `memory:`, `sqlite:PATH` or `postgres://USER:PASSWORD@HOST:PORT/DATABASE`. Default: a SQLite
    /// file in the user's state folder.
    pub url: Option<SecretString>,
    /// Set if every handler of the namespace uses this store: a call that is missing from it has not
    /// started anywhere then. Default: true for PostgreSQL, otherwise false.
    pub shared: Option<bool>,
    /// The retention of call outcomes; at least 10 minutes. Default: 24 hours; 10 minutes for `memory:`.
    #[serde(deserialize_with = "optional_duration")]
    pub keep: Option<Duration>,
}

/// Minimum of [`StoreSection::keep`]. An older call is not known to be new, so it could neither be denied nor be run
/// again.
const MIN_KEEP: Duration = Duration::from_secs(600);

impl StoreSection {
    /// Returns the errors of the section, for operators.
    #[must_use]
    pub fn validate(&self, production: bool) -> Vec<String> {
        let error = match self.parse() {
            Ok(url) => url.unsafe_in_production("store.url").filter(|_| production),
            Err(error) => Some(error),
        };
        let keep = self.keep.filter(|keep| *keep < MIN_KEEP).map(|keep| {
            format!("store.keep is {keep:?}; set at least 10m: a call older than that is not known to be new")
        });
        error.into_iter().chain(keep).collect()
    }

    /// Parses the address.
    ///
    /// # Errors
    /// A message for the operator when the address is invalid.
    pub fn parse(&self) -> Result<StoreUrl, String> {
        match &self.url {
            Some(url) => StoreUrl::parse(url).map_err(|error| format!("store.url: {error}")),
            None => state_folder().map(|folder| StoreUrl::Sqlite(folder.join("calls.db"))).ok_or(
                "store.url: no state folder, because neither XDG_STATE_HOME nor HOME is set; set a \
                 file, such as sqlite:/var/lib/rockbot/calls.db"
                    .to_owned(),
            ),
        }
    }
}

/// Returns the state folder of the XDG base directory specification, or `None` without a home folder.
#[must_use]
pub fn state_folder() -> Option<PathBuf> {
    let folder = |name| std::env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute());
    let state = folder("XDG_STATE_HOME").or_else(|| Some(folder("HOME")?.join(".local/state")));
    state.map(|state| state.join("rockbot"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn short_retention_is_an_error() {
        let section = |keep| StoreSection {
            url: Some("memory:".into()),
            keep: Some(Duration::from_secs(keep)),
            ..StoreSection::default()
        };
        assert_eq!(section(600).validate(false), Vec::<String>::new());
        let errors = section(599).validate(false);
        assert_eq!(errors.len(), 1, "{errors:?}");
        assert!(errors[0].starts_with("store.keep is 599s; set at least 10m"), "{errors:?}");
    }
}
