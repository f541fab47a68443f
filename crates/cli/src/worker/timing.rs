//! Checks of deadlines and cancels.

use std::time::Duration;

use rockbot_contracts::{Executed, ToolErrorCode};
use tokio::time::Instant;

use super::{
    check::{Verdict, failed, skipped},
    prober::{BUDGET, GRACE, Outcome, Prober, expect_error, expect_result},
    subject::Subject,
};

/// Budget of a slow call that its deadline must end.
const SHORT_BUDGET: Duration = Duration::from_millis(1_500);

/// Budget of a slow call that is cancelled or left to its end.
pub(super) const SLOW_BUDGET: Duration = Duration::from_secs(4);

/// Execution states of a call that was stopped.
const STOPPED: [Executed; 2] = [Executed::Yes, Executed::Unknown];

/// Checks a call that arrives after its deadline.
pub(super) async fn expired(prober: &Prober, subject: &Subject) -> Verdict {
    let arguments = subject.arguments()?;
    let mut call = prober.call(&subject.tool.name, arguments, BUDGET);
    if let Some(budget) = &mut call.envelope.budget {
        // Ten minutes ago, so that a difference of clocks does not matter.
        budget.deadline_unix_ms = budget.deadline_unix_ms.saturating_sub(600_000);
        budget.timeout = Duration::ZERO;
    }
    prober.send(&call).await?;
    let reply = prober.nth_reply(&call, 1, BUDGET).await?;
    expect_error(&reply, &ToolErrorCode::Timeout, &[Executed::No])
}

/// Checks that a deadline ends a running call.
pub(super) async fn deadline(prober: &Prober, subject: &Subject) -> Verdict {
    let call = prober.call(&subject.tool.name, subject.slow()?, SHORT_BUDGET);
    let started = Instant::now();
    let reply = prober.ask(&call).await?;
    let after = reply.at - started;
    if matches!(reply.outcome, Outcome::Result(_)) && after < SHORT_BUDGET {
        return skipped("the call ended before its deadline; give slower --slow-arguments");
    }
    expect_error(&reply, &ToolErrorCode::Timeout, &STOPPED)?;
    Ok(format!("{} after {} ms of 1500", reply.outcome, after.as_millis()))
}

/// Checks that a cancel which arrives before its call stops the call.
pub(super) async fn cancel_before(prober: &Prober, subject: &Subject) -> Verdict {
    let call = prober.call(&subject.tool.name, subject.arguments()?, BUDGET);
    prober.cancel(&call.id, BUDGET).await?;
    // Cancels have a queue of their own; a reply to a later request does not prove their arrival.
    tokio::time::sleep(Duration::from_millis(500)).await;
    let reply = prober.ask(&call).await?;
    expect_error(&reply, &ToolErrorCode::Cancelled, &[Executed::No])
}

/// Checks that a cancel ends a running call.
pub(super) async fn cancel_during(prober: &Prober, subject: &Subject) -> Verdict {
    let call = prober.call(&subject.tool.name, subject.slow()?, SLOW_BUDGET);
    prober.send(&call).await?;
    prober.ping().await?;
    let cancelled = Instant::now();
    prober.cancel(&call.id, SLOW_BUDGET).await?;
    let reply = prober.nth_reply(&call, 1, SLOW_BUDGET + GRACE).await?;
    let after = reply.at.saturating_duration_since(cancelled);
    if matches!(reply.outcome, Outcome::Result(_)) && after < GRACE {
        return skipped("the call ended before the cancel; give slower --slow-arguments");
    }
    // On a busy machine a tool may still be ending when its worker has to answer.
    let is_unknown = matches!(&reply.outcome, Outcome::Error(error)
        if error.code == ToolErrorCode::OutcomeUnknown && error.executed == Executed::Unknown);
    if !is_unknown {
        // A call that waited for capacity has not started.
        let executed = [Executed::Yes, Executed::Unknown, Executed::No];
        expect_error(&reply, &ToolErrorCode::Cancelled, &executed)?;
    }
    if after > GRACE {
        return failed(format!("{} ms after the cancel; callers wait 3 s", after.as_millis()));
    }
    Ok(format!("{} after {} ms", reply.outcome, after.as_millis()))
}

/// Checks that a cancel of an unknown call has no effect on others.
pub(super) async fn cancel_unknown(prober: &Prober, subject: &Subject) -> Verdict {
    let arguments = subject.arguments()?;
    let other = prober.call(&subject.tool.name, arguments, BUDGET);
    prober.cancel(&other.id, BUDGET).await?;
    let reply = prober.ask(&prober.call(&subject.tool.name, arguments, BUDGET)).await?;
    expect_result(&reply).map(|_| "no effect".to_owned())
}

/// Checks that a slow call does not keep another one waiting.
pub(super) async fn slow_call(prober: &Prober, subject: &Subject) -> Verdict {
    let slow = prober.call(&subject.tool.name, subject.slow()?, SLOW_BUDGET);
    let fast = prober.call(&subject.tool.name, subject.arguments()?, SLOW_BUDGET);
    prober.send(&slow).await?;
    let reply = prober.ask(&fast).await?;
    let is_pending = prober.replies_so_far(&slow)?.is_empty();
    prober.reply_to(&slow).await?;
    expect_result(&reply)?;
    if is_pending {
        Ok("served beside it".to_owned())
    } else {
        failed("the other call waited for it")
    }
}
