//! MCP tools that conversations have activated and servers that they have called.

use std::collections::HashMap;

use parking_lot::{Mutex, MutexGuard};

use rockbot_contracts::SessionId;

use crate::conversation::{McpTarget, McpUse};

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
    /// Additions that are not recorded.
    unrecorded: McpUse,
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
        let SessionState { activated, unrecorded, .. } = sessions.entry(id.clone()).or_default();
        if !activated.contains(&tool) {
            unrecorded.add_tool(tool.clone());
        }
        move_to_end(activated, tool, self.max_activated);
    }

    /// Records a call to a server.
    pub(super) fn called(&self, id: &SessionId, server: &str) {
        let mut sessions = self.lock();
        let SessionState { called, unrecorded, .. } = sessions.entry(id.clone()).or_default();
        let server = server.to_lowercase();
        if !called.contains(&server) {
            unrecorded.add_server(server.clone());
        }
        move_to_end(called, server, MAX_CALLED);
    }

    /// Returns the activated tools and called servers since the last call of this function.
    pub(super) fn take_unrecorded(&self, id: &SessionId) -> McpUse {
        let mut sessions = self.lock();
        sessions.get_mut(id).map(|state| std::mem::take(&mut state.unrecorded)).unwrap_or_default()
    }

    /// Adds what the conversation used in other processes, as its oldest tools and servers.
    pub(super) fn restore(&self, id: &SessionId, used: &McpUse) {
        if used.is_empty() {
            return;
        }
        let mut sessions = self.lock();
        let SessionState { activated, called, .. } = sessions.entry(id.clone()).or_default();
        insert_first(activated, &used.tools, self.max_activated);
        insert_first(called, &used.servers, MAX_CALLED);
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

/// Inserts the newest of `older` that are missing and fit.
fn insert_first<T: PartialEq + Clone>(items: &mut Vec<T>, older: &[T], limit: usize) {
    for item in older.iter().rev() {
        if items.len() < limit && !items.contains(item) {
            items.insert(0, item.clone());
        }
    }
}

fn move_to_end<T: PartialEq>(items: &mut Vec<T>, item: T, limit: usize) {
    items.retain(|other| *other != item);
    items.push(item);
    let excess = items.len().saturating_sub(limit);
    items.drain(..excess);
}
