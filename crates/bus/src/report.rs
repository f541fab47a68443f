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
    /// What there was to see.
    pub look: Look,
}

impl QueueReport {
    /// How full it is; `None` when it does not exist, or may not be looked at.
    #[must_use]
    pub fn depth(&self) -> Option<QueueDepth> {
        self.look.depth()
    }
}

/// What a look at a queue shows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Look {
    /// It exists.
    There(QueueDepth),
    /// It does not exist.
    Missing,
    /// This user may not know. RabbitMQ refuses looks at queues that a user has no right to, from
    /// 4.2.6 on.
    Refused,
}

impl Look {
    /// How full the queue is; `None` when it does not exist, or may not be looked at.
    #[must_use]
    pub fn depth(self) -> Option<QueueDepth> {
        match self {
            Self::There(depth) => Some(depth),
            Self::Missing | Self::Refused => None,
        }
    }
}

/// How full a queue is and who reads it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct QueueDepth {
    /// Messages that wait for a consumer.
    pub ready: u32,
    /// Consumers on it.
    pub consumers: u32,
}
