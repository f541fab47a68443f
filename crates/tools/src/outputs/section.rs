//! `[outputs]`: storage of large results.

use std::time::Duration;

use rockbot_contracts::period::{Period, duration};
use serde::Deserialize;

/// Configuration of the storage of large results, for every process that runs tools or shows their
/// results to a model.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct OutputsSection {
    /// Stores results that are too large; otherwise they are truncated. Default true.
    pub enabled: bool,
    /// Returns a handle for every result over `tool_response_max_bytes`, and not only for those over
    /// the process's limit of results. Default false.
    pub handle_mode: bool,
    /// Maximum size of a response of `tool_output`, and in handle mode of any tool, in bytes. Default
    /// 12,288.
    pub tool_response_max_bytes: usize,
    /// Time for which an output is stored. Default one hour.
    #[serde(deserialize_with = "duration")]
    pub keep: Duration,
    /// Quota of one conversation of one agent, in bytes; the oldest outputs are removed. Also the
    /// maximum size of an output. Default 64 MiB.
    pub session_bytes: usize,
    /// Maximum number of outputs of one conversation of one agent. Default 64.
    pub session_outputs: usize,
    /// Timeout of storing or finding an output. On timeout the result is truncated. Default 5 s.
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
    /// Returns the errors of the section, for an operator.
    #[must_use]
    pub fn validate(&self) -> Vec<String> {
        let mebibyte = 1024 * 1024;
        let bytes = |name, value: usize, min: usize, max: usize| {
            let is_invalid = !(min..=max).contains(&value);
            is_invalid.then(|| format!("outputs.{name}: must be {min} to {max}"))
        };
        let time = |name, value: Duration, min: Duration, max: Duration| {
            let is_invalid = !(min..=max).contains(&value);
            let (min, max) = (Period::from(min), Period::from(max));
            is_invalid.then(|| format!("outputs.{name}: must be {min} to {max}"))
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

    pub(super) fn ttl(&self) -> Duration {
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
    fn defaults_are_valid_and_errors_name_keys() {
        assert_eq!(OutputsSection::default().validate(), [""; 0]);
        let section = OutputsSection {
            tool_response_max_bytes: 10,
            keep: Duration::from_secs(59),
            session_outputs: 0,
            store_timeout: Duration::from_secs(61),
            ..OutputsSection::default()
        };
        assert_eq!(
            section.validate(),
            [
                "outputs.tool_response_max_bytes: must be 4096 to 1048576",
                "outputs.keep: must be 1m to 1w",
                "outputs.session_outputs: must be 1 to 1000",
                "outputs.store_timeout: must be 10ms to 1m",
            ]
        );
    }
}
