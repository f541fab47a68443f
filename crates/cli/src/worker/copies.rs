//! Checks of requests that are sent again.

use std::time::Duration;

use rockbot_contracts::{Executed, ToolErrorCode};

use super::{
    check::{Verdict, failed, skipped},
    prober::{BUDGET, Call, GRACE, Outcome, Prober, expect_error, expect_result},
    subject::Subject,
    timing::SLOW_BUDGET,
};

/// Time in which the reply to a copy may still arrive.
const COPY_REPLY: Duration = Duration::from_secs(1);

/// Returns the call as its caller sends it again.
fn copy_of(call: &Call) -> Call {
    Call { id: call.id.clone(), envelope: call.envelope.clone().next_attempt() }
}

/// Checks a call that is sent again after its reply: a tool that is not repeatable must not run again.
pub(super) async fn repeated(prober: &Prober, subject: &Subject) -> Verdict {
    let call = prober.call(&subject.tool.name, subject.arguments()?, BUDGET);
    let first = prober.ask(&call).await?;
    prober.send(&copy_of(&call)).await?;
    let second = prober.nth_reply(&call, 2, BUDGET).await?;
    if subject.tool.hints.may_retry() {
        expect_result(&second)?;
        return Ok("replied again; the tool is repeatable".to_owned());
    }
    match (&first.outcome, &second.outcome) {
        (first, second) if first == second => Ok("the recorded reply".to_owned()),
        (_, Outcome::Error(error)) if error.code == ToolErrorCode::OutcomeUnknown => {
            Ok("outcome_unknown".to_owned())
        }
        _ => failed("another reply than the first: the call ran twice, or its record is wrong"),
    }
}

/// Checks a call that is sent again while it runs.
pub(super) async fn in_flight(prober: &Prober, subject: &Subject) -> Verdict {
    let call = prober.call(&subject.tool.name, subject.slow()?, SLOW_BUDGET);
    prober.send(&call).await?;
    prober.send(&copy_of(&call)).await?;
    let first = prober.reply_to(&call).await?;
    let second = prober.nth_reply(&call, 2, COPY_REPLY).await.ok();
    match second {
        None => Ok(format!("one reply: {}", first.outcome)),
        Some(second) if second.outcome == first.outcome => Ok("two equal replies".to_owned()),
        Some(_) if subject.tool.hints.may_retry() => {
            Ok("two replies; the tool is repeatable".to_owned())
        }
        Some(second) => failed(format!(
            "two different replies to one call: {}; {}",
            first.outcome, second.outcome
        )),
    }
}

/// Checks a request with the id of a running call and other arguments.
pub(super) async fn id_conflict(prober: &Prober, subject: &Subject) -> Verdict {
    let (slow, other) = (subject.slow()?, subject.arguments()?);
    if slow == other {
        return skipped("--arguments and --slow-arguments are equal");
    }
    let running = prober.call(&subject.tool.name, slow, SLOW_BUDGET);
    let mut conflicting = prober.call(&subject.tool.name, other, SLOW_BUDGET);
    let body = String::from_utf8_lossy(&conflicting.envelope.body).into_owned();
    let body = body.replace(conflicting.id.as_str(), running.id.as_str());
    conflicting.envelope.body = body.into_bytes();
    conflicting.envelope.correlation_id = Some(running.id.clone().into());
    conflicting.id = running.id.clone();
    prober.send(&running).await?;
    prober.ping().await?;
    prober.send(&conflicting).await?;
    let first = prober.nth_reply(&running, 1, SLOW_BUDGET + GRACE).await?;
    // The running call ends by its deadline.
    let _ = prober.nth_reply(&running, 2, SLOW_BUDGET + GRACE).await;
    expect_error(&first, &ToolErrorCode::NotPermitted, &[Executed::No])
}
