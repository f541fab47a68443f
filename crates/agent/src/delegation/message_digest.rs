//! Digests of the requests of other agents, which recognize repeated ones.

use rockbot_contracts::{AgentTaskRequest, Envelope, TaskState};

use super::record::{PeerTask, TaskRecord};
use crate::derived_id::derived_id;

/// Length of a hash.
const CHARS: usize = 32;

/// Hashes of the message of a request.
pub(super) struct MessageDigest {
    /// Of its id and its content.
    message: String,
    /// Of the content alone: a caller that names no ids may repeat a request.
    content: String,
}

impl MessageDigest {
    pub(super) fn new(request: &AgentTaskRequest, envelope: &Envelope) -> Self {
        let AgentTaskRequest { skill, message, .. } = request;
        let parts = serde_json::to_string(&message.parts).unwrap_or_default();
        let content = derived_id(&[skill, &message.role, &parts], CHARS);
        // The same for each delivery of a request.
        let id = message.message_id.as_ref().unwrap_or(&envelope.message_id);
        Self { message: derived_id(&[id.as_str(), &content], CHARS), content }
    }

    /// Returns `true` if the task has the message. A task that asks may be answered with the same text twice.
    pub(super) fn was_received(&self, record: &TaskRecord) -> bool {
        let Some(peer) = &record.peer else { return false };
        peer.received.contains(&self.message)
            || record.state != TaskState::InputRequired && peer.contents.contains(&self.content)
    }

    pub(super) fn add_to(&self, peer: &mut PeerTask) {
        peer.received.push(self.message.clone());
        peer.contents.push(self.content.clone());
    }
}
