//! `rockbot dlq replay`: resends dead letters to their work queue.

use std::time::Duration;

use anyhow::anyhow;
use rockbot_bus::{Bus, Publication, PublishError, Settlement};
use rockbot_contracts::{Envelope, QueueName, RoutingKey, envelope::TimeBudget};
use rockbot_service::exit;
use serde_json::{Value, json};

use super::{
    dead_letters::{DeadLetters, MAX_HELD, Purpose, Selection},
    sender::SenderCheck,
};
use crate::{
    arguments::LetterSelection,
    failure::{Failure, OrExit, Outcome},
    print::{note, outln},
    render,
};

/// The result of a replay.
#[derive(Debug)]
pub(super) struct Replayed {
    /// The dead letters and the messages resent for them; in a dry run, those that would be.
    pub(super) sent: Vec<(Envelope, Envelope)>,
    /// The dead letters that may be from another sender than the caller that they name, with the reason.
    /// They stay in the queue.
    pub(super) refused: Vec<(Envelope, String)>,
    /// The number of dead letters left in the queue.
    pub(super) left: u32,
    /// The error that stopped the replay early.
    pub(super) failure: Option<Failure>,
}

/// Resends the selected letters. `senders` checks them; without, every sender passes.
pub(super) async fn run(
    bus: &dyn Bus,
    queue: &QueueName,
    senders: Option<&SenderCheck>,
    selection: &LetterSelection,
    limit: Option<u32>,
    json: bool,
) -> Outcome {
    let letters = Selection::new(&selection.ids, limit.unwrap_or(u32::MAX));
    let mut replayed = replay(bus, queue, senders, letters, selection.dry_run).await?;
    if replayed.failure.is_none() && !replayed.refused.is_empty() {
        replayed.failure = Some(refused_failure(queue, replayed.refused.len()));
    }
    if json {
        outln!("{}", render::json(&to_json(queue, selection.dry_run, &replayed)))?;
    } else {
        print(queue, selection.dry_run, &replayed)?;
    }
    replayed.failure.map_or(Ok(exit::OK), Err)
}

fn to_json(queue: &QueueName, dry_run: bool, replayed: &Replayed) -> Value {
    let Replayed { sent, refused, left, failure } = replayed;
    let sent = sent.iter().map(|(letter, resent)| {
        let sent_as = (!dry_run).then_some(resent.message_id.as_str());
        json!({"messageId": letter.message_id.as_str(), "sentAs": sent_as,
            "correlationId": letter.correlation_id.as_deref(), "type": letter.message_type()})
    });
    let refused = refused.iter().map(|(letter, reason)| {
        json!({"messageId": letter.message_id.as_str(), "user": letter.user_id.as_deref(),
            "source": letter.source.as_deref(), "reason": reason})
    });
    let (sent, refused): (Vec<_>, Vec<_>) = (sent.collect(), refused.collect());
    let error = failure.as_ref().map(|failure| format!("{:#}", failure.cause));
    json!({"queue": queue.as_str(), "dryRun": dry_run, "replayed": sent, "refused": refused,
        "left": left, "error": error})
}

fn print(queue: &QueueName, dry_run: bool, replayed: &Replayed) -> Result<(), Failure> {
    let Replayed { sent, refused, left, .. } = replayed;
    let rows = sent.iter().map(|(letter, _)| {
        let id = letter.correlation_id.as_deref().unwrap_or("–");
        [letter.message_id.as_str(), letter.message_type(), id].map(render::visible_line).into()
    });
    if !sent.is_empty() {
        outln!("{}\n", render::table(&["message id", "type", "correlation id"], rows))?;
    }
    let rows = refused.iter().map(|(letter, reason)| {
        [letter.message_id.as_str(), reason].map(render::visible_line).into()
    });
    if !refused.is_empty() {
        outln!("{}\n", render::table(&["message id", "not resent, because"], rows))?;
    }
    let verb = if dry_run { "would be resent" } else { "resent" };
    let sent = render::count(sent.len(), "dead letter");
    note!("{sent} {verb} to {queue}, {left} left");
    Ok(())
}

/// Resends the selected letters to their work queue one by one, and settles each when its new message
/// is confirmed. Holds those that `senders` refuses, and stops at the first error.
pub(super) async fn replay(
    bus: &dyn Bus,
    queue: &QueueName,
    senders: Option<&SenderCheck>,
    selection: Selection<'_>,
    dry_run: bool,
) -> Result<Replayed, Failure> {
    let key = RoutingKey::new(queue.as_str()).or_exit(exit::USAGE)?;
    let purpose = if dry_run { Purpose::Inspect } else { Purpose::Resend };
    let mut letters = DeadLetters::open(bus, queue, selection, purpose).await?;
    let (sent, refused) = (Vec::new(), Vec::new());
    let mut replayed = Replayed { sent, refused, left: letters.waiting(), failure: None };
    while let Some(letter) = letters.next().await {
        let envelope = letter.delivery.envelope();
        if let Some(reason) = senders.and_then(|senders| senders.refusal(envelope)) {
            replayed.refused.push((envelope.clone(), reason));
            letters.hold(letter);
            if !dry_run && replayed.refused.len() >= usize::from(MAX_HELD) {
                break;
            }
            continue;
        }
        let message = next_attempt(envelope);
        let pair = (envelope.clone(), message.clone());
        if dry_run {
            letters.hold(letter);
            replayed.sent.push(pair);
            continue;
        }
        if let Err(error) = bus.publish(Publication::mandatory(key.clone(), message)).await {
            letters.hold(letter);
            replayed.failure = Some(publish_failure(&pair.0, error));
            break;
        }
        replayed.sent.push(pair);
        if let Err(error) = letter.delivery.settle(Settlement::Ack).await {
            let cause = anyhow!(error).context("a message was resent, but its dead letter remains");
            replayed.failure = Some(Failure { code: exit::UNAVAILABLE, cause });
            break;
        }
        replayed.left -= 1;
    }
    letters.close().await;
    Ok(replayed)
}

fn refused_failure(queue: &QueueName, refused: usize) -> Failure {
    let letters = render::count(refused, "dead letter");
    let stopped =
        if refused >= usize::from(MAX_HELD) { ", and the replay stopped there" } else { "" };
    let cause = anyhow!(
        "{letters} may be from another sender than the caller that they name{stopped}; inspect them with \
         `rockbot dlq show {queue}`, and remove them with `rockbot dlq purge {queue} --id ID`, or \
         resend them with --any-sender"
    );
    Failure { code: exit::ANSWERED_WITH_ERROR, cause }
}

/// Returns the message to resend for a dead letter: the next attempt, with a new budget of the same
/// length.
fn next_attempt(letter: &Envelope) -> Envelope {
    let mut message = letter.clone().next_attempt();
    message.dead_letter_reason = None;
    message.budget = letter.budget.map(|budget| {
        // Without a length, the budget is the time from the message's timestamp to its deadline.
        let until = budget.deadline_unix_ms.saturating_sub(letter.timestamp.saturating_mul(1000));
        let length = if budget.timeout < UNSPECIFIED {
            budget.timeout
        } else {
            Duration::from_millis(until)
        };
        TimeBudget::starting_now(length)
    });
    message
}

/// The decoded length of a budget that has only a deadline.
const UNSPECIFIED: Duration = Duration::from_millis(u64::MAX);

fn publish_failure(letter: &Envelope, error: PublishError) -> Failure {
    use PublishError::{Closed, Disconnected, Refused, Unconfirmed, Unroutable};
    let code = if matches!(error, Refused { .. } | Unconfirmed { .. }) {
        exit::TEMPORARY
    } else if matches!(error, Unroutable { .. } | Disconnected { .. } | Closed) {
        exit::UNAVAILABLE
    } else {
        // The message can never be published.
        exit::ANSWERED_WITH_ERROR
    };
    let id = render::visible_line(letter.message_id.as_str());
    Failure { code, cause: anyhow!(error).context(format!("cannot resend dead letter {id}")) }
}

#[cfg(test)]
mod tests;
