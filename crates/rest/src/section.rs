//! The configuration section `[rest]`.

use std::{collections::BTreeMap, path::PathBuf, sync::Arc, time::Duration};

use rockbot_contracts::period::duration;
use rockbot_egress::{DialPolicy, PrivateTarget};
use rockbot_tools::limits::queue::Queue;
use serde::Deserialize;

use crate::{config::RestFile, provider::RestOptions};

/// Section `[rest]`.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct RestSection {
    /// File of REST tools. Default: none, and no REST tools.
    pub config: Option<PathBuf>,
    /// Allows APIs without TLS. Default false.
    pub allow_plain_http: bool,
    /// Private addresses, networks and hosts that may be dialed. Default: none.
    pub allow_private: Vec<String>,
    /// Maximum number of tools. Default 100.
    pub max_tools: usize,
    /// Time without data after which a connection counts as lost. Default 30 s.
    #[serde(deserialize_with = "duration")]
    pub idle_timeout: Duration,
}

impl Default for RestSection {
    fn default() -> Self {
        Self {
            config: None,
            allow_plain_http: false,
            allow_private: Vec::new(),
            max_tools: 100,
            idle_timeout: Duration::from_secs(30),
        }
    }
}

impl RestSection {
    /// Returns all invalid values, for an operator.
    #[must_use]
    pub fn validate(&self) -> Vec<String> {
        let mut problems = Vec::new();
        for target in &self.allow_private {
            if let Err(error) = target.parse::<PrivateTarget>() {
                problems.push(format!("rest.allow_private: {error}"));
            }
        }
        if self.max_tools == 0 {
            problems.push("rest.max_tools: must be at least 1".to_owned());
        }
        if self.idle_timeout.is_zero() {
            problems.push("rest.idle_timeout: must be longer than zero".to_owned());
        }
        problems
    }

    /// Returns the errors of the queues in the file of REST tools, for an operator. `is_configured`
    /// returns whether `[handler.queues]` has a queue of this name. A file that cannot be read or parsed has none.
    #[must_use]
    pub fn validate_queues(&self, is_configured: impl Fn(&str) -> bool) -> Vec<String> {
        let Some(path) = &self.config else { return Vec::new() };
        let file = RestFile::read(path).and_then(|text| RestFile::parse(&text));
        let Ok(RestFile { entries, .. }) = file else { return Vec::new() };
        let path = path.display();
        let unknown = entries.iter().filter_map(|((_, name), entry)| {
            let queue = entry.get("queue")?.as_str()?;
            (!is_configured(queue)).then(|| {
                format!(
                    "rest.config: {path}: {name}: queue {queue:?} is unknown; define it in \
                     [handler.queues]"
                )
            })
        });
        unknown.collect()
    }

    /// Returns the options of a provider that reads `config`, with the queues of the process.
    #[must_use]
    pub fn options(
        &self,
        config: impl Into<PathBuf>,
        queues: BTreeMap<String, Arc<Queue>>,
    ) -> RestOptions {
        RestOptions {
            config: config.into(),
            dial: self.dial_policy(),
            max_tools: self.max_tools,
            idle_timeout: self.idle_timeout,
            queues,
            ..RestOptions::default()
        }
    }

    fn dial_policy(&self) -> DialPolicy {
        DialPolicy {
            allow_plain_http: self.allow_plain_http,
            // `validate` reports invalid ones.
            allow_private: self.allow_private.iter().filter_map(|text| text.parse().ok()).collect(),
            ..DialPolicy::default()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn invalid_values_are_reported() {
        assert!(RestSection::default().validate().is_empty());
        let section = RestSection {
            allow_private: vec!["not a host".to_owned()],
            max_tools: 0,
            idle_timeout: Duration::ZERO,
            ..RestSection::default()
        };
        assert_eq!(section.validate().len(), 3);
    }
}
