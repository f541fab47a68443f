//! Tests of budgets.

use rockbot_contracts::{Spending, ToolCallId};

use super::*;

fn limits(model_calls: u64) -> BudgetLimits {
    BudgetLimits { model_calls, ..BudgetLimits::default() }
}

fn one_call() -> Spending {
    Spending { model_calls: 1, prompt_tokens: 90, completion_tokens: 10, ..Spending::default() }
}

#[test]
fn one_model_call_is_held_back_for_the_answer() {
    let budget = Budget::new(limits(3));
    for _ in 0..2 {
        budget.check_model_call(ModelCall::WithTools, 100).unwrap();
        budget.charge(one_call());
    }
    let refused = budget.check_model_call(ModelCall::WithTools, 100);
    assert_eq!(refused, Err(BudgetError::UsedUp("model calls")));
    budget.check_model_call(ModelCall::Answer, 100).unwrap();
    budget.charge(one_call());
    assert!(budget.check_model_call(ModelCall::Answer, 100).is_err());
}

#[test]
fn tokens_and_cost_do_not_prevent_the_answer() {
    let budget = Budget::new(BudgetLimits { tokens: 150, ..limits(9) });
    budget.charge(one_call());
    let refused = budget.check_model_call(ModelCall::WithTools, 51);
    assert_eq!(refused, Err(BudgetError::UsedUp("tokens")));
    budget.check_model_call(ModelCall::Answer, 51).unwrap();
    let budget = Budget::new(BudgetLimits { cost_micros: Some(7), ..limits(9) });
    budget.charge(Spending { cost_micros: 8, ..one_call() });
    assert!(budget.check_model_call(ModelCall::WithTools, 1).is_err());
    budget.check_model_call(ModelCall::Answer, 1).unwrap();
}

#[test]
fn children_share_what_is_left_and_return_the_rest() {
    let (root, call) = (Budget::new(limits(20)), ToolCallId::generate());
    root.charge(one_call());
    let grants: Vec<_> =
        [4, 3, 2].map(|parts| root.grant(&call, parts).unwrap()).into_iter().collect();
    let shares: Vec<_> = grants.iter().map(|one| one.budget().remaining().model_calls).collect();
    assert_eq!(shares, [4, 4, 5]);
    assert_eq!(root.remaining().model_calls, 6);
    for _ in 0..4 {
        grants[0].budget().charge(one_call());
    }
    assert!(grants[0].budget().check_model_call(ModelCall::Answer, 1).is_err());
    assert_eq!(root.remaining().model_calls, 6, "it spends its own share");
    drop(grants);
    assert_eq!(root.remaining().model_calls, 15);
    assert_eq!(root.remaining().delegations, 29);
    assert_eq!(root.spent().model_calls, 5);
    assert_eq!(root.take_children(&call).model_calls, 4);
    assert_eq!(root.take_children(&call), Spending::default());
}

#[test]
fn spending_of_nested_turns_reaches_every_parent() {
    let (root, outer, inner) =
        (Budget::new(limits(200)), ToolCallId::generate(), ToolCallId::generate());
    let child = root.grant(&outer, 2).unwrap();
    let grandchild = child.budget().grant(&inner, 2).unwrap();
    grandchild.budget().begin_tool_call().unwrap();
    grandchild.budget().charge(Spending { tool_calls: 1, ..one_call() });
    assert_eq!(child.budget().take_children(&inner), Spending { tool_calls: 1, ..one_call() });
    assert_eq!(root.take_children(&outer), Spending { tool_calls: 1, ..one_call() });
    drop(grandchild);
    drop(child);
    let left = root.remaining();
    assert_eq!((left.model_calls, left.tool_calls, left.delegations), (199, 499, 30));
}

#[test]
fn work_is_not_handed_over_too_deep_or_with_too_little() {
    let call = ToolCallId::generate();
    let flat = Budget::new(BudgetLimits { depth: 0, ..limits(200) });
    assert_eq!(flat.grant(&call, 2).err(), Some(BudgetError::TooDeep));
    let poor = Budget::new(limits(4));
    assert_eq!(poor.grant(&call, 2).err(), Some(BudgetError::TooSmall));
    let few = Budget::new(BudgetLimits { delegations: 1, ..limits(200) });
    let _first = few.grant(&call, 2).unwrap();
    assert_eq!(few.grant(&call, 2).err(), Some(BudgetError::UsedUp("delegations")));
}

#[test]
fn detached_turns_and_withheld_amounts_are_reserved() {
    let root = Budget::new(limits(81));
    let child = root.grant_detached(2).unwrap();
    assert_eq!(root.remaining().model_calls, 41);
    child.budget().charge(one_call());
    assert_eq!(root.remaining().model_calls, 41);
    drop(child);
    root.withhold(limits(30));
    assert_eq!(root.remaining().model_calls, 49);
    root.hold_answers(9);
    assert_eq!(root.remaining().model_calls, 40);
}

#[test]
fn model_call_stays_for_each_result_of_detached_turns() {
    let root = Budget::new(limits(12));
    let children: Vec<_> = [3, 2].map(|parts| root.grant_detached(parts).unwrap()).into();
    let mut own = 0;
    while root.check_model_call(ModelCall::WithTools, 1).is_ok() {
        root.charge(one_call());
        own += 1;
    }
    root.check_model_call(ModelCall::Answer, 1).unwrap();
    root.charge(one_call());
    for child in &children {
        while child.budget().check_model_call(ModelCall::Answer, 1).is_ok() {
            child.budget().charge(one_call());
            own += 1;
        }
    }
    assert_eq!((own + 1, root.spent().model_calls), (10, 10), "two are left for the results");
}

#[test]
fn settled_spending_is_booked_once() {
    let (root, call) = (Budget::new(limits(20)), ToolCallId::generate());
    let child = root.grant(&call, 2).unwrap();
    child.budget().charge(one_call());
    let mut total = one_call();
    total += one_call();
    for _ in 0..2 {
        child.budget().settle(total);
    }
    assert_eq!(root.spent(), total);
}

#[tokio::test]
async fn end_of_children_is_awaited() {
    let (root, call) = (Budget::new(limits(20)), ToolCallId::generate());
    root.children_ended(&call).await;
    let child = root.grant(&call, 2).unwrap();
    let late = child.budget().clone();
    let waiting = tokio::spawn({
        let (root, call) = (root.clone(), call.clone());
        async move { root.children_ended(&call).await }
    });
    tokio::task::yield_now().await;
    assert!(!waiting.is_finished());
    drop(child);
    waiting.await.unwrap();
    let left = root.remaining().model_calls;
    late.charge(one_call());
    assert_eq!(root.remaining().model_calls, left - 1, "late spending is booked too");
}

#[test]
fn child_of_an_earlier_process_is_booked_without_a_grant() {
    let limits = BudgetLimits { delegations: 0, ..limits(20) };
    let (root, call) = (Budget::new(limits), ToolCallId::generate());
    assert_eq!(root.grant(&call, 4).err(), Some(BudgetError::UsedUp("delegations")));
    root.restore_child(&call, one_call());
    assert_eq!((root.spent(), root.delegations()), (one_call(), 1));
    assert_eq!(root.remaining().model_calls, 19);
    assert_eq!(root.take_children(&call), one_call());
    assert_eq!(root.take_children(&call), Spending::default());
}
