//! Replay: dead letters are sent to their work queue again.

use std::time::Duration;

use rockbot_bus::{Bus, Publication, Settlement};
use rockbot_contracts::{
    Envelope, QueueName, RoutingKey, envelope::TimeBudget, outside_text::escaped_line,
};

use super::{
    dead_letters::{DeadLetters, MAX_HELD, Purpose, Selection},
    error::LetterError,
    sender::SenderCheck,
};

/// The result of a replay.
#[derive(Debug)]
pub struct Replayed {
    /// The dead letters and the messages resent for them; in a dry run, those that would be.
    pub sent: Vec<(Envelope, Envelope)>,
    /// The dead letters that may be from another sender than the caller that they name, with the reason.
    /// They stay in the queue.
    pub refused: Vec<(Envelope, String)>,
    /// The number of dead letters left in the queue.
    pub left: u32,
    /// The error that stopped the replay early.
    pub failure: Option<LetterError>,
}

/// Resends the selected letters to their work queue one by one, and settles each when its new message
/// is confirmed. Holds those that `senders` refuses, and stops at the first error. A dry run holds all. Without
/// `senders`, every sender passes.
///
/// # Errors
/// See [`LetterError`]; nothing was changed then. An error after the first letter is in [`Replayed::failure`].
///
/// # Cancellation
/// Letters that were not settled return to the queue, in any order; the last one may have been sent again.
pub async fn replay(
    bus: &dyn Bus,
    queue: &QueueName,
    senders: Option<&SenderCheck>,
    selection: Selection<'_>,
    dry_run: bool,
) -> Result<Replayed, LetterError> {
    let key = RoutingKey::new(queue.as_str())
        .map_err(|_| LetterError::NoWorkQueue { queue: queue.clone() })?;
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
            let id = escaped_line(pair.0.message_id.as_str());
            replayed.failure = Some(LetterError::Publish { id, source: error });
            break;
        }
        replayed.sent.push(pair);
        if let Err(error) = letter.delivery.settle(Settlement::Ack).await {
            replayed.failure = Some(LetterError::Remains(error));
            break;
        }
        replayed.left -= 1;
    }
    letters.close().await;
    Ok(replayed)
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

#[cfg(test)]
#[path = "replay_tests.rs"]
mod tests;
