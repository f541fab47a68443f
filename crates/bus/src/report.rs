//! Status of a bus and its queues, for operators.

/// Status of a bus and some of its queues.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BusReport {
    /// Product and version.
    pub product: String,
    /// Address without the password; `None` within one process.
    pub address: Option<String>,
    /// The inspected queues, in the requested order.
    pub queues: Vec<QueueReport>,
}

/// Status of one queue.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct QueueReport {
    /// Bare name.
    pub name: String,
    /// State of the queue.
    pub state: QueueState,
}

impl QueueReport {
    /// Returns its depth; `None` when it does not exist or this user may not inspect it.
    #[must_use]
    pub fn depth(&self) -> Option<QueueDepth> {
        self.state.depth()
    }
}

/// State of an inspected queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum QueueState {
    /// It exists.
    Present(QueueDepth),
    /// It does not exist.
    Missing,
    /// This user may not inspect it. RabbitMQ from 4.2.6 on refuses to inspect queues that a user has no
    /// permission for.
    Refused,
}

impl QueueState {
    /// Returns the depth; `None` when the queue does not exist or this user may not inspect it.
    #[must_use]
    pub fn depth(self) -> Option<QueueDepth> {
        match self {
            Self::Present(depth) => Some(depth),
            Self::Missing | Self::Refused => None,
        }
    }
}

/// Depth and consumers of a queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct QueueDepth {
    /// Number of messages that wait for a consumer.
    pub ready: u32,
    /// Number of consumers.
    pub consumers: u32,
}
