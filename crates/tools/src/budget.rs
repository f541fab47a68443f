//! Budgets: the most that may be spent on one message of a user, divided among the turns that work on it.

mod amounts;
mod limits;

use std::{collections::HashMap, fmt, sync::Arc};

use parking_lot::Mutex;
use rockbot_contracts::{Spending, ToolCallId};
use tokio::sync::watch;

use self::amounts::Amounts;
pub use self::limits::BudgetLimits;
use crate::failure::ToolFailure;

/// Smallest grant, in model calls: one that calls tools, and the answer.
const MIN_MODEL_CALLS: u64 = 2;

/// The budget of a turn. Clones share it.
///
/// A turn that starts another one [grants](Self::grant) it a share of the rest. The share is reserved:
/// no other turn can spend it, and the unspent part returns when the [`BudgetGrant`] is dropped. Spending is
/// booked to the child and to all its parents at once, so that it is not lost if the child fails, is
/// cancelled, or reports nothing.
#[derive(Clone)]
pub struct Budget(Arc<Node>);

struct Node {
    limit: Amounts,
    /// Levels of turns that may be started below this one.
    depth: u32,
    /// The budget that granted this one.
    parent: Option<Parent>,
    state: Mutex<State>,
    /// Changes when a child ends.
    ended: watch::Sender<()>,
}

struct Parent {
    budget: Budget,
    /// The call that waits for the turn; `None` if none does.
    call: Option<ToolCallId>,
}

#[derive(Default)]
struct State {
    /// Used here and by children.
    used: Amounts,
    /// Granted to children, and not used by them.
    reserved: Amounts,
    spent: Spending,
    children: HashMap<ToolCallId, Children>,
    /// The grant ended: later use was not reserved.
    is_closed: bool,
}

/// The turns that one call started.
#[derive(Default)]
struct Children {
    running: usize,
    spent: Spending,
}

/// The purpose of a model call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ModelCall {
    /// The model may call tools. One more model call stays held back for the answer.
    WithTools,
    /// The model must answer. It may use the call that is held back, whatever its tokens and cost.
    Answer,
}

/// Why a budget refuses work, addressed to a model.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum BudgetError {
    /// An amount is used up.
    #[error("the budget of this request is used up: no {0} are left; answer with what you have")]
    UsedUp(&'static str),
    /// The share of a new turn would be too small.
    #[error("the budget of this request is too small to delegate work; do it yourself")]
    TooSmall,
    /// Turns are nested too deeply.
    #[error("this work was already delegated too often; do it yourself")]
    TooDeep,
}

impl From<BudgetError> for ToolFailure {
    fn from(error: BudgetError) -> Self {
        Self::NotPermitted { reason: error.to_string() }
    }
}

impl Budget {
    /// Creates the budget of a message.
    #[must_use]
    pub fn new(limits: BudgetLimits) -> Self {
        Self::node(limits.into(), limits.depth, None)
    }

    /// Creates a budget that refuses nothing.
    #[must_use]
    pub fn unlimited() -> Self {
        Self::node(Amounts::UNLIMITED, u32::MAX, None)
    }

    fn node(limit: Amounts, depth: u32, parent: Option<Parent>) -> Self {
        let (state, ended) = (Mutex::default(), watch::Sender::new(()));
        Self(Arc::new(Node { limit, depth, parent, state, ended }))
    }

    /// Returns the rest, as limits of another budget.
    #[must_use]
    pub fn remaining(&self) -> BudgetLimits {
        self.left().into_limits(self.0.depth)
    }

    /// Returns the spending that was booked, with that of children.
    #[must_use]
    pub fn spent(&self) -> Spending {
        self.0.state.lock().spent
    }

    /// Returns the number of turns that were started, here and by children.
    #[must_use]
    pub fn delegations(&self) -> u64 {
        self.0.state.lock().used.delegations
    }

    /// Checks that a model call with about `tokens` tokens may be made. It is booked with
    /// [`charge`](Self::charge).
    ///
    /// # Errors
    /// [`BudgetError::UsedUp`].
    pub fn check_model_call(&self, call: ModelCall, tokens: usize) -> Result<(), BudgetError> {
        let left = self.left();
        match call {
            ModelCall::WithTools if left.model_calls < 2 => Err(BudgetError::UsedUp("model calls")),
            ModelCall::WithTools if left.tokens < tokens as u64 => {
                Err(BudgetError::UsedUp("tokens"))
            }
            ModelCall::WithTools if left.cost_micros == 0 => {
                Err(BudgetError::UsedUp("means to pay for model calls"))
            }
            ModelCall::Answer if left.model_calls < 1 => Err(BudgetError::UsedUp("model calls")),
            ModelCall::WithTools | ModelCall::Answer => Ok(()),
        }
    }

    /// Books a tool call that is about to be made.
    ///
    /// # Errors
    /// [`BudgetError::UsedUp`]; nothing is booked then.
    pub fn begin_tool_call(&self) -> Result<(), BudgetError> {
        let one = Amounts { tool_calls: 1, ..Amounts::default() };
        self.try_use(one).then_some(()).ok_or(BudgetError::UsedUp("tool calls"))
    }

    /// Books spending on models. Tool calls in it were booked when they began.
    pub fn charge(&self, spent: Spending) {
        let used = Amounts { tool_calls: 0, ..Amounts::from(spent) };
        self.book(used, spent);
    }

    /// Books what earlier processes spent on the turn, and the number of turns that they started.
    pub fn restore(&self, spent: Spending, delegations: u64) {
        self.book(Amounts { delegations, ..Amounts::from(spent) }, spent);
    }

    /// Books a turn that `call` started in an earlier process, and what it spent, as that of a child. Nothing is
    /// reserved for it, so no grant is needed.
    pub fn restore_child(&self, call: &ToolCallId, spent: Spending) {
        self.restore(spent, 1);
        self.0.state.lock().children.entry(call.clone()).or_default().spent += spent;
    }

    /// Books the part of `total` that is not booked yet: of a turn that another process ran.
    pub fn settle(&self, total: Spending) {
        let missing = total.since(self.spent());
        if missing != Spending::default() {
            self.restore(missing, 0);
        }
    }

    /// Holds model calls back for as long as this budget is used: each for a turn that reads a result later.
    pub fn hold_answers(&self, count: u64) {
        self.0.state.lock().reserved.add(Amounts { model_calls: count, ..Amounts::default() });
    }

    /// Reserves what others may still spend, for as long as this budget is used.
    pub fn withhold(&self, limits: BudgetLimits) {
        self.0.state.lock().reserved.add(limits.into());
    }

    /// Grants a turn that `call` waits for one part of `parts` of the rest.
    ///
    /// # Errors
    /// Nothing is granted if the work may not be delegated, or the share would be too small.
    pub fn grant(&self, call: &ToolCallId, parts: u64) -> Result<BudgetGrant, BudgetError> {
        self.try_grant(Some(call), parts)
    }

    /// Grants a turn that no call waits for one part of `parts` of the rest. A model call is held back for
    /// the turn that reads its result, as by [`hold_answers`](Self::hold_answers).
    ///
    /// # Errors
    /// As for [`grant`](Self::grant).
    pub fn grant_detached(&self, parts: u64) -> Result<BudgetGrant, BudgetError> {
        self.try_grant(None, parts)
    }

    fn try_grant(&self, call: Option<&ToolCallId>, parts: u64) -> Result<BudgetGrant, BudgetError> {
        let Some(depth) = self.0.depth.checked_sub(1) else { return Err(BudgetError::TooDeep) };
        let one = Amounts { delegations: 1, ..Amounts::default() };
        if !self.try_use(one) {
            return Err(BudgetError::UsedUp("delegations"));
        }
        let mut state = self.0.state.lock();
        let mut left = self.0.left(&state);
        let for_result = Amounts { model_calls: u64::from(call.is_none()), ..Amounts::default() };
        // One more is held back for the own answer.
        left.model_calls = left.model_calls.saturating_sub(for_result.model_calls + 1);
        let share = left.divided(parts);
        if share.model_calls < MIN_MODEL_CALLS {
            return Err(BudgetError::TooSmall);
        }
        state.reserved.add(share);
        state.reserved.add(for_result);
        if let Some(call) = call {
            state.children.entry(call.clone()).or_default().running += 1;
        }
        drop(state);
        let parent = Parent { budget: self.clone(), call: call.cloned() };
        Ok(BudgetGrant { budget: Self::node(share, depth, Some(parent)) })
    }

    /// Waits until the turns that `call` started have ended.
    ///
    /// # Cancellation
    /// Cancel-safe.
    pub async fn children_ended(&self, call: &ToolCallId) {
        let mut ended = self.0.ended.subscribe();
        while self.0.state.lock().children.get(call).is_some_and(|child| child.running > 0) {
            // The sender is in `self`.
            let _ = ended.changed().await;
        }
    }

    /// Takes the spending of the turns that `call` started, since the last time.
    #[must_use]
    pub fn take_children(&self, call: &ToolCallId) -> Spending {
        let mut state = self.0.state.lock();
        match state.children.get_mut(call) {
            Some(children) if children.running > 0 => std::mem::take(&mut children.spent),
            Some(_) => state.children.remove(call).unwrap_or_default().spent,
            None => Spending::default(),
        }
    }

    fn left(&self) -> Amounts {
        self.0.left(&self.0.state.lock())
    }

    /// Books `used` if all of it is left.
    fn try_use(&self, used: Amounts) -> bool {
        let mut state = self.0.state.lock();
        if !used.fits(self.0.left(&state)) {
            return false;
        }
        let kept = self.0.add(&mut state, used, Spending::default());
        drop(state);
        self.book_to_parent(used, kept, Spending::default());
        true
    }

    fn book(&self, used: Amounts, spent: Spending) {
        let kept = self.0.add(&mut self.0.state.lock(), used, spent);
        self.book_to_parent(used, kept, spent);
    }

    /// Books the use of a child to all parents. `from_grant` is the part of it that was reserved.
    fn book_to_parent(&self, used: Amounts, mut from_grant: Amounts, spent: Spending) {
        let mut node = self;
        while let Some(Parent { budget: parent, call }) = &node.0.parent {
            let mut state = parent.0.state.lock();
            state.reserved = state.reserved.without(from_grant);
            if let Some(children) = state.children_of(call.as_ref()) {
                children.spent += spent;
            }
            from_grant = parent.0.add(&mut state, used, spent);
            drop(state);
            node = parent;
        }
    }
}

impl State {
    fn children_of(&mut self, call: Option<&ToolCallId>) -> Option<&mut Children> {
        self.children.get_mut(call?)
    }
}

impl Node {
    fn left(&self, state: &State) -> Amounts {
        self.limit.without(state.used).without(state.reserved)
    }

    /// Adds to the used amounts. Returns the part of it that was within the limit.
    fn add(&self, state: &mut State, used: Amounts, spent: Spending) -> Amounts {
        let before = self.limit.without(state.used);
        state.used.add(used);
        state.spent += spent;
        if state.is_closed {
            return Amounts::default();
        }
        before.without(self.limit.without(state.used))
    }
}

/// The share of a budget that was granted to a turn. Dropping it ends the turn's claim: the unspent
/// part returns.
#[derive(Debug)]
pub struct BudgetGrant {
    budget: Budget,
}

impl BudgetGrant {
    /// Returns the budget of the turn.
    #[must_use]
    pub fn budget(&self) -> &Budget {
        &self.budget
    }
}

impl Drop for BudgetGrant {
    fn drop(&mut self) {
        let Node { limit, parent, state, .. } = &*self.budget.0;
        let Some(Parent { budget: parent, call }) = parent else { return };
        let unspent = {
            let mut state = state.lock();
            state.is_closed = true;
            limit.without(state.used)
        };
        let mut state = parent.0.state.lock();
        state.reserved = state.reserved.without(unspent);
        if let Some(children) = state.children_of(call.as_ref()) {
            children.running = children.running.saturating_sub(1);
        }
        drop(state);
        parent.0.ended.send_replace(());
    }
}

impl fmt::Debug for Budget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Budget").field("left", &self.left()).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
