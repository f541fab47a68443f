//! The searchable history of conversations.

use std::{collections::HashMap, sync::Arc, time::Duration};

use parking_lot::Mutex;

use rockbot_contracts::{AgentName, SessionId, ToolCallId};
use rockbot_memory::{Ranker, excerpt};
use rockbot_store::{DocumentError, DocumentStore, Expected, Store};
use rockbot_tools::{Tool, ToolContext, ToolFailure, ToolHints, ToolResult, ToolSource};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use tokio::{task::spawn_blocking, time::timeout};
use tracing::warn;

use super::recall::format_utc;
use crate::builtin_tool::{BuiltinDefinition, BuiltinTool, parse_arguments};

/// Longest stored text of a message, in bytes.
const MAX_BYTES: usize = 8 * 1024;
/// Maximum number of messages of an agent; the oldest are removed.
const MAX_ENTRIES: usize = 2000;
/// Turns of an agent between two trims.
const TURNS_PER_TRIM: usize = 50;
/// Maximum number of messages removed at once.
const TRIM_BATCH: usize = 500;
/// Time limit of a write, since the turn waits for it.
const WRITE_TIMEOUT: Duration = Duration::from_secs(2);
const DEFAULT_HITS: usize = 5;
const MAX_HITS: usize = 20;
const EXCERPT_CHARS: usize = 400;

/// The messages of conversations, by agent, for a limited time.
///
/// Messages are truncated to 8 KiB, and about the newest 2,000 messages of an agent are kept. An agent can
/// search only its own conversations.
pub struct ConversationLog {
    store: Arc<dyn Store>,
    keep: Duration,
    /// Turns of each agent since the start of the process.
    turns: Mutex<HashMap<AgentName, usize>>,
}

/// A stored message.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Message {
    session: String,
    by: Speaker,
    text: String,
    /// In milliseconds since the Unix epoch.
    at: i64,
}

/// The author of a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Speaker {
    User,
    Assistant,
}

#[derive(Debug, Deserialize)]
struct Arguments {
    query: String,
    #[serde(default)]
    this_conversation: bool,
    max_results: Option<usize>,
}

impl ConversationLog {
    /// Creates a log in this store that keeps messages for `keep`.
    #[must_use]
    pub fn new(store: Arc<dyn Store>, keep: Duration) -> Self {
        Self { store, keep, turns: Mutex::default() }
    }

    /// Stores the user messages and the answer of a turn. If the store fails or needs more than two
    /// seconds, the turn is not stored.
    pub async fn record(
        &self,
        agent: &AgentName,
        session: &SessionId,
        user_texts: &[String],
        answer: &str,
    ) {
        let kept = timeout(WRITE_TIMEOUT, self.write(agent, session, user_texts, answer)).await;
        match kept {
            Ok(Ok(())) => {}
            Ok(Err(error)) => warn!(%error, "storing a turn failed"),
            Err(_) => warn!(?WRITE_TIMEOUT, "storing a turn timed out"),
        }
    }

    async fn write(
        &self,
        agent: &AgentName,
        session: &SessionId,
        user_texts: &[String],
        answer: &str,
    ) -> Result<(), DocumentError> {
        let at = self.store.now().await?.as_millis();
        let user_texts = user_texts.iter().map(|text| (Speaker::User, text.as_str()));
        let shelf = self.shelf(agent);
        for (by, text) in user_texts.chain([(Speaker::Assistant, answer)]) {
            let text = text[..text.floor_char_boundary(MAX_BYTES)].to_owned();
            let message = Message { session: session.to_string(), by, text, at };
            let name = name_of(at, &ToolCallId::generate());
            shelf.put(&[name], &message, Some(self.keep), Expected::Absent).await?;
        }
        if self.is_trim_due(agent) {
            trim(&shelf).await?;
        }
        Ok(())
    }

    fn is_trim_due(&self, agent: &AgentName) -> bool {
        let mut turns = self.turns.lock();
        let turns = turns.entry(agent.clone()).or_default();
        *turns += 1;
        *turns % TURNS_PER_TRIM == 1
    }

    pub(super) fn tools(self: &Arc<Self>) -> Vec<Arc<dyn Tool>> {
        let definition = BuiltinDefinition {
            name: "search_conversation_history",
            description: "Search the messages of this and earlier conversations.",
            arguments: json!({"query": {"type": "string", "minLength": 1, "maxLength": 500},
                "this_conversation": {"type": "boolean",
                    "description": "Search only this conversation."},
                "max_results": {"type": "integer", "minimum": 1, "maximum": MAX_HITS}}),
            required: &["query"],
            source: ToolSource::Memory,
            hints: ToolHints::READ_ONLY,
        };
        vec![BuiltinTool::create(self, definition, |log, arguments, context| {
            Box::pin(log.search(arguments, context))
        })]
    }

    async fn search(
        &self,
        arguments: Value,
        context: &ToolContext,
    ) -> Result<ToolResult, ToolFailure> {
        let Arguments { query, this_conversation, max_results } = parse_arguments(arguments)?;
        let most = max_results.unwrap_or(DEFAULT_HITS).min(MAX_HITS);
        let own = context.session_id.as_str();
        let messages = self.shelf(&context.agent).list::<&str>(&[], MAX_ENTRIES).await?;
        let messages: Vec<_> = messages
            .into_iter()
            .map(|(_, message)| message.value)
            .filter(|message| !this_conversation || message.session == own)
            .collect();
        let searched = query.clone();
        // Ranking may read megabytes.
        let ranked = spawn_blocking(move || {
            let found = Ranker::from_texts(messages.iter().map(|message| &message.text));
            let found = found.search(&searched, most).into_iter();
            found.map(|hit| messages[hit.text].clone()).collect::<Vec<_>>()
        });
        let found = ranked
            .await
            .map_err(|error| ToolFailure::failed_with_source("the search failed", error))?;
        if found.is_empty() {
            return Ok(ToolResult::text("No message matches. Try other keywords."));
        }
        let lines = found.iter().map(|message| {
            let Message { session, by, text, at } = message;
            let by = if *by == Speaker::User { "the user" } else { "you" };
            let place = if session == own { "here" } else { "in another conversation" };
            let at = format_utc(*at, "%Y-%m-%d %H:%M UTC");
            format!("- {at}, {by} {place}: {}", excerpt(text, &query, EXCERPT_CHARS))
        });
        Ok(ToolResult::text(lines.collect::<Vec<_>>().join("\n")))
    }

    fn shelf(&self, agent: &AgentName) -> DocumentStore<Message> {
        DocumentStore::new(self.store.clone(), ["conversations", agent.as_str()])
    }
}

/// Removes the oldest messages above the limit.
async fn trim(shelf: &DocumentStore<Message>) -> Result<(), DocumentError> {
    let messages = shelf.list::<&str>(&[], MAX_ENTRIES + TRIM_BATCH).await?;
    for (name, _) in messages.iter().skip(MAX_ENTRIES) {
        shelf.remove(name, Expected::Anything).await?;
    }
    Ok(())
}

/// Returns the name of a message. Newer messages sort first.
fn name_of(at: i64, id: &ToolCallId) -> String {
    format!("{:019}-{id}", i64::MAX.saturating_sub(at))
}

impl std::fmt::Debug for ConversationLog {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ConversationLog").field("keep", &self.keep).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use rockbot_store::{Clock, MemoryStore};

    use super::*;

    #[test]
    fn trim_is_due_per_agent() {
        let store = Arc::new(MemoryStore::new(Clock::System));
        let log = ConversationLog::new(store, Duration::from_secs(60));
        let [one, two] = ["one", "two"].map(|name| AgentName::new(name).unwrap());
        for agent in [&one, &two] {
            assert!(log.is_trim_due(agent));
        }
        for _ in 1..TURNS_PER_TRIM {
            assert!(!log.is_trim_due(&one) && !log.is_trim_due(&two));
        }
        assert!(log.is_trim_due(&one) && log.is_trim_due(&two));
    }

    #[tokio::test]
    async fn oldest_messages_are_removed_above_limit() {
        let store = Arc::new(MemoryStore::new(Clock::System));
        let log = ConversationLog::new(store, Duration::from_secs(60));
        let agent = AgentName::new("tester").unwrap();
        let shelf = log.shelf(&agent);
        for at in 0..MAX_ENTRIES as i64 + 100 {
            let message =
                Message { session: "s".to_owned(), by: Speaker::User, text: at.to_string(), at };
            let name = name_of(at, &ToolCallId::generate());
            shelf.put(&[name], &message, None, Expected::Absent).await.unwrap();
        }
        log.record(&agent, &SessionId::generate(), &["hello".to_owned()], "hi").await;
        let left = shelf.list::<&str>(&[], usize::MAX).await.unwrap();
        assert_eq!(left.len(), MAX_ENTRIES);
        // The turn added two messages, so 102 older ones were removed.
        assert_eq!(left.last().unwrap().1.value.text, "102");
    }
}
