//! Tests of the checks.

use rockbot_contracts::{MessageId, SessionId};

use super::*;
use crate::chaos::turns::{
    load::ReadAnswer,
    plan::{Step, TurnPlan},
    recorded::RecordedResult,
};

/// Returns the observations of a turn with one command.
fn observed(executed: &str, lines: usize) -> Observations {
    let plan = TurnPlan { conversation: 1, message: 1, steps: vec![Step::Append] };
    let (session, id) = (SessionId::generate(), MessageId::generate());
    let second = Duration::from_secs(1);
    let answer = ReadAnswer { at: second, outcome: TurnOutcome::Completed, text: plan.answer() };
    let executed = executed.to_owned();
    let result = RecordedResult { at: second, executed, ..RecordedResult::default() };
    let call = RecordedCall {
        id: plan.calls(0)[0].id.clone(),
        tool: "bash".to_owned(),
        results: vec![result],
        ..RecordedCall::default()
    };
    let line = Line { at: second, handler: "7".to_owned() };
    let lines = (lines > 0).then(|| (call.id.clone(), vec![line; lines]));
    let turn = RecordedTurn {
        id: id.to_string(),
        calls: vec![call],
        answers: vec![("completed".to_owned(), plan.answer())],
        ..RecordedTurn::default()
    };
    let conversation = RecordedConversation { turns: vec![turn], ..Default::default() };
    let record = TurnRecord {
        plan,
        session: session.clone(),
        id: Some(id),
        sent: Duration::ZERO,
        answer: Some(answer),
        resumed: 0,
        adopted: 0,
        is_expired: false,
        silence: Duration::ZERO,
        errors: Vec::new(),
    };
    Observations {
        turns: vec![record],
        conversations: BTreeMap::from([(session.to_string(), conversation)]),
        lines: lines.into_iter().collect(),
        ..Observations::default()
    }
}

fn kinds(observations: &Observations) -> Vec<&'static str> {
    check(observations).1.into_iter().map(|violation| violation.kind).collect()
}

/// Returns the kinds of violations after a change of a kept promise.
fn kinds_after(change: impl FnOnce(&mut TurnRecord, &mut RecordedTurn)) -> Vec<&'static str> {
    let mut observations = observed("yes", 1);
    let conversation = observations.conversations.values_mut().next().expect("a conversation");
    change(&mut observations.turns[0], &mut conversation.turns[0]);
    kinds(&observations)
}

#[test]
fn kept_promises_of_turn_are_no_violation() {
    assert!(kinds(&observed("yes", 1)).is_empty());
    assert!(kinds(&observed("no", 0)).is_empty());
    let (counts, _) = check(&observed("yes", 1));
    assert_eq!((counts.turns, counts.completed, counts.calls), (1, 1, 1));
}

#[test]
fn false_executions_are_violations() {
    assert_eq!(kinds(&observed("yes", 2)), ["ran twice"]);
    assert_eq!(kinds(&observed("yes", 0)), ["did not run, executed: yes"]);
    assert_eq!(kinds(&observed("no", 1)), ["ran, executed: no"]);
    assert_eq!(kinds(&observed("unknown", 1)), ["unexplained unknown"]);
    assert_eq!(kinds_after(|_, turn| turn.calls.clear()), ["ran unrecorded"]);
    assert_eq!(kinds_after(|_, turn| turn.calls[0].results.clear()), ["not one result"]);
}

#[test]
fn false_answers_are_violations() {
    assert_eq!(kinds_after(|record, _| record.answer = None), ["no answer"]);
    let recorded = kinds_after(|record, _| {
        (record.answer, record.is_expired) = (None, true);
    });
    assert_eq!(recorded, ["no answer"], "a recorded message does not expire");
    let unfinished = kinds_after(|_, turn| turn.answers.clear());
    assert_eq!(unfinished, ["answer not recorded", "unfinished turn"]);
    let other = kinds_after(|record, _| record.plan.message = 2);
    assert_eq!(other, ["answer of another message"]);
    let mut observations = observed("yes", 1);
    let id = observations.turns[0].id.as_ref().expect("sent").to_string();
    observations.answers.insert(id, vec!["one".to_owned(), "two".to_owned()]);
    assert_eq!(kinds(&observations), ["different answers"]);
    let answers = observations.answers.values_mut().next().expect("answers");
    answers[0] = format!("{UNAVAILABLE} Try again later.");
    assert_eq!(kinds(&observations), ["recorded, and reported as not processed"]);
    assert_eq!(check(&observations).0.unavailable, 1);
}

#[test]
fn turn_that_was_given_up_has_results_too() {
    let give_up = |takeovers| {
        kinds_after(|record, turn| {
            turn.calls[0].results.clear();
            turn.takeovers = takeovers;
            turn.answers = vec![("model_failed".to_owned(), "lost".to_owned())];
            let at = Duration::from_secs(1);
            let (outcome, text) = (TurnOutcome::ModelFailed, "lost".to_owned());
            record.answer = Some(ReadAnswer { at, outcome, text });
        })
    };
    assert_eq!(give_up(3), ["not one result"]);
    assert_eq!(give_up(2), ["not one result"]);
}
