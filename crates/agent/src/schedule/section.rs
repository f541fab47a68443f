//! The configuration section `[schedule]`.

use std::time::Duration;

use rockbot_contracts::period::{Period, duration};
use serde::Deserialize;

const HOUR: Duration = Duration::from_secs(3600);
const MIN_INTERVAL: Duration = Duration::from_secs(1);
const MAX_INTERVAL: Duration = Duration::from_secs(24 * 3600);
const MAX_CATCH_UP: Duration = Duration::from_secs(7 * 24 * 3600);
const MAX_JITTER: Duration = Duration::from_secs(900);
const MAX_TASKS: usize = 200;
const MAX_CONCURRENCY: u16 = 64;

/// `[schedule]`: scheduled tasks of the agent.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct ScheduleSection {
    /// Offers the tools and fires tasks. Default true.
    pub enabled: bool,
    /// Maximum number of turns of scheduled tasks at a time in this process, 1 to 64. Default 2.
    pub concurrency: u16,
    /// Age up to which the last missed fire is made up for, up to 7 d; `off` skips all missed fires. A fire
    /// that is less than a minute late is not missed. Default 1 h.
    pub catch_up: Period,
    /// Shortest time between two fires of a task, 1 s to 1 d. Default 1 min.
    #[serde(deserialize_with = "duration")]
    pub min_interval: Duration,
    /// Maximum number of tasks of the agent, 1 to 200. Default 50.
    pub max_tasks: usize,
    /// Longest delay of a task's fires, up to 15 min, so that tasks of the same time do not start together.
    /// Each task has its own constant delay. Applies to expressions without seconds. Default 0 s.
    #[serde(deserialize_with = "duration")]
    pub jitter: Duration,
}

impl Default for ScheduleSection {
    fn default() -> Self {
        Self {
            enabled: true,
            concurrency: 2,
            catch_up: Period::from(HOUR),
            min_interval: Duration::from_secs(60),
            max_tasks: 50,
            jitter: Duration::ZERO,
        }
    }
}

impl ScheduleSection {
    /// Returns all problems of the section.
    #[must_use]
    pub fn validate(&self) -> Vec<String> {
        let mut problems = Vec::new();
        let mut check = |is_valid: bool, key: &str, range: &str| {
            if !is_valid {
                problems.push(format!("schedule.{key}: must be {range}"));
            }
        };
        check((1..=MAX_CONCURRENCY).contains(&self.concurrency), "concurrency", "1 to 64");
        let catch_up = self.catch_up.duration().unwrap_or_default();
        check(catch_up <= MAX_CATCH_UP, "catch_up", "at most 7d, or off");
        let interval = MIN_INTERVAL..=MAX_INTERVAL;
        check(interval.contains(&self.min_interval), "min_interval", "1s to 1d");
        check((1..=MAX_TASKS).contains(&self.max_tasks), "max_tasks", "1 to 200");
        check(self.jitter <= MAX_JITTER, "jitter", "at most 15m");
        problems
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn section(text: &str) -> ScheduleSection {
        toml::from_str(text).unwrap()
    }

    #[test]
    fn values_are_bounded() {
        assert!(section("").validate().is_empty());
        assert!(section("catch_up = \"off\"\njitter = \"15m\"").validate().is_empty());
        for text in [
            "concurrency = 0",
            "catch_up = \"8d\"",
            "min_interval = \"999ms\"",
            "max_tasks = 201",
            "jitter = \"16m\"",
        ] {
            assert_eq!(section(text).validate().len(), 1, "{text}");
        }
    }
}
