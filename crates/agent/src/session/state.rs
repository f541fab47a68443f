//! The state of a conversation in this process.

use std::{collections::HashMap, sync::Arc};

use rockbot_contracts::{MessageId, SessionId};

use crate::{
    conversation::{
        CheckpointEntry, ConversationEntry, ConversationError, Folded, KnownMessage, LatestCancel,
        MessageEntry, OpenTurn, Recorder, TakeoverEntry, Totals, digest,
    },
    history::History,
    message::PendingMessage,
    turn::TurnSetup,
};

/// The state of a conversation: folded from its log, and continued by this process.
pub(super) struct SessionState {
    pub(super) recorder: Arc<Recorder>,
    pub(super) history: History,
    pub(super) totals: Totals,
    /// The turn that has no answer and does not run in this process.
    pub(super) open: Option<OpenTurn>,
    /// The recorded messages of users.
    pub(super) messages: HashMap<MessageId, KnownMessage>,
    turn_starts: Vec<u64>,
    /// Broker user that started the conversation, if known.
    pub(super) starter: Option<String>,
    /// The last cancel before this process continued the conversation.
    pub(super) latest_cancel: LatestCancel,
}

/// State of a message that arrives.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Standing {
    /// It is not recorded.
    New,
    /// It is not recorded, and was sent before a recorded cancel.
    Cancelled,
    /// It belongs to the turn that has no answer.
    Open,
    /// Its answer is the entry of this number.
    Answered(u64),
    /// Another message with its id is recorded.
    OtherText,
}

/// Returns `true` if a message is of another broker user than the one that started its conversation.
pub(super) fn is_foreign(starter: Option<&str>, message: &PendingMessage) -> bool {
    starter.zip(message.origin.sender.as_deref()).is_some_and(|(starter, sender)| starter != sender)
}

impl SessionState {
    /// Reads the log of a conversation.
    pub(super) async fn load(
        setup: &TurnSetup,
        session: &SessionId,
    ) -> Result<Self, ConversationError> {
        let history = History::new(setup.limits.history_messages, setup.limits.history_bytes);
        let (folded, next) = setup.conversations.load(session, history).await?;
        let Folded { mut history, totals, allowed, messages, turn_starts, open, .. } = folded;
        let Folded { starter, latest_cancel, mcp, .. } = folded;
        setup.restore_mcp_tools(session, &mcp);
        setup.recount(&mut history).await;
        if let Some(approvals) = &setup.approvals {
            approvals.restore(session, allowed);
        }
        let recorder = Arc::new(setup.conversations.recorder(session, next)?);
        Ok(Self { recorder, history, totals, open, messages, turn_starts, starter, latest_cancel })
    }

    /// Returns the state of a message.
    pub(super) fn standing(&self, message: &PendingMessage) -> Standing {
        match self.messages.get(&message.id) {
            None if self.latest_cancel.covers(&message.id) => Standing::Cancelled,
            None => Standing::New,
            Some(known) if known.digest != digest(&message.text) => Standing::OtherText,
            Some(KnownMessage { answer: Some(number), .. }) => Standing::Answered(*number),
            Some(_) => Standing::Open,
        }
    }

    /// Records the message that starts a turn.
    pub(super) async fn begin_turn(
        &mut self,
        message: MessageEntry,
    ) -> Result<OpenTurn, ConversationError> {
        let mut entry = ConversationEntry::Message(Box::new(message.clone()));
        let number = self.recorder.record(&mut entry).await?;
        if self.turn_starts.is_empty() {
            self.starter.clone_from(&message.sender);
        }
        let open = OpenTurn::starting(message);
        self.totals.turn_started(&open.message, open.started);
        self.turn_starts.push(number);
        let known = KnownMessage::new(&open.message.text, open.message.reply_to.clone());
        self.messages.insert(open.message.id.clone(), known);
        Ok(open)
    }

    /// Records that this process continues the open turn.
    pub(super) async fn take_over(
        &mut self,
        setup: &TurnSetup,
    ) -> Result<Option<OpenTurn>, ConversationError> {
        let Some(mut open) = self.open.take() else { return Ok(None) };
        let attempt = open.attempt.saturating_add(1);
        let instance = setup.conversations.instance().clone();
        let takeover = TakeoverEntry { instance, attempt, is_active: false };
        self.recorder.record(&mut ConversationEntry::Takeover(takeover)).await?;
        open.taken_over(attempt);
        Ok(Some(open))
    }

    /// Adds the answer of a turn to the messages that it answers.
    pub(super) fn answered<'a>(
        &mut self,
        recorded: impl IntoIterator<Item = &'a MessageId>,
        joined: &'a [PendingMessage],
        number: u64,
    ) {
        for message in joined {
            let known = KnownMessage::new(&message.text, message.origin.reply_to.clone());
            self.messages.entry(message.id.clone()).or_insert(known);
        }
        for id in recorded.into_iter().chain(joined.iter().map(|message| &message.id)) {
            if let Some(known) = self.messages.get_mut(id) {
                known.answer = Some(number);
            }
        }
    }

    /// Records a checkpoint, and removes the entries that the history does not need.
    pub(super) async fn checkpoint(
        &mut self,
        setup: &TurnSetup,
        session: &SessionId,
    ) -> Result<(), ConversationError> {
        // Each turn has at least one user message.
        let kept = self.history.user_texts().count().clamp(1, self.turn_starts.len().max(1));
        let Some(from) = self.turn_starts.iter().rev().nth(kept - 1).copied() else {
            return Ok(());
        };
        let allowed = setup.approvals.as_ref().map(|approvals| approvals.allowed(session));
        let Totals { spent, turns, title, created, .. } = self.totals.clone();
        let allowed = allowed.unwrap_or_default();
        let starter = self.starter.clone();
        let entry = CheckpointEntry { from, allowed, starter, spent, turns, title, created };
        self.recorder.record(&mut ConversationEntry::Checkpoint(Box::new(entry))).await?;
        setup.delete_sub_conversations(session, from).await?;
        setup.conversations.truncate(session, from).await?;
        self.turn_starts.retain(|start| *start >= from);
        self.messages.retain(|_, known| known.answer.is_none_or(|number| number >= from));
        Ok(())
    }
}
