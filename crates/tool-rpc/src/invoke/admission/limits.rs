//! Bounds of a handler and of its queues.

use std::{collections::HashMap, num::NonZeroU16, time::Duration};

use rockbot_tools::limits::queue::QueueRules;

/// Bounds of a concurrency group.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct QueueLimits {
    /// Maximum number of calls that run at once; at least 1.
    pub running: usize,
    /// Maximum number of calls that wait; further calls fail with `overloaded`.
    pub waiting: usize,
    /// Maximum time that a call waits before it fails with `overloaded`. `None`: until its deadline.
    pub wait: Option<Duration>,
}

impl From<QueueRules> for QueueLimits {
    fn from(QueueRules { running, waiting, wait, .. }: QueueRules) -> Self {
        Self { running: running.max(1), waiting, wait: Some(wait) }
    }
}

/// Bounds of a handler.
#[derive(Debug, Clone)]
pub struct AdmissionLimits {
    /// Maximum number of calls that run at once in total; at least 1.
    pub running: usize,
    /// Maximum number of calls that wait in total. Like `running`, it is divided among the tools and
    /// servers.
    pub waiting: usize,
    /// Concurrency groups with their tools. [`server_queue_key`] stands for all tools of a server that are
    /// not in another group, and [`policy_queue_key`] for those whose own policy names the queue. A tool in
    /// none of them is a group of its own.
    pub queues: Vec<(Vec<String>, QueueLimits)>,
    /// Bounds of a tool that is a group of its own.
    pub per_tool: QueueLimits,
    /// Weights of shares: by the name of a tool, [`server_queue_key`] or [`policy_queue_key`]. Default 1.
    pub weights: HashMap<String, NonZeroU16>,
}

impl AdmissionLimits {
    /// Returns limits of `running` calls at once, of which one tool gets three quarters, and of any number
    /// of waiting calls. All shares have the same weight.
    #[must_use]
    pub fn new(running: usize) -> Self {
        let running = running.max(1);
        let per_tool =
            QueueLimits { running: (running * 3).div_ceil(4), waiting: usize::MAX, wait: None };
        let (queues, weights) = (Vec::new(), HashMap::new());
        Self { running, waiting: usize::MAX, queues, per_tool, weights }
    }
}

/// Start of the entries of [`server_queue_key`].
pub(super) const SERVER_PREFIX: &str = "server:";

/// Start of the entries of [`policy_queue_key`].
const POLICY_PREFIX: &str = "queue:";

/// Returns the entry for all tools of a server or source in a concurrency group. No tool has such a name.
#[must_use]
pub fn server_queue_key(name: &str) -> String {
    format!("{SERVER_PREFIX}{}", name.to_lowercase())
}

/// Returns the entry for all tools in a concurrency group whose own policy names the queue `name`. No tool has
/// such a name.
#[must_use]
pub fn policy_queue_key(name: &str) -> String {
    format!("{POLICY_PREFIX}{name}")
}
