//! The sender and the agent of a request, which ids are derived from.

use axum::http::{HeaderMap, HeaderValue};
use rockbot_contracts::AgentName;

use crate::{
    id_scope::IdScope,
    identity::{Credential, Identity},
};

/// Header with the id of a person that Open WebUI adds where it forwards information on users.
const USER_HEADER: &str = "x-openwebui-user-id";
/// Header with the id of a chat that Open WebUI adds likewise.
const CHAT_HEADER: &str = "x-openwebui-chat-id";
/// Longest id of a chat, in bytes.
const MAX_CHAT_BYTES: usize = 255;

/// A sender and an agent.
#[derive(Debug, Clone)]
pub(super) struct Scope {
    ids: IdScope,
    chat: Option<Vec<u8>>,
}

impl Scope {
    /// Creates the scope of a request. A program with a token may name the person on whose behalf it sends the
    /// request, and the chat that it belongs to.
    pub(super) fn new(
        identity: &Identity,
        agent: &AgentName,
        headers: &HeaderMap,
        user: Option<&str>,
    ) -> Self {
        let is_program = identity.credential == Credential::Token;
        let header = |name| headers.get(name).filter(|_| is_program).map(HeaderValue::as_bytes);
        let person = header(USER_HEADER).unwrap_or_default();
        let chat = header(CHAT_HEADER).filter(|chat| (1..=MAX_CHAT_BYTES).contains(&chat.len()));
        let parts = [
            identity.subject.as_bytes(),
            agent.as_str().as_bytes(),
            person,
            user.unwrap_or_default().as_bytes(),
        ];
        Self { ids: IdScope::new(parts), chat: chat.map(<[u8]>::to_vec) }
    }

    /// Returns the id of the chat that the request belongs to, if the program names one.
    pub(super) fn chat(&self) -> Option<&[u8]> {
        self.chat.as_deref()
    }

    /// Derives an id of 128 bits from values of one kind.
    pub(super) fn id<'a>(&self, kind: &str, values: impl IntoIterator<Item = &'a [u8]>) -> String {
        self.ids.id(kind, values)
    }
}
