//! Queues that servers share, for upstream services with little capacity.
//!
//! A queue is defined in `[handler.queues]` or in the servers file. On the bus, admission control applies both;
//! without a bus, the queue itself.

use std::{collections::BTreeMap, num::NonZeroU16, sync::Arc};

use parking_lot::Mutex;
use rockbot_tools::{
    Period,
    limits::queue::{Queue, QueueRules},
};
use serde::Deserialize;

/// A queue of the servers file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct QueueConfig {
    /// The maximum number of concurrent calls. Default: twice the number of cores, at most 64.
    #[serde(alias = "concurrent")]
    pub concurrency: Option<NonZeroU16>,
    /// The maximum number of waiting calls; further ones fail with `overloaded`. Default: 1024.
    pub waiting: Option<u16>,
    /// The time limit for waiting; then the call fails with `overloaded`. Default: 60 s.
    pub wait: Option<Period>,
    /// The weight of the queue when a bridge divides its capacity. Default 1.
    pub weight: Option<NonZeroU16>,
}

impl QueueConfig {
    fn queue(&self, name: &str) -> Arc<Queue> {
        let default = QueueRules::default();
        let rules = QueueRules {
            running: self.concurrency.map_or(default.running, |limit| limit.get().into()),
            waiting: self.waiting.map_or(default.waiting, usize::from),
            wait: self.wait.and_then(Period::duration).unwrap_or(default.wait),
            weight: self.weight,
        };
        Queue::new(name, rules)
    }
}

/// Queues by name.
pub(crate) type Queues = BTreeMap<String, Arc<Queue>>;

/// The queues of a bridge.
#[derive(Debug)]
pub(crate) struct BridgeQueues {
    /// Those of the configuration.
    configured: Queues,
    /// Those of the servers file that was applied last.
    from_file: Mutex<BTreeMap<String, (QueueConfig, Arc<Queue>)>>,
}

impl BridgeQueues {
    pub(crate) fn new(configured: Queues) -> Self {
        Self { configured, from_file: Mutex::default() }
    }

    pub(crate) fn is_configured(&self, name: &str) -> bool {
        self.configured.contains_key(name)
    }

    /// Applies the queues of a servers file. An unchanged queue keeps its running and waiting calls.
    pub(crate) fn apply(&self, file: &BTreeMap<String, QueueConfig>) {
        let mut from_file = self.from_file.lock();
        let next = file.iter().map(|(name, config)| {
            let queue = match from_file.get(name) {
                Some((known, queue)) if known == config => queue.clone(),
                _ => config.queue(name),
            };
            (name.clone(), (*config, queue))
        });
        *from_file = next.collect();
    }

    /// Returns the queue called `name`.
    pub(crate) fn get(&self, name: &str) -> Option<Arc<Queue>> {
        let configured = self.configured.get(name).cloned();
        configured.or_else(|| self.from_file.lock().get(name).map(|(_, queue)| queue.clone()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unchanged_queue_of_file_stays() {
        let queues = BridgeQueues::new(BTreeMap::new());
        let file =
            |text: &str| serde_json::from_str::<BTreeMap<String, QueueConfig>>(text).unwrap();
        queues.apply(&file(r#"{"one": {"concurrent": 3}, "two": {"concurrency": 1}}"#));
        let [one, two] = ["one", "two"].map(|name| queues.get(name).unwrap());
        assert_eq!((one.rules().running, two.rules().running), (3, 1));
        queues.apply(&file(r#"{"one": {"concurrency": 3}, "two": {"concurrency": 2}}"#));
        assert!(Arc::ptr_eq(&queues.get("one").unwrap(), &one));
        assert!(!Arc::ptr_eq(&queues.get("two").unwrap(), &two));
        queues.apply(&BTreeMap::new());
        assert!(queues.get("one").is_none());
        for invalid in [r#"{"concurrency": 0}"#, r#"{"weight": 0}"#, r#"{"weight": 65536}"#] {
            assert!(serde_json::from_str::<QueueConfig>(invalid).is_err(), "{invalid}");
        }
        queues.apply(&file(r#"{"one": {"weight": 3}}"#));
        assert_eq!(queues.get("one").unwrap().rules().weight, NonZeroU16::new(3));
    }
}
