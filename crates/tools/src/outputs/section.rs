//! `[outputs]`: which results are kept, for how long, and how many.

use std::time::Duration;

use rockbot_contracts::period::{Period, duration};
use serde::Deserialize;

/// Every process that runs tools or shows their results to a model has it. All times are bounds.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct OutputsSection {
    /// Whether results that are too large are kept in the store; else they are cut. Default true.
    pub enabled: bool,
    /// Whether a model gets a handle for every result over `tool_response_max_bytes`, and not only
    /// for those over the largest result of the process. Default false.
    pub handle_mode: bool,
    /// The largest answer of `tool_output`, and in handle mode of any tool, in bytes. Default
    /// 12,288.
    pub tool_response_max_bytes: usize,
    /// How long an output is kept. Default one hour.
    #[serde(deserialize_with = "duration")]
    pub keep: Duration,
    /// The most that is kept for one conversation of one agent, in bytes; the oldest goes. Also the
    /// largest output. Default 64 MiB.
    pub session_bytes: usize,
    /// The most outputs that are kept for one conversation of one agent. Default 64.
    pub session_outputs: usize,
    /// How long the store may take to keep or to find one; then the result is cut.
    /// Default 5 s.
    #[serde(deserialize_with = "duration")]
    pub store_timeout: Duration,
}

impl Default for OutputsSection {
    fn default() -> Self {
        Self {
            enabled: true,
            handle_mode: false,
            tool_response_max_bytes: 12 * 1024,
            keep: Duration::from_secs(3600),
            session_bytes: 64 * 1024 * 1024,
            session_outputs: 64,
            store_timeout: Duration::from_secs(5),
        }
    }
}

impl OutputsSection {
    /// What is wrong with it, in words for an operator.
    #[must_use]
    pub fn problems(&self) -> Vec<String> {
        let mebibyte = 1024 * 1024;
        let bytes = |name, value: usize, least: usize, most: usize| {
            let is_wrong = !(least..=most).contains(&value);
            is_wrong.then(|| format!("outputs.{name}: must be {least} to {most}"))
        };
        let time = |name, value: Duration, least: Duration, most: Duration| {
            let is_wrong = !(least..=most).contains(&value);
            let (least, most) = (Period::from(least), Period::from(most));
            is_wrong.then(|| format!("outputs.{name}: must be {least} to {most}"))
        };
        [
            bytes("tool_response_max_bytes", self.tool_response_max_bytes, 4096, mebibyte),
            time("keep", self.keep, Duration::from_secs(60), Duration::from_secs(7 * 24 * 3600)),
            bytes("session_bytes", self.session_bytes, mebibyte, 1024 * mebibyte),
            bytes("session_outputs", self.session_outputs, 1, 1000),
            time(
                "store_timeout",
                self.store_timeout,
                Duration::from_millis(10),
                Duration::from_secs(60),
            ),
        ]
        .into_iter()
        .flatten()
        .collect()
    }

    pub(super) fn keep(&self) -> Duration {
        self.keep
    }

    pub(super) fn store_timeout(&self) -> Duration {
        self.store_timeout
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_defaults_are_fine_and_what_is_not_is_named() {
        assert_eq!(OutputsSection::default().problems(), [""; 0]);
        let section = OutputsSection {
            tool_response_max_bytes: 10,
            keep: Duration::from_secs(59),
            session_outputs: 0,
            store_timeout: Duration::from_secs(61),
            ..OutputsSection::default()
        };
        assert_eq!(
            section.problems(),
            [
                "outputs.tool_response_max_bytes: must be 4096 to 1048576",
                "outputs.keep: must be 1m to 1w",
                "outputs.session_outputs: must be 1 to 1000",
                "outputs.store_timeout: must be 10ms to 1m",
            ]
        );
    }
}
