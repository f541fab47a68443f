//! The session, as its calls use it.

use std::sync::Arc;

use rmcp::{RoleClient, service::Peer};

use crate::{client::Client, task_handles::TaskHandles};

/// The parts of a session that its calls share.
#[derive(Clone)]
pub(crate) struct CallLink {
    pub(crate) peer: Peer<RoleClient>,
    pub(crate) client: Client,
    /// The name of the server.
    pub(crate) server: Arc<str>,
    /// The session began with a handshake, as before 2026-07-28.
    pub(crate) has_handshake: bool,
    /// The server offers tasks.
    pub(crate) has_tasks: bool,
    /// Handles of tasks that another bridge can continue.
    pub(crate) handles: Option<TaskHandles>,
}
