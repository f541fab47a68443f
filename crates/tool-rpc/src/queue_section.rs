//! Configuration of a queue: `[handler.queues.<name>]`, and `queues` of a servers file.

use std::{
    num::{NonZeroU16, NonZeroUsize},
    sync::Arc,
};

use rockbot_tools::{
    limits::queue::{Queue, QueueRules},
    period::Period,
};
use serde::Deserialize;

use crate::invoke::QueueLimits;

/// Section `[handler.queues.<name>]`.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct QueueSection {
    /// Names of its tools, in addition to the tools whose own section names the queue.
    #[serde(default)]
    pub tools: Vec<String>,
    /// Maximum number of calls of these tools that run at once, at least 1. Default twice the number of
    /// cores, at most 64.
    #[serde(default = "QueueSection::default_concurrency")]
    pub concurrency: u16,
    /// Maximum number of calls of these tools that wait; further calls fail with `overloaded`. Default: the
    /// backlog of the handler.
    pub waiting: Option<u16>,
    /// Maximum time that a call waits before it fails with `overloaded`. Default: until its deadline.
    pub wait: Option<Period>,
    /// Weight of the queue when a handler divides its capacity. Default 1.
    pub weight: Option<NonZeroU16>,
}

impl QueueSection {
    fn default_concurrency() -> u16 {
        QueueRules::default().running.try_into().unwrap_or(u16::MAX)
    }

    /// Returns the bounds in a handler.
    pub(crate) fn limits(&self) -> QueueLimits {
        let waiting = self.waiting.map_or(usize::MAX, usize::from);
        let wait = self.wait.and_then(Period::duration);
        QueueLimits { running: self.concurrency.into(), waiting, wait }
    }

    /// Creates the queue, for calls that do not pass a handler's admission control. By default, 1,024 calls
    /// wait in it, each at most 60 s.
    #[must_use]
    pub fn queue(&self, name: &str) -> Arc<Queue> {
        let default = QueueRules::default();
        let running = NonZeroUsize::new(self.concurrency.into()).unwrap_or(NonZeroUsize::MIN);
        let waiting = self.waiting.map_or(default.waiting, usize::from);
        let wait = self.wait.and_then(Period::duration).unwrap_or(default.wait);
        Queue::new(name, QueueRules { running: running.get(), waiting, wait, weight: self.weight })
    }
}
