//! The configuration section `[memory]`.

use std::time::Duration;

use rockbot_contracts::period::{Period, duration};
use rockbot_memory::working_memory::WorkingMemoryLimits;
use rockbot_store::{StoreUrl, state_folder};
use secrecy::{ExposeSecret, SecretString};
use serde::Deserialize;

const MIN_WORKING_TTL: Duration = Duration::from_secs(60);
const MIN_CONVERSATION_TTL: Duration = Duration::from_secs(24 * 3600);

/// `[memory]`: store and lifetimes of the agent's memory.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct MemorySection {
    /// `sqlite:PATH`, `postgres://USER:PASSWORD@HOST:PORT/DATABASE`, `memory:`, or `off`, which disables
    /// the memory tools. Default: `memory.db` in the state directory of the user; without one, the memory
    /// of the process.
    pub store: Option<SecretString>,
    /// Default lifetime of entries in working memory, 1 min to 7 d. Default 1 h.
    #[serde(deserialize_with = "duration")]
    pub working_ttl: Duration,
    /// Time during which conversations can be searched, 1 d to 3,650 d. `off` disables their storage.
    /// Default 30 d.
    pub conversation_ttl: Period,
}

impl Default for MemorySection {
    fn default() -> Self {
        let day = Duration::from_secs(24 * 3600);
        Self {
            store: None,
            working_ttl: Duration::from_secs(3600),
            conversation_ttl: Period::from(30 * day),
        }
    }
}

impl MemorySection {
    /// Returns the URL of the store, or `None` if memory is off.
    ///
    /// # Errors
    /// Returns the problem of an invalid URL.
    pub fn url(&self) -> Result<Option<StoreUrl>, String> {
        match &self.store {
            Some(off) if off.expose_secret() == "off" => Ok(None),
            Some(url) => {
                let url = StoreUrl::parse(url).map_err(|error| format!("memory.store: {error}"));
                url.map(Some)
            }
            None => Ok(Some(
                state_folder()
                    .map_or(StoreUrl::Memory, |folder| StoreUrl::Sqlite(folder.join("memory.db"))),
            )),
        }
    }

    /// Returns all problems of the section.
    #[must_use]
    pub fn validate(&self) -> Vec<String> {
        let mut problems: Vec<_> = self.url().err().into_iter().collect();
        let (least, most) = (MIN_WORKING_TTL, WorkingMemoryLimits::default().max_ttl);
        if !(least..=most).contains(&self.working_ttl) {
            let (least, most) = (Period::from(least), Period::from(most));
            problems.push(format!("memory.working_ttl: must be {least} to {most}"));
        }
        // The parser rejects more than 3650 days.
        if self.conversations().is_some_and(|ttl| ttl < MIN_CONVERSATION_TTL) {
            problems.push("memory.conversation_ttl: must be 1d to 3650d, or off".to_owned());
        }
        problems
    }

    pub(super) fn working(&self) -> WorkingMemoryLimits {
        WorkingMemoryLimits { ttl: self.working_ttl, ..WorkingMemoryLimits::default() }
    }

    /// Returns the lifetime of stored conversations, or `None` if they are not stored.
    pub(super) fn conversations(&self) -> Option<Duration> {
        self.conversation_ttl.duration()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn section(store: &str) -> MemorySection {
        MemorySection { store: Some(store.into()), ..MemorySection::default() }
    }

    #[test]
    fn store_can_be_chosen_or_off() {
        assert!(section("off").url().unwrap().is_none());
        assert!(matches!(section("memory:").url(), Ok(Some(StoreUrl::Memory))));
        assert!(MemorySection::default().url().unwrap().is_some());
        assert!(section("on").validate()[0].starts_with("memory.store: "));
    }

    #[test]
    fn lifetimes_are_bounded() {
        for (working, conversations) in [("59s", "1d"), ("8d", "1d"), ("1h", "23h")] {
            let working_ttl = working.parse::<Period>().unwrap().duration().unwrap();
            let conversation_ttl = conversations.parse().unwrap();
            let section = MemorySection { working_ttl, conversation_ttl, ..section("memory:") };
            assert_eq!(section.validate().len(), 1);
        }
        let disabled = MemorySection { conversation_ttl: Period::OFF, ..section("memory:") };
        assert!(disabled.validate().is_empty() && disabled.conversations().is_none());
    }
}
