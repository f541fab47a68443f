//! The sender of a request and its agent, from which the ids of tasks and conversations are derived.

use std::{collections::BTreeSet, sync::Arc};

use rockbot_contracts::{AgentName, MessageId, SessionId};

use crate::{
    id_scope::IdScope,
    identity::{Credential, Identity, NamePatterns},
};

/// A sender and an agent. Its ids are those of no other sender: a foreign task is an unknown one.
#[derive(Debug, Clone)]
pub(super) struct Caller {
    pub(super) identity: Identity,
    pub(super) agent: AgentName,
    ids: IdScope,
}

impl Caller {
    pub(super) fn new(identity: Identity, agent: AgentName) -> Self {
        let ids = IdScope::new([
            b"a2a".as_slice(),
            identity.subject.as_bytes(),
            agent.as_str().as_bytes(),
        ]);
        Self { identity, agent, ids }
    }

    /// Returns a sender that registered something at an earlier request. It has no rights.
    pub(super) fn registered(subject: Arc<str>, agent: AgentName) -> Self {
        let identity = Identity {
            subject,
            credential: Credential::Token,
            rights: BTreeSet::new(),
            faces: BTreeSet::new(),
            agents: NamePatterns::default(),
            tools: NamePatterns::default(),
            requests_per_minute: None,
            address: None,
        };
        Self::new(identity, agent)
    }

    pub(super) fn subject(&self) -> &Arc<str> {
        &self.identity.subject
    }

    /// Returns the task of a message: the id of the message on the bus. The same message has the same one.
    pub(super) fn task(&self, message: &str) -> MessageId {
        derived(self.ids.id("task", [message.as_bytes()]), MessageId::new, MessageId::generate)
    }

    /// Returns the context of a message that names none.
    pub(super) fn new_context(&self, message: &str) -> String {
        self.ids.id("context", [message.as_bytes()])
    }

    /// Returns the conversation of a context.
    pub(super) fn session(&self, context: &str) -> SessionId {
        derived(self.ids.id("session", [context.as_bytes()]), SessionId::new, SessionId::generate)
    }

    /// Returns the name of the record of a task.
    pub(super) fn record(&self, task: &str) -> String {
        self.ids.id("record", [task.as_bytes()])
    }

    /// Returns the name of the list of its tasks.
    pub(super) fn list(&self) -> String {
        self.ids.id("list", [])
    }

    /// Returns the id of a target of push notifications that has none.
    pub(super) fn push_target(&self, task: &MessageId, url: &str) -> String {
        self.ids.id("push-target", [task.as_str().as_bytes(), url.as_bytes()])
    }

    /// Returns the name of the list of its targets whose notifications are not delivered.
    pub(super) fn open_pushes(&self) -> String {
        self.ids.id("open-pushes", [])
    }

    /// Returns the name of the entry of a target whose notifications are not delivered.
    pub(super) fn open_push(&self, task: &MessageId, target: &str) -> String {
        self.ids.id("open-push", [task.as_str().as_bytes(), target.as_bytes()])
    }

    /// Returns the digest of a message's content.
    pub(super) fn digest<'a>(&self, values: impl IntoIterator<Item = &'a [u8]>) -> String {
        self.ids.id("content", values)
    }
}

/// Returns a derived id. Its digits are always a valid one.
fn derived<T, E>(id: String, new: fn(String) -> Result<T, E>, generate: fn() -> T) -> T {
    new(id).unwrap_or_else(|_| generate())
}
