//! Resources of MCP servers that conversations have read, and which of them have changed since.

use std::collections::HashMap;

use parking_lot::Mutex;
use rockbot_contracts::{
    SessionId,
    mcp::{McpResource, McpResourcesChanged},
};
use tokio::sync::broadcast::{Receiver, error::TryRecvError};

/// Maximum number of resources per conversation; the oldest are dropped.
const MAX_READ: usize = 32;

/// The read resources of all conversations.
#[derive(Debug)]
pub(super) struct ReadResources(Mutex<State>);

#[derive(Debug)]
struct State {
    changes: Receiver<McpResourcesChanged>,
    /// The resources of each conversation, newest last.
    by_id: HashMap<SessionId, Vec<ReadResource>>,
}

#[derive(Debug)]
struct ReadResource {
    /// Name of the server, in lower case.
    server: String,
    uri: String,
    has_changed: bool,
}

impl State {
    /// Applies the changes that have arrived.
    fn update(&mut self) {
        loop {
            let changed = match self.changes.try_recv() {
                Ok(changed) => changed,
                // Some were missed.
                Err(TryRecvError::Lagged(_)) => continue,
                Err(TryRecvError::Empty | TryRecvError::Closed) => return,
            };
            let server = changed.server_name.to_lowercase();
            for resource in self.by_id.values_mut().flatten() {
                resource.has_changed |=
                    resource.server == server && changed.uris.contains(&resource.uri);
            }
        }
    }
}

impl ReadResources {
    /// Creates the state that follows `changes`.
    pub(super) fn new(changes: Receiver<McpResourcesChanged>) -> Self {
        Self(Mutex::new(State { changes, by_id: HashMap::new() }))
    }

    /// Records that a conversation reads a resource: later changes are of interest.
    pub(super) fn record(&self, id: &SessionId, server: &str, uri: &str) {
        if uri.len() > McpResource::MAX_URI_BYTES {
            return;
        }
        let mut state = self.0.lock();
        state.update();
        let resources = state.by_id.entry(id.clone()).or_default();
        let server = server.to_lowercase();
        resources.retain(|resource| resource.server != server || resource.uri != uri);
        resources.push(ReadResource { server, uri: uri.to_owned(), has_changed: false });
        let excess = resources.len().saturating_sub(MAX_READ);
        resources.drain(..excess);
    }

    /// Returns the servers and URIs of the resources that have changed since the conversation read them.
    pub(super) fn changed(&self, id: &SessionId) -> Vec<(String, String)> {
        let mut state = self.0.lock();
        state.update();
        let resources = state.by_id.get(id).into_iter().flatten();
        let changed = resources.filter(|resource| resource.has_changed);
        changed.map(|resource| (resource.server.clone(), resource.uri.clone())).collect()
    }

    /// Drops the state of a conversation that ended.
    pub(super) fn forget(&self, id: &SessionId) {
        self.0.lock().by_id.remove(id);
    }
}

#[cfg(test)]
mod tests {
    use tokio::sync::broadcast;

    use super::*;

    fn changed(server: &str, uris: &[&str]) -> McpResourcesChanged {
        let uris = uris.iter().map(|uri| (*uri).to_owned()).collect();
        McpResourcesChanged { server_name: server.to_owned(), uris }
    }

    #[test]
    fn change_is_reported_until_resource_is_read_again() {
        let changes = broadcast::Sender::new(4);
        let read = ReadResources::new(changes.subscribe());
        let (one, other) = (SessionId::new("one").unwrap(), SessionId::new("other").unwrap());
        changes.send(changed("Docs", &["a:1"])).unwrap();
        read.record(&one, "Docs", "a:1");
        read.record(&one, "Docs", "a:2");
        assert!(read.changed(&one).is_empty(), "it changed before it was read");
        for _ in 0..3 {
            changes.send(changed("docs", &["a:1", "a:9"])).unwrap();
        }
        assert_eq!(read.changed(&one), [("docs".to_owned(), "a:1".to_owned())]);
        assert!(read.changed(&other).is_empty());
        read.record(&one, "docs", "a:1");
        assert!(read.changed(&one).is_empty(), "it was read again");
        read.forget(&one);
        changes.send(changed("docs", &["a:2"])).unwrap();
        assert!(read.changed(&one).is_empty());
    }

    #[test]
    fn resources_of_a_conversation_are_bounded() {
        let changes = broadcast::Sender::new(4);
        let read = ReadResources::new(changes.subscribe());
        let id = SessionId::new("one").unwrap();
        let uris: Vec<_> = (0..2 * MAX_READ).map(|at| format!("a:{at}")).collect();
        for uri in &uris {
            read.record(&id, "docs", uri);
        }
        changes.send(McpResourcesChanged { server_name: "docs".to_owned(), uris }).unwrap();
        let shown = read.changed(&id);
        assert_eq!((shown.len(), shown[0].1.as_str()), (MAX_READ, "a:32"));
    }
}
