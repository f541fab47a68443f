//! What an operator wants to know about a bus.

/// A look at the bus and at some of its queues.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BusReport {
    /// What carries the messages, with its version.
    pub product: String,
    /// Where it is, without the password; `None` inside one process.
    pub address: Option<String>,
    /// The queues that were asked for, in that order.
    pub queues: Vec<QueueReport>,
}

/// A look at one queue.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct QueueReport {
    /// Bare name.
    pub name: String,
    /// `None` when the queue does not exist.
    pub depth: Option<QueueDepth>,
}

/// How full a queue is and who reads it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct QueueDepth {
    /// Messages that wait for a consumer.
    pub ready: u32,
    /// Consumers on it.
    pub consumers: u32,
}
