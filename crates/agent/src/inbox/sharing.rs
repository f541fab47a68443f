//! Sharing of an agent's conversations among its processes.

use std::{fmt, sync::Arc, time::Duration};

use rockbot_contracts::{InstanceId, MessageId};
use rockbot_store::Store;

/// Settings of a process that shares the conversations of its agent with others.
#[derive(Clone)]
pub struct Sharing {
    /// The store of the conversations, which all processes of the agent use. Its leases say which process
    /// runs a conversation.
    pub store: Arc<dyn Store>,
    /// The id of this process, as shown to users.
    pub instance: InstanceId,
    /// The broker user of the agent; `None` on a bus without users. Only messages of this user are
    /// accepted from other processes of the agent.
    pub user: Option<Arc<str>>,
    /// The time after which the conversations of an unresponsive process continue in another one.
    /// Default 2 s. A lease is renewed four times within it.
    pub lease: Duration,
    /// The interval between searches for turns that no process runs. Default 1 s.
    pub scan_interval: Duration,
}

impl Sharing {
    /// Default of [`Sharing::lease`].
    pub const LEASE: Duration = Duration::from_secs(2);
    /// Default of [`Sharing::scan_interval`].
    pub const SCAN_INTERVAL: Duration = Duration::from_secs(1);

    /// Creates the settings of a process with default intervals, on a bus without users.
    #[must_use]
    pub const fn new(store: Arc<dyn Store>, instance: InstanceId) -> Self {
        let (lease, scan_interval) = (Self::LEASE, Self::SCAN_INTERVAL);
        Self { store, instance, user: None, lease, scan_interval }
    }

    /// Sets the broker user of the agent.
    #[must_use]
    pub fn with_user(self, user: Option<String>) -> Self {
        Self { user: user.map(Arc::from), ..self }
    }

    /// Returns a new id of this incarnation of the process: its owner name in leases and the last segment
    /// of its queue. A restarted process is not mistaken for the one before.
    pub(super) fn incarnation(&self) -> InstanceId {
        let random = MessageId::generate();
        InstanceId::new(format!("{}-{random}", self.instance))
            .unwrap_or_else(|_| InstanceId::generate())
    }
}

impl fmt::Debug for Sharing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sharing")
            .field("instance", &self.instance)
            .field("lease", &self.lease)
            .field("scan_interval", &self.scan_interval)
            .finish_non_exhaustive()
    }
}
