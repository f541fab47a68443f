//! The conversation that a request continues.

use std::{fmt::Write, sync::Arc, time::Duration};

use rockbot_contracts::SessionId;
use rockbot_store::{DocumentError, DocumentStore, Expected, PutOutcome, Store};
use serde::{Deserialize, Serialize};
use tokio::time::timeout;
use tracing::{debug, warn};

use super::{
    request::{ChatRequest, EarlierMessage, Speaker},
    scope::Scope,
};

/// Time for which a conversation can be found: as long as agents keep conversations by default.
const TTL: Duration = Duration::from_secs(30 * 24 * 60 * 60);
/// Time limit for the store, after which a conversation is not found.
const STORE_TIMEOUT: Duration = Duration::from_secs(2);
/// Largest text of a message with instructions or earlier messages, in bytes: that of a message to an
/// agent, less a margin.
pub(super) const MAX_TEXT_BYTES: usize = 127 * 1024;
/// Largest text of earlier messages, in bytes.
pub(super) const MAX_EARLIER_BYTES: usize = 48 * 1024;
/// Space for the name of the speaker of an earlier message, in bytes.
const SPEAKER_BYTES: usize = 16;

/// Finds conversations by the id of a chat, or by the messages so far.
#[derive(Debug, Clone)]
pub(super) struct Conversations(Arc<DocumentStore<Point>>);

/// A point in a conversation: after these messages.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Point {
    /// `None` if several conversations have the same messages. Then none is continued.
    session: Option<SessionId>,
}

/// The conversation of a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Place {
    pub(super) session: SessionId,
    /// Set if the agent does not have the earlier messages.
    pub(super) lacks_earlier: bool,
    /// Set if the request has no earlier messages, and continues no conversation.
    pub(super) is_start: bool,
}

impl Conversations {
    pub(super) fn new(store: Arc<dyn Store>) -> Self {
        Self(Arc::new(DocumentStore::new(store, ["gateway", "openai-conversations"])))
    }

    /// Returns the conversation that a request continues, or a new one.
    pub(super) async fn find(&self, scope: &Scope, request: &ChatRequest) -> Place {
        let chat = scope.chat().map(|chat| chat_id(scope, chat, request));
        let new = chat.as_deref().and_then(|chat| SessionId::new(chat).ok());
        let new = new.unwrap_or_else(SessionId::generate);
        if request.earlier.is_empty() {
            return Place { session: new, lacks_earlier: false, is_start: true };
        }
        let name = chat.unwrap_or_else(|| history_id(scope, request.earlier.iter()));
        let found = timeout(STORE_TIMEOUT, self.0.get(&[&name])).await;
        let point = match found {
            Ok(Ok(point)) => point,
            Ok(Err(error)) => {
                warn!(%error, "conversation not found; the request starts a new one");
                None
            }
            Err(_) => None,
        };
        match point.and_then(|point| point.value.session) {
            Some(session) => Place { session, lacks_earlier: false, is_start: false },
            None => Place { session: new, lacks_earlier: true, is_start: false },
        }
    }

    /// Records that the conversation has the messages of the request and the answer, as the client has it.
    pub(super) async fn remember(
        &self,
        scope: &Scope,
        request: &ChatRequest,
        answer: &str,
        session: &SessionId,
    ) {
        let last = [(Speaker::User, request.text.as_str()), (Speaker::Assistant, answer)];
        let last =
            last.map(|(speaker, text)| EarlierMessage { speaker, text: text.trim().to_owned() });
        let last = last.iter().filter(|message| !message.text.is_empty());
        let history = history_id(scope, request.earlier.iter().chain(last));
        let chat = scope.chat().map(|chat| chat_id(scope, chat, request));
        for name in chat.into_iter().chain([history]) {
            match timeout(STORE_TIMEOUT, self.put(&name, session)).await {
                Ok(Ok(())) => {}
                Ok(Err(error)) => warn!(%error, "conversation not recorded"),
                Err(_) => debug!("conversation not recorded in time"),
            }
        }
    }

    async fn put(&self, name: &str, session: &SessionId) -> Result<(), DocumentError> {
        let point = Point { session: Some(session.clone()) };
        let PutOutcome::Conflict(Some(found)) =
            self.0.put(&[name], &point, Some(TTL), Expected::Absent).await?
        else {
            return Ok(());
        };
        let is_same = found.value.session.as_ref() == Some(session);
        let point = if is_same { point } else { Point { session: None } };
        // Of two writes at the same time one is enough: both find the other's session.
        let expected = Expected::Version(found.version);
        self.0.put(&[name], &point, Some(TTL), expected).await.map(drop)
    }
}

/// Returns the text of a message to an agent: with the instructions of the client, and the last of the earlier messages
/// if the agent lacks them.
pub(super) fn message_text(request: &ChatRequest, with_earlier: bool) -> String {
    let mut text = instructions_text(request);
    if with_earlier {
        add_earlier(request, &mut text);
    }
    if text.is_empty() {
        return request.text.clone();
    }
    text.push_str("The new message:\n\n");
    text.push_str(&request.text);
    text
}

/// Returns whether all earlier messages fit in the text of the message to the agent.
pub(super) fn has_space_for_earlier(request: &ChatRequest) -> bool {
    let used = instructions_text(request).len();
    fitting_earlier(request, used).len() == request.earlier.len()
}

/// Returns the instructions of the client as the beginning of a text, which is empty without them.
fn instructions_text(request: &ChatRequest) -> String {
    let Some(instructions) = &request.instructions else { return String::new() };
    format!("Instructions of the client for this message:\n\n{instructions}\n\n")
}

/// Returns the last of the earlier messages that fit after `used` bytes, oldest first.
fn fitting_earlier(request: &ChatRequest, used: usize) -> Vec<&EarlierMessage> {
    let used = used + request.text.len();
    let mut space = MAX_EARLIER_BYTES.min(MAX_TEXT_BYTES.saturating_sub(used));
    let mut fitting = Vec::new();
    for message in request.earlier.iter().rev() {
        let Some(rest) = space.checked_sub(message.text.len() + SPEAKER_BYTES) else { break };
        space = rest;
        fitting.push(message);
    }
    fitting.reverse();
    fitting
}

/// Adds the last of the earlier messages to a text.
fn add_earlier(request: &ChatRequest, text: &mut String) {
    let fitting = fitting_earlier(request, text.len());
    if fitting.is_empty() {
        return;
    }
    text.push_str("Earlier messages of this conversation, as the client recorded them:\n");
    for message in fitting {
        let speaker = match message.speaker {
            Speaker::User => "User",
            Speaker::Assistant => "Assistant",
        };
        // Writing to a string cannot fail.
        let _ = write!(text, "\n{speaker}: {}\n", message.text);
    }
    text.push('\n');
}

/// Derives the id of a chat's conversation. The first message belongs to it: programs that let a model name a
/// chat send that request with the id of the chat.
fn chat_id(scope: &Scope, chat: &[u8], request: &ChatRequest) -> String {
    scope.id("chat", [chat, request.first_text().trim().as_bytes()])
}

fn history_id<'a>(scope: &Scope, messages: impl Iterator<Item = &'a EarlierMessage>) -> String {
    let values = messages.flat_map(|message| {
        let speaker: &[u8] = match message.speaker {
            Speaker::User => b"user",
            Speaker::Assistant => b"assistant",
        };
        [speaker, message.text.as_bytes()]
    });
    scope.id("history", values)
}
