//! MCP tools that conversations have activated and servers that they have called.

use std::collections::HashMap;

use parking_lot::{Mutex, MutexGuard};

use rockbot_contracts::SessionId;

use crate::conversation::McpTarget;

/// Maximum number of called servers per conversation; the oldest are dropped.
const MAX_CALLED: usize = 32;

/// Activated tools and called servers of all conversations, newest last.
#[derive(Debug)]
pub(super) struct SessionTools {
    max_activated: usize,
    by_id: Mutex<HashMap<SessionId, SessionState>>,
}

#[derive(Debug, Clone, Default)]
pub(super) struct SessionState {
    pub(super) activated: Vec<McpTarget>,
    pub(super) called: Vec<String>,
}

impl SessionTools {
    pub(super) fn new(max_activated: usize) -> Self {
        Self { max_activated, by_id: Mutex::default() }
    }

    /// Returns the maximum number of activated tools of a conversation.
    pub(super) fn max_activated(&self) -> usize {
        self.max_activated
    }

    /// Activates a tool. Above the limit, the oldest activation is dropped.
    pub(super) fn activate(&self, id: &SessionId, tool: McpTarget) {
        let mut sessions = self.lock();
        let activated = &mut sessions.entry(id.clone()).or_default().activated;
        move_to_end(activated, tool, self.max_activated);
    }

    /// Records a call to a server.
    pub(super) fn called(&self, id: &SessionId, server: &str) {
        let mut sessions = self.lock();
        let called = &mut sessions.entry(id.clone()).or_default().called;
        move_to_end(called, server.to_lowercase(), MAX_CALLED);
    }

    /// Adds tools that the conversation called in other processes, newest last, as its oldest ones.
    pub(super) fn restore(&self, id: &SessionId, tools: &[McpTarget]) {
        if tools.is_empty() {
            return;
        }
        let mut sessions = self.lock();
        let SessionState { activated, called } = sessions.entry(id.clone()).or_default();
        for tool in tools.iter().rev() {
            if activated.len() < self.max_activated && !activated.contains(tool) {
                activated.insert(0, tool.clone());
            }
            if called.len() < MAX_CALLED && !called.contains(&tool.0) {
                called.insert(0, tool.0.clone());
            }
        }
    }

    pub(super) fn get(&self, id: &SessionId) -> SessionState {
        self.lock().get(id).cloned().unwrap_or_default()
    }

    /// Drops the state of a conversation that ended.
    pub(super) fn forget(&self, id: &SessionId) {
        self.lock().remove(id);
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<SessionId, SessionState>> {
        self.by_id.lock()
    }
}

fn move_to_end<T: PartialEq>(items: &mut Vec<T>, item: T, limit: usize) {
    items.retain(|other| *other != item);
    items.push(item);
    let excess = items.len().saturating_sub(limit);
    items.drain(..excess);
}
