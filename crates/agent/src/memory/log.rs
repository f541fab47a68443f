//! What was said to an agent and what it answered, for a while, and the search over it.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use rockbot_contracts::{AgentName, SessionId, ToolCallId};
use rockbot_memory::{Ranker, excerpt};
use rockbot_store::{Expected, Shelf, ShelfError, Store};
use rockbot_tools::{Tool, ToolContext, ToolFailure, ToolHints, ToolResult, ToolSource};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use tokio::{task::spawn_blocking, time::timeout};
use tracing::warn;

use super::recall::moment;
use crate::own_tool::{Definition, OwnTool, read};

/// The longest text that is kept of one message, in bytes.
const MOST_BYTES: usize = 8 * 1024;
/// Most messages of an agent: older ones go.
const MOST: usize = 2000;
/// How many turns are kept until what is too much is looked for.
const TURNS_UNTIL_TIDY: usize = 50;
/// Most messages that are removed at once.
const REMOVED_AT_ONCE: usize = 500;
/// How long a turn waits for the log.
const PATIENCE: Duration = Duration::from_secs(2);
const HITS: usize = 5;
const MOST_HITS: usize = 20;
const EXCERPT_CHARS: usize = 400;

/// What was said, by agent, for a time.
///
/// A message over 8 KiB is kept up to there, and about the newest 2,000 messages of an agent. Each
/// agent searches its own conversations only.
pub struct ConversationLog {
    store: Arc<dyn Store>,
    keep: Duration,
    /// Turns of each agent since this process began.
    turns: Mutex<HashMap<AgentName, usize>>,
}

/// One message.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Message {
    session: String,
    by: Speaker,
    text: String,
    /// In milliseconds since the Unix epoch.
    at: i64,
}

/// Who said something.
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
    /// A log in this store, of what was said within the last `keep`.
    #[must_use]
    pub fn new(store: Arc<dyn Store>, keep: Duration) -> Self {
        Self { store, keep, turns: Mutex::default() }
    }

    /// Keeps what a person said in a turn and what the agent answered. A store that fails or is
    /// slow costs the entry, and two seconds at most.
    pub async fn keep(
        &self,
        agent: &AgentName,
        session: &SessionId,
        said: &[String],
        answer: &str,
    ) {
        let kept = timeout(PATIENCE, self.write(agent, session, said, answer)).await;
        match kept {
            Ok(Ok(())) => {}
            Ok(Err(error)) => warn!(%error, "a turn is missing in the log of conversations"),
            Err(_) => warn!(?PATIENCE, "a turn may be missing in the log of conversations"),
        }
    }

    async fn write(
        &self,
        agent: &AgentName,
        session: &SessionId,
        said: &[String],
        answer: &str,
    ) -> Result<(), ShelfError> {
        let at = self.store.now().await?.as_millis();
        let said = said.iter().map(|text| (Speaker::User, text.as_str()));
        let shelf = self.shelf(agent);
        for (by, text) in said.chain([(Speaker::Assistant, answer)]) {
            let text = text[..text.floor_char_boundary(MOST_BYTES)].to_owned();
            let message = Message { session: session.to_string(), by, text, at };
            let name = name_of(at, &ToolCallId::generate());
            shelf.put(&[name], &message, Some(self.keep), Expected::Absent).await?;
        }
        if self.is_time_to_tidy(agent) {
            tidy(&shelf).await?;
        }
        Ok(())
    }

    fn is_time_to_tidy(&self, agent: &AgentName) -> bool {
        let mut turns = self.turns.lock().unwrap_or_else(PoisonError::into_inner);
        let turns = turns.entry(agent.clone()).or_default();
        *turns += 1;
        *turns % TURNS_UNTIL_TIDY == 1
    }

    pub(super) fn tools(self: &Arc<Self>) -> Vec<Arc<dyn Tool>> {
        let definition = Definition {
            name: "search_conversation_history",
            description: "Search what was said in this and earlier conversations with you.",
            arguments: json!({"query": {"type": "string", "minLength": 1, "maxLength": 500},
                "this_conversation": {"type": "boolean",
                    "description": "Whether only this conversation is searched."},
                "max_results": {"type": "integer", "minimum": 1, "maximum": MOST_HITS}}),
            required: &["query"],
            source: ToolSource::Memory,
            hints: ToolHints::READ_ONLY,
        };
        vec![OwnTool::over(self, definition, |log, arguments, context| {
            Box::pin(log.search(arguments, context))
        })]
    }

    async fn search(
        &self,
        arguments: Value,
        context: &ToolContext,
    ) -> Result<ToolResult, ToolFailure> {
        let Arguments { query, this_conversation, max_results } = read(arguments)?;
        let most = max_results.unwrap_or(HITS).min(MOST_HITS);
        let own = context.session_id.as_str();
        let messages = self.shelf(&context.agent).list::<&str>(&[], MOST).await?;
        let messages: Vec<_> = messages
            .into_iter()
            .map(|(_, message)| message.value)
            .filter(|message| !this_conversation || message.session == own)
            .collect();
        let asked = query.clone();
        // Megabytes may be read for their words.
        let ranked = spawn_blocking(move || {
            let found = Ranker::over(messages.iter().map(|message| &message.text));
            let found = found.search(&asked, most).into_iter();
            found.map(|hit| messages[hit.text].clone()).collect::<Vec<_>>()
        });
        let found = ranked
            .await
            .map_err(|error| ToolFailure::failed_with_source("the search broke off", error))?;
        if found.is_empty() {
            return Ok(ToolResult::text("Nothing that was said fits. Try other words."));
        }
        let lines = found.iter().map(|message| {
            let Message { session, by, text, at } = message;
            let by = if *by == Speaker::User { "the user" } else { "you" };
            let place = if session == own { "here" } else { "in another conversation" };
            let at = moment(*at, "%Y-%m-%d %H:%M UTC");
            format!("- {at}, {by} {place}: {}", excerpt(text, &query, EXCERPT_CHARS))
        });
        Ok(ToolResult::text(lines.collect::<Vec<_>>().join("\n")))
    }

    fn shelf(&self, agent: &AgentName) -> Shelf<Message> {
        Shelf::new(self.store.clone(), ["conversations", agent.as_str()])
    }
}

/// Removes the oldest messages where there are too many.
async fn tidy(shelf: &Shelf<Message>) -> Result<(), ShelfError> {
    let messages = shelf.list::<&str>(&[], MOST + REMOVED_AT_ONCE).await?;
    for (name, _) in messages.iter().skip(MOST) {
        shelf.remove(name, Expected::Anything).await?;
    }
    Ok(())
}

/// The name of a message, so that the newest ones are listed first.
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
    fn each_agents_log_is_tidied_whoever_else_talks() {
        let store = Arc::new(MemoryStore::new(Clock::System));
        let log = ConversationLog::new(store, Duration::from_secs(60));
        let [one, two] = ["one", "two"].map(|name| AgentName::new(name).unwrap());
        for agent in [&one, &two] {
            assert!(log.is_time_to_tidy(agent));
        }
        for _ in 1..TURNS_UNTIL_TIDY {
            assert!(!log.is_time_to_tidy(&one) && !log.is_time_to_tidy(&two));
        }
        assert!(log.is_time_to_tidy(&one) && log.is_time_to_tidy(&two));
    }

    #[tokio::test]
    async fn the_oldest_messages_go_when_there_are_too_many() {
        let store = Arc::new(MemoryStore::new(Clock::System));
        let log = ConversationLog::new(store, Duration::from_secs(60));
        let agent = AgentName::new("tester").unwrap();
        let shelf = log.shelf(&agent);
        for at in 0..MOST as i64 + 100 {
            let message =
                Message { session: "s".to_owned(), by: Speaker::User, text: at.to_string(), at };
            let name = name_of(at, &ToolCallId::generate());
            shelf.put(&[name], &message, None, Expected::Absent).await.unwrap();
        }
        log.keep(&agent, &SessionId::generate(), &["hello".to_owned()], "hi").await;
        let left = shelf.list::<&str>(&[], usize::MAX).await.unwrap();
        assert_eq!(left.len(), MOST);
        // The two of the turn are the newest, and 102 of the others had to go.
        assert_eq!(left.last().unwrap().1.value.text, "102");
    }
}
