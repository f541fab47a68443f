//! The configuration section `[memory]`.

use std::time::Duration;

use rockbot_memory::working_memory::WorkingMemoryLimits;
use rockbot_store::{StoreUrl, state_folder};
use secrecy::{ExposeSecret, SecretString};
use serde::Deserialize;

const MINUTE: u64 = 60;
const DAY: u64 = 24 * 60 * MINUTE;

/// `[memory]`: store and lifetimes of the agent's memory.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct MemorySection {
    /// `sqlite:PATH`, `postgres://USER:PASSWORD@HOST:PORT/DATABASE`, `memory:`, or `off`, which disables
    /// the memory tools. Default: `memory.db` in the state directory of the user; without one, the memory
    /// of the process.
    pub store: Option<SecretString>,
    /// Default lifetime of entries in working memory, in minutes, 1 to 10,080. Default 60.
    pub working_minutes: u64,
    /// Time during which conversations can be searched, in days, at most 3,650. 0 disables their storage.
    /// Default 30.
    pub conversation_days: u64,
}

impl Default for MemorySection {
    fn default() -> Self {
        Self { store: None, working_minutes: 60, conversation_days: 30 }
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
        let most = WorkingMemoryLimits::default().max_ttl.as_secs() / MINUTE;
        if !(1..=most).contains(&self.working_minutes) {
            problems.push(format!("memory.working_minutes: must be 1 to {most}"));
        }
        if self.conversation_days > 3650 {
            problems.push("memory.conversation_days: must be at most 3650".to_owned());
        }
        problems
    }

    pub(super) fn working(&self) -> WorkingMemoryLimits {
        let ttl = Duration::from_secs(self.working_minutes.saturating_mul(MINUTE));
        WorkingMemoryLimits { ttl, ..WorkingMemoryLimits::default() }
    }

    /// Returns the lifetime of stored conversations, or `None` if they are not stored.
    pub(super) fn conversations(&self) -> Option<Duration> {
        let seconds = self.conversation_days.saturating_mul(DAY);
        (seconds > 0).then(|| Duration::from_secs(seconds))
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
        for (working_minutes, conversation_days) in [(0, 1), (10_081, 1), (60, 3651)] {
            let section =
                MemorySection { working_minutes, conversation_days, ..section("memory:") };
            assert_eq!(section.validate().len(), 1);
        }
        let disabled = MemorySection { conversation_days: 0, ..section("memory:") };
        assert!(disabled.validate().is_empty() && disabled.conversations().is_none());
    }
}
