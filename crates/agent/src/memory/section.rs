//! `[memory]`: where an agent keeps what it remembers.

use std::time::Duration;

use rockbot_contracts::period::{Period, duration};
use rockbot_memory::working_memory::WorkingMemoryLimits;
use rockbot_store::{StoreUrl, state_folder};
use secrecy::{ExposeSecret, SecretString};
use serde::Deserialize;

const MIN_WORKING_TTL: Duration = Duration::from_secs(60);
const MIN_CONVERSATION_TTL: Duration = Duration::from_secs(24 * 3600);

/// Where an agent keeps what it remembers, and for how long.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct MemorySection {
    /// `sqlite:PATH`, `postgres://USER:PASSWORD@HOST:PORT/DATABASE`, `memory:`, or `off`: then the
    /// agent has no tools to remember with. Default: `memory.db` in the user's folder for state;
    /// without such a folder, the process's memory.
    pub store: Option<SecretString>,
    /// How long working memory keeps what nobody said a time for, 1 min to 7 d. Default 1 h.
    #[serde(deserialize_with = "duration")]
    pub working_ttl: Duration,
    /// How long what was said can be searched, 1 d to 3,650 d; `off` keeps nothing of it. Default 30 d.
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
    pub fn problems(&self) -> Vec<String> {
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

    /// How long what was said is kept; none when it is not.
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
    fn memory_can_be_anywhere_or_off() {
        assert!(section("off").url().unwrap().is_none());
        assert!(matches!(section("memory:").url(), Ok(Some(StoreUrl::Memory))));
        assert!(MemorySection::default().url().unwrap().is_some());
        assert!(section("on").problems()[0].starts_with("memory.store: "));
    }

    #[test]
    fn times_have_bounds() {
        for (working, conversations) in [("59s", "1d"), ("8d", "1d"), ("1h", "23h")] {
            let working_ttl = working.parse::<Period>().unwrap().duration().unwrap();
            let conversation_ttl = conversations.parse().unwrap();
            let section = MemorySection { working_ttl, conversation_ttl, ..section("memory:") };
            assert_eq!(section.problems().len(), 1);
        }
        let silent = MemorySection { conversation_ttl: Period::OFF, ..section("memory:") };
        assert!(silent.problems().is_empty() && silent.conversations().is_none());
    }
}
