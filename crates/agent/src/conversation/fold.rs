//! Folding of a log into the state of its conversation.

use std::collections::{HashMap, HashSet};

use rockbot_contracts::{MessageId, RoutingKey, Spending};
use rockbot_llm::ChatMessage;
use sha2::{Digest, Sha256};

use super::{
    entry::{
        AnswerEntry, CallEntry, ConversationEntry, DecisionEntry, MessageEntry, RecordedEntry,
    },
    latest_cancel::LatestCancel,
    mcp_use::McpUse,
    open_turn::{OpenStep, OpenTurn, RecordedOutcome},
};
use crate::{history::History, message_media::media_message};

/// Longest title in characters, without the ellipsis.
const TITLE_CHARS: usize = 60;
/// Stands in for the answer of a turn that never got one before the next turn started.
const NO_ANSWER: &str = "(no answer)";

/// The state of a conversation.
#[derive(Debug)]
pub(crate) struct Folded {
    /// The messages for the model, without those of [`OpenTurn::step`]. Their tokens are not counted.
    pub(crate) history: History,
    pub(crate) totals: Totals,
    /// Tools and fingerprints that a user allowed for the whole conversation.
    pub(crate) allowed: HashSet<(String, String)>,
    /// All recorded messages by id, including cancels, which have an empty text.
    pub(crate) messages: HashMap<MessageId, KnownMessage>,
    /// Numbers of the entries that started turns.
    pub(crate) turn_starts: Vec<u64>,
    pub(crate) open: Option<OpenTurn>,
    /// Broker user that started the conversation, if known.
    pub(crate) starter: Option<String>,
    /// Tools of MCP servers that were found or called, and the servers that were called.
    pub(crate) mcp: McpUse,
    pub(crate) latest_cancel: LatestCancel,
    /// For each checkpoint, the number of the first entry that it keeps.
    kept_from: Vec<u64>,
}

/// Totals of a conversation.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Totals {
    /// Spending of its answered turns.
    pub(crate) spent: Spending,
    /// Number of its turns.
    pub(crate) turns: u64,
    pub(crate) title: String,
    /// Time of its first message in Unix milliseconds.
    pub(crate) created: u64,
    /// Spending and delegations of the turns that ended since the last user message, which share its budget.
    pub(crate) since_user: BudgetUse,
}

/// Use of a budget.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct BudgetUse {
    pub(crate) spent: Spending,
    pub(crate) delegations: u64,
}

/// A recorded message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct KnownMessage {
    /// Digest of its text.
    pub(crate) digest: TextDigest,
    pub(crate) reply_to: Option<RoutingKey>,
    /// Number of the entry with its answer.
    pub(crate) answer: Option<u64>,
}

impl KnownMessage {
    /// Creates a message without an answer.
    pub(crate) fn new(text: &str, reply_to: Option<RoutingKey>) -> Self {
        Self { digest: digest(text), reply_to, answer: None }
    }
}

/// Digest of a message's text.
pub(crate) type TextDigest = [u8; 16];

/// Returns a digest of a message's text.
pub(crate) fn digest(text: &str) -> TextDigest {
    let mut short = [0; 16];
    short.copy_from_slice(&Sha256::digest(text)[..16]);
    short
}

impl Totals {
    /// Counts a turn that starts with `message`.
    pub(crate) fn turn_started(&mut self, message: &MessageEntry, at: u64) {
        if self.turns == 0 {
            self.title = title(&message.text);
            self.created = at;
        }
        self.turns += 1;
        if message.task_results.is_none() {
            self.since_user = BudgetUse::default();
        }
    }

    /// Adds what a turn used of the budget of its message.
    pub(crate) fn turn_ended(&mut self, spent: Spending, delegations: u64) {
        self.since_user.spent += spent;
        self.since_user.delegations += delegations;
    }
}

/// Returns the first words of a text, in one line. Ends in an ellipsis if the text is longer.
fn title(text: &str) -> String {
    let mut title = String::new();
    let mut length = 0;
    for word in text.split_whitespace() {
        let word: Vec<char> =
            word.chars().filter(|one| !one.is_control()).take(TITLE_CHARS + 1).collect();
        if word.is_empty() {
            continue;
        }
        if length == 0 {
            title.extend(word.iter().take(TITLE_CHARS));
            if word.len() > TITLE_CHARS {
                title.push('…');
                break;
            }
            length = word.len();
            continue;
        }
        length += 1 + word.len();
        if length > TITLE_CHARS {
            title.push('…');
            break;
        }
        title.push(' ');
        title.extend(word);
    }
    title
}

impl Folded {
    /// Creates the state of a conversation without entries.
    pub(crate) fn new(history: History) -> Self {
        Self {
            history,
            totals: Totals::default(),
            allowed: HashSet::new(),
            messages: HashMap::new(),
            turn_starts: Vec::new(),
            open: None,
            starter: None,
            mcp: McpUse::default(),
            latest_cancel: LatestCancel::default(),
            kept_from: Vec::new(),
        }
    }

    /// Returns `true` if no entry below `first` is missing, or if a checkpoint covers the missing ones.
    pub(crate) fn is_complete_from(&self, first: u64) -> bool {
        first <= 1 || self.kept_from.iter().any(|from| *from >= first)
    }

    /// Applies the next entry.
    pub(crate) fn apply(&mut self, number: u64, recorded: RecordedEntry) {
        let RecordedEntry { at, entry, .. } = recorded;
        if let Some(open) = &mut self.open {
            match &entry {
                // It may come from a process that does not run the turn.
                ConversationEntry::Feedback(_) => {}
                ConversationEntry::Takeover(takeover) if !takeover.is_active => {
                    open.runs_again_from(at);
                }
                _ => open.ran_until(at),
            }
        }
        match entry {
            ConversationEntry::Message(message) => self.turn_started(number, at, *message),
            ConversationEntry::Model(mut model) => {
                self.close_step(model.context.take());
                self.add_mcp_tools(&model.calls);
                if let Some(open) = &mut self.open {
                    open.model_answered(model);
                    open.record_progress();
                }
            }
            ConversationEntry::Result(mut result) => {
                self.mcp.add(result.mcp.take().map(|used| *used).unwrap_or_default());
                if let Some(open) = &mut self.open
                    && open.call_finished(result)
                {
                    open.record_progress();
                }
            }
            ConversationEntry::Steer(steer) => {
                self.close_step(steer.context);
                self.add_message(steer.id, &steer.text, steer.reply_to);
                if let Some(open) = &mut self.open {
                    open.user_texts.push(steer.text.clone());
                    open.record_activity();
                }
                self.history.push(ChatMessage::User(steer.text), 0);
                if let Some(media) = media_message(&steer.media) {
                    self.history.push(media, 0);
                }
            }
            ConversationEntry::Cancel(cancel) => {
                self.latest_cancel.record(&cancel.id, at);
                self.add_message(cancel.id, "", cancel.reply_to);
                if let Some(open) = &mut self.open {
                    open.is_cancelled = true;
                    open.record_activity();
                }
            }
            ConversationEntry::ApprovalRequest(request) => {
                if let Some(open) = &mut self.open {
                    open.approval_requested(request);
                    open.record_activity();
                }
            }
            ConversationEntry::Decision(decision) => self.decided(decision),
            ConversationEntry::Answer(answer) => self.answered(number, *answer),
            ConversationEntry::Checkpoint(checkpoint) => {
                self.kept_from.push(checkpoint.from);
                self.allowed.extend(checkpoint.allowed);
                // The first message may have been removed, and later ones may have other senders.
                self.starter = checkpoint.starter;
                let (title, created) = (checkpoint.title, checkpoint.created);
                let since_user = self.totals.since_user;
                let (spent, turns) = (checkpoint.spent, checkpoint.turns);
                self.totals = Totals { spent, turns, title, created, since_user };
            }
            ConversationEntry::Takeover(takeover) => match &mut self.open {
                Some(open) if takeover.is_active => open.record_activity(),
                Some(open) => open.taken_over(takeover.attempt),
                None => {}
            },
            ConversationEntry::Released(_) => {
                if let Some(open) = &mut self.open {
                    open.released();
                }
            }
            ConversationEntry::Feedback(_) => {}
        }
    }

    fn turn_started(&mut self, number: u64, at: u64, message: MessageEntry) {
        if self.open.is_some() {
            self.close_step(None);
            let text = NO_ANSWER.to_owned();
            self.history.push(ChatMessage::Assistant { text, tool_calls: Vec::new() }, 0);
        }
        self.history.fit();
        self.totals.turn_started(&message, at);
        if self.turn_starts.is_empty() {
            self.starter.clone_from(&message.sender);
        }
        self.turn_starts.push(number);
        let known = KnownMessage::new(&message.text, message.reply_to.clone());
        self.messages.insert(message.id.clone(), known);
        self.open = Some(OpenTurn::at(message, at));
    }

    /// Moves the rest of the turn to the history: its message with `context`, and the completed step.
    fn close_step(&mut self, context: Option<String>) {
        let Some(open) = &mut self.open else { return };
        if !open.is_started {
            open.is_started = true;
            let text = with_context(&open.message.text, context);
            self.history.push(ChatMessage::User(text), 0);
            if let Some(media) = media_message(&open.message.media) {
                self.history.push(media, 0);
            }
        }
        for message in open.step.take().into_iter().flat_map(OpenStep::into_messages) {
            self.history.push(message, 0);
        }
    }

    fn add_mcp_tools(&mut self, calls: &[CallEntry]) {
        for target in calls.iter().filter_map(CallEntry::mcp_target) {
            self.mcp.add_tool(target.clone());
            self.mcp.add_server(target.0.clone());
        }
    }

    fn add_message(&mut self, id: MessageId, text: &str, reply_to: Option<RoutingKey>) {
        if let Some(open) = &mut self.open {
            open.ids.push(id.clone());
            self.messages.insert(id, KnownMessage::new(text, reply_to));
        }
    }

    fn decided(&mut self, decision: DecisionEntry) {
        self.allowed.extend(decision.allowed);
        let Some(open) = &mut self.open else { return };
        open.record_progress();
        let approval = open.approvals.values_mut().find(|known| known.id == decision.approval);
        if let Some(approval) = approval {
            approval.outcome =
                decision.decision.map_or(RecordedOutcome::Expired, RecordedOutcome::Decided);
        }
    }

    fn answered(&mut self, number: u64, mut answer: AnswerEntry) {
        self.close_step(answer.context.take());
        let open = self.open.take();
        let delegations = open.as_ref().map_or(0, |open| open.delegations);
        for id in open.map(|open| open.ids).unwrap_or_default() {
            if let Some(message) = self.messages.get_mut(&id) {
                message.answer = Some(number);
            }
        }
        let text = answer.history_text().to_owned();
        self.history.push(ChatMessage::Assistant { text, tool_calls: Vec::new() }, 0);
        let AnswerEntry { usage, turns, title, created, .. } = answer;
        let since_user = self.totals.since_user;
        self.totals = Totals { spent: usage.session, turns, title, created, since_user };
        self.totals.turn_ended(usage.turn, delegations);
    }
}

/// Returns the message as the model reads it.
pub(crate) fn with_context(text: &str, context: Option<String>) -> String {
    match context {
        Some(context) => format!("{text}\n\n{context}"),
        None => text.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shortened_title_ends_in_an_ellipsis() {
        let longest = "x".repeat(TITLE_CHARS);
        assert_eq!(title(&longest), longest);
        assert_eq!(title(&format!("{longest}x")), format!("{longest}…"));
        assert_eq!(title(&format!("{longest} y")), format!("{longest}…"));
        assert_eq!(title(" one\ttwo\u{7}\n\u{7} three "), "one two three");
    }
}
