//! Queues that servers share, for upstream services with little capacity.

use std::{collections::BTreeMap, sync::Arc};

use rockbot_tools::{
    Period,
    limits::queue::{Queue, QueueRules},
};
use serde::Deserialize;

/// The configuration of a queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct QueueConfig {
    /// The maximum number of concurrent calls, at least 1. Default: twice the number of cores, at most 64.
    #[serde(default = "QueueConfig::default_concurrency")]
    pub concurrency: u16,
    /// The maximum number of waiting calls; further ones fail with `overloaded`. Default: 1024.
    #[serde(default)]
    pub waiting: Option<u16>,
    /// The time limit for waiting; then the call fails with `overloaded`. Default: 60 s.
    #[serde(default)]
    pub wait: Option<Period>,
}

impl QueueConfig {
    fn default_concurrency() -> u16 {
        QueueRules::default().running.try_into().unwrap_or(u16::MAX)
    }
}

/// The queues of a bridge, by name.
pub(crate) type Queues = BTreeMap<String, Arc<Queue>>;

/// Creates the configured queues.
pub(crate) fn queues(configured: &BTreeMap<String, QueueConfig>) -> Queues {
    let default = QueueRules::default();
    let queue = |(name, config): (&String, &QueueConfig)| {
        let rules = QueueRules {
            running: config.concurrency.into(),
            waiting: config.waiting.map_or(default.waiting, usize::from),
            wait: config.wait.and_then(Period::duration).unwrap_or(default.wait),
        };
        (name.clone(), Queue::new(name, rules))
    };
    configured.iter().map(queue).collect()
}
