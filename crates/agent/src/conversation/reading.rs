//! Lists, summaries and histories of stored conversations.

use rockbot_contracts::{
    MessageId, RoutingKey, SessionId, Spending,
    conversation::{ConversationSummary, HistoryItem, MAX_PAGE_ITEMS},
};
use rockbot_store::{LogEntry, LogName, LogState, MAX_PAGE_ENTRIES};
use tracing::debug;

use super::{
    TASK_PREFIXES, codec::decode, conversations::Conversations, entry::ConversationEntry,
    error::ConversationError, history_items::HistoryItems, summary,
};
use crate::history::History;

/// Number of the last entries of a log from which a summary is created, if they suffice.
const SUMMARY_ENTRIES: u64 = 16;
/// Maximum number of logs that [`Conversations::last_active`] compares.
const MAX_COMPARED: usize = 20_000;

/// A message of a user, as recorded.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoredMessage {
    /// Its text; empty for a cancel.
    pub text: String,
    /// The answer of its turn is recorded.
    pub is_answered: bool,
    /// Address of its replies; `None` for a message from within the process.
    pub reply_to: Option<RoutingKey>,
}

impl Conversations {
    /// Returns a page of the conversations, ordered by session id, after the conversation `after`: at most
    /// `limit` and 500. One that cannot be read is listed as unreadable.
    ///
    /// # Errors
    /// When the store fails.
    pub async fn list(
        &self,
        after: Option<&SessionId>,
        limit: usize,
    ) -> Result<Vec<ConversationSummary>, ConversationError> {
        let after = after.map(|session| self.name(session)).transpose()?;
        let page = limit.min(MAX_PAGE_ITEMS as usize);
        let logs = self.inner.log.logs(&self.prefix()?, after.as_ref(), page).await?;
        let mut summaries = Vec::with_capacity(logs.len());
        for state in logs {
            if let Some(session) = session_of(&state.name) {
                summaries.push(self.summarize(session, &state).await?);
            }
        }
        Ok(summaries)
    }

    /// Returns the summary of a conversation; `None` if it does not exist.
    ///
    /// # Errors
    /// When the store fails.
    pub async fn summary(
        &self,
        session: &SessionId,
    ) -> Result<Option<ConversationSummary>, ConversationError> {
        match self.inner.log.state(&self.name(session)?).await? {
            Some(state) => self.summarize(session.clone(), &state).await.map(Some),
            None => Ok(None),
        }
    }

    /// Returns the spending that a conversation recorded so far, with that of its open turn; `None` if it cannot be
    /// read. Reads the whole log.
    pub(crate) async fn spending(&self, session: &SessionId) -> Option<Spending> {
        match self.load(session, History::new(1, usize::MAX)).await {
            Ok((folded, _)) => {
                let open = folded.open.map(|open| open.spent.turn).unwrap_or_default();
                let mut spent = folded.totals.spent;
                spent += open;
                Some(spent)
            }
            Err(error) => {
                debug!(session_id = %session, %error, "spending not read");
                None
            }
        }
    }

    /// Returns the broker user that started a conversation; `None` if it is not known, or the conversation
    /// does not exist.
    ///
    /// # Errors
    /// When the store fails.
    pub(crate) async fn started_by(
        &self,
        session: &SessionId,
    ) -> Result<Option<String>, ConversationError> {
        let name = self.name(session)?;
        let (mut from, mut is_whole, mut first_sender) = (1, false, None::<Option<String>>);
        loop {
            // Usually the first entry suffices.
            let limit = if from == 1 { 1 } else { MAX_PAGE_ENTRIES };
            let page = self.inner.log.read(&name, from, limit).await?;
            let Some(last) = page.last() else { return Ok(first_sender.flatten()) };
            from = last.number + 1;
            for LogEntry { number, value } in page {
                is_whole |= number == 1;
                match decode(&value).map(|recorded| recorded.entry) {
                    Ok(ConversationEntry::Message(message)) if is_whole => {
                        return Ok(message.sender);
                    }
                    Ok(ConversationEntry::Message(message)) => {
                        first_sender.get_or_insert(message.sender);
                    }
                    // The first entries were removed.
                    Ok(ConversationEntry::Checkpoint(checkpoint)) => return Ok(checkpoint.starter),
                    _ => {}
                }
            }
        }
    }

    /// Returns the conversation with the latest entry. Compares at most 20,000 conversations.
    ///
    /// # Errors
    /// When the store fails.
    pub async fn last_active(&self) -> Result<Option<SessionId>, ConversationError> {
        let prefix = self.prefix()?;
        let (mut latest, mut after, mut compared) = (None::<LogState>, None, 0);
        while compared < MAX_COMPARED {
            let page = self.inner.log.logs(&prefix, after.as_ref(), MAX_PAGE_ENTRIES).await?;
            let Some(last) = page.last() else { break };
            after = Some(last.name.clone());
            compared += page.len();
            // Users continue the conversation that started a sub-agent, not that of the sub-agent.
            let own = page.into_iter().filter(|state| !is_of_task(&state.name));
            latest = latest.into_iter().chain(own).max_by_key(|state| state.appended_at);
        }
        Ok(latest.and_then(|state| session_of(&state.name)))
    }

    /// Returns what was recorded in a conversation, oldest first, from the entry `from` on: at most `limit`
    /// and 500 items, and up to about 1 MiB of text. A page with fewer items may not be the last: the next
    /// one starts after the number of its last item. Entries that cannot be read are items of an unknown
    /// kind.
    ///
    /// # Errors
    /// [`ConversationError::NotFound`]; also when the store fails.
    pub async fn history(
        &self,
        session: &SessionId,
        from: u64,
        limit: usize,
    ) -> Result<Vec<HistoryItem>, ConversationError> {
        let name = self.name(session)?;
        let mut items = HistoryItems::new(limit.min(MAX_PAGE_ITEMS as usize));
        let mut number = from.max(1);
        while !items.is_full() {
            let page = self.inner.log.read(&name, number, items.remaining()).await?;
            let Some(last) = page.last() else { break };
            number = last.number + 1;
            for LogEntry { number, value } in page {
                items.push(number, decode(&value));
            }
        }
        let items = items.finish();
        if items.is_empty() && self.inner.log.state(&name).await?.is_none() {
            return Err(self.not_found(session));
        }
        Ok(items)
    }

    /// Returns a recorded message; `None` if the conversation has none with this id.
    ///
    /// # Errors
    /// When the store fails, or the conversation cannot be read.
    pub async fn message(
        &self,
        session: &SessionId,
        id: &MessageId,
    ) -> Result<Option<StoredMessage>, ConversationError> {
        let mut found = None::<StoredMessage>;
        self.read_entries(session, |_, recorded| {
            let (text, reply_to) = match recorded.entry {
                ConversationEntry::Message(message) if message.id == *id => {
                    (message.text, message.reply_to)
                }
                ConversationEntry::Steer(steer) if steer.id == *id => (steer.text, steer.reply_to),
                ConversationEntry::Cancel(cancel) if cancel.id == *id => {
                    (String::new(), cancel.reply_to)
                }
                ConversationEntry::Answer(_) => {
                    if let Some(message) = &mut found {
                        message.is_answered = true;
                    }
                    return;
                }
                _ => return,
            };
            found = Some(StoredMessage { text, is_answered: false, reply_to });
        })
        .await?;
        Ok(found)
    }

    async fn summarize(
        &self,
        session: SessionId,
        state: &LogState,
    ) -> Result<ConversationSummary, ConversationError> {
        let from = state.next.saturating_sub(SUMMARY_ENTRIES).max(state.first);
        let page = self.inner.log.read(&state.name, from, MAX_PAGE_ENTRIES).await?;
        let decoded = page.iter().map(|entry| decode(&entry.value)).collect::<Result<Vec<_>, _>>();
        let last_active = state.appended_at;
        let Ok(entries) = decoded else {
            return Ok(summary::unreadable(session, last_active));
        };
        if let Some(known) = summary::from_end(&session, &entries, from == 1, last_active) {
            return Ok(known);
        }
        match self.load(&session, History::new(1, usize::MAX)).await {
            Ok((folded, _)) => Ok(summary::from_fold(session, &folded, last_active)),
            Err(error) if error.is_unreadable() => Ok(summary::unreadable(session, last_active)),
            Err(error) => Err(error),
        }
    }
}

fn session_of(name: &LogName) -> Option<SessionId> {
    SessionId::new(name.segments().next_back()?).ok()
}

/// Returns `true` for the log of delegated work.
fn is_of_task(name: &LogName) -> bool {
    let is_task = |session: String| TASK_PREFIXES.iter().any(|prefix| session.starts_with(prefix));
    name.segments().nth(2).is_some_and(is_task)
}
