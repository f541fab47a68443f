//! Work whose result no turn has read yet: the budget of the turns before that is not theirs alone.

use rockbot_contracts::{MessageId, SessionId, Spending, TaskId, TaskState};
use rockbot_tools::{Budget, BudgetLimits};

use super::{record::TaskRecord, tasks::Delegation};
use crate::conversation::ConversationError;

/// The part of a budget that work needs whose result was not read yet.
#[derive(Debug, Clone, Default)]
pub(crate) struct UnreadWork {
    /// Grants of the work that has not ended.
    grants: Vec<BudgetLimits>,
    /// Spending of the work that has ended.
    spent: Spending,
    /// Number of results.
    results: u64,
}

/// The turn that the budget is for.
#[derive(Debug, Clone, Copy)]
pub(crate) enum UnreadBy<'a> {
    /// A turn that another process began, on this message: the work that it delegated.
    Resumed(&'a MessageId),
    /// A turn that reads these results: all other work of the conversation.
    FoldBack(&'a [TaskId]),
}

impl UnreadWork {
    /// Reserves that part of a budget.
    pub(crate) fn reserve(&self, budget: &Budget) {
        self.grants.iter().for_each(|limits| budget.withhold(*limits));
        budget.restore(self.spent, 0);
        budget.hold_answers(self.results);
    }

    fn add(&mut self, record: &TaskRecord) {
        self.results += 1;
        if record.state.is_terminal() {
            self.spent += record.spent;
        } else {
            self.grants.push(record.grant);
        }
    }
}

impl Delegation {
    /// Returns the work of a conversation whose result was not read yet, as far as it concerns a turn.
    ///
    /// # Errors
    /// When the store fails.
    pub(crate) async fn unread_work(
        &self,
        session: &SessionId,
        by: UnreadBy<'_>,
    ) -> Result<UnreadWork, ConversationError> {
        let mut unread = UnreadWork::default();
        let Some(attached) = self.attached() else { return Ok(unread) };
        for record in attached.store.of_session(session).await? {
            let is_concerned = match &by {
                UnreadBy::Resumed(message) => record.root.message == **message,
                // An agent that asks a question works on afterwards.
                UnreadBy::FoldBack(read) => {
                    !read.contains(&record.task) || !record.state.is_terminal()
                }
            };
            let is_unread = record.is_read_in_turn() && record.folded_by.is_none();
            if is_concerned && is_unread && record.state != TaskState::Cancelled {
                unread.add(&record);
            }
        }
        Ok(unread)
    }
}
