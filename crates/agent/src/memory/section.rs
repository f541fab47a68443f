//! `[memory]`: where an agent keeps what it remembers.

use std::time::Duration;

use rockbot_memory::working_memory::WorkingMemoryLimits;
use rockbot_store::{StoreUrl, state_folder};
use secrecy::{ExposeSecret, SecretString};
use serde::Deserialize;

const MINUTE: u64 = 60;
const DAY: u64 = 24 * 60 * MINUTE;

/// Where an agent keeps what it remembers, and for how long.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct MemorySection {
    /// `sqlite:PATH`, `postgres://USER:PASSWORD@HOST:PORT/DATABASE`, `memory:`, or `off`: then the
    /// agent has no tools to remember with. Default: `memory.db` in the user's folder for state;
    /// without such a folder, the process's memory.
    pub store: Option<SecretString>,
    /// How long working memory keeps what nobody said a time for, in minutes, 1 to 10,080. Default
    /// 60.
    pub working_minutes: u64,
    /// How long what was said can be searched, in days, at most 3,650; 0 keeps nothing of it.
    /// Default 30.
    pub conversation_days: u64,
}

impl Default for MemorySection {
    fn default() -> Self {
        Self { store: None, working_minutes: 60, conversation_days: 30 }
    }
}

impl MemorySection {
    /// Which store it is; none when it is off.
    ///
    /// # Errors
    /// What is wrong with it, in words for an operator.
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

    /// What is wrong with it, in words for an operator.
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

    /// How long what was said is kept; none when it is not.
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
    fn memory_can_be_anywhere_or_off() {
        assert!(section("off").url().unwrap().is_none());
        assert!(matches!(section("memory:").url(), Ok(Some(StoreUrl::Memory))));
        assert!(MemorySection::default().url().unwrap().is_some());
        assert!(section("on").validate()[0].starts_with("memory.store: "));
    }

    #[test]
    fn times_have_bounds() {
        for (working_minutes, conversation_days) in [(0, 1), (10_081, 1), (60, 3651)] {
            let section =
                MemorySection { working_minutes, conversation_days, ..section("memory:") };
            assert_eq!(section.validate().len(), 1);
        }
        let silent = MemorySection { conversation_days: 0, ..section("memory:") };
        assert!(silent.validate().is_empty() && silent.conversations().is_none());
    }
}
