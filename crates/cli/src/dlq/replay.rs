//! `rockbot dlq replay`: resends dead letters to their work queue.

use std::time::Duration;

use anyhow::anyhow;
use rockbot_bus::{Bus, Publication, PublishError, Settlement};
use rockbot_contracts::{Envelope, QueueName, RoutingKey, envelope::TimeBudget};
use rockbot_service::exit;
use serde_json::json;

use super::dead_letters::{DeadLetters, Purpose, Selection};
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
    /// The number of dead letters left in the queue.
    pub(super) left: u32,
    /// The error that stopped the replay early.
    pub(super) failure: Option<Failure>,
}

pub(super) async fn run(
    bus: &dyn Bus,
    queue: &QueueName,
    selection: &LetterSelection,
    limit: Option<u32>,
    json: bool,
) -> Outcome {
    let letters = Selection::new(&selection.ids, limit.unwrap_or(u32::MAX));
    let Replayed { sent, left, failure } = replay(bus, queue, letters, selection.dry_run).await?;
    if json {
        let letters: Vec<_> = sent
            .iter()
            .map(|(letter, resent)| {
            let sent_as = (!selection.dry_run).then_some(resent.message_id.as_str());
                json!({"messageId": letter.message_id.as_str(), "sentAs": sent_as,
                    "correlationId": letter.correlation_id.as_deref(), "type": letter.message_type()})
            })
            .collect();
        let error = failure.as_ref().map(|failure| format!("{:#}", failure.cause));
        let report = json!({"queue": queue.as_str(), "dryRun": selection.dry_run,
            "replayed": letters, "left": left, "error": error});
        outln!("{}", render::json(&report))?;
    } else {
        let rows = sent.iter().map(|(letter, _)| {
            let id = letter.correlation_id.as_deref().unwrap_or("–");
            [letter.message_id.as_str(), letter.message_type(), id].map(render::visible_line).into()
        });
        if !sent.is_empty() {
            outln!("{}\n", render::table(&["message id", "type", "correlation id"], rows))?;
        }
        let verb = if selection.dry_run { "would be resent" } else { "resent" };
        let sent = render::count(sent.len(), "dead letter");
        note!("{sent} {verb} to {queue}, {left} left");
    }
    failure.map_or(Ok(exit::OK), Err)
}

/// Resends the selected letters to their work queue one by one, and settles each when its new message
/// is confirmed. Stops at the first error.
pub(super) async fn replay(
    bus: &dyn Bus,
    queue: &QueueName,
    selection: Selection<'_>,
    dry_run: bool,
) -> Result<Replayed, Failure> {
    let key = RoutingKey::new(queue.as_str()).or_exit(exit::USAGE)?;
    let purpose = if dry_run { Purpose::Inspect } else { Purpose::Settle };
    let mut letters = DeadLetters::open(bus, queue, selection, purpose).await?;
    let mut replayed = Replayed { sent: Vec::new(), left: letters.waiting(), failure: None };
    while let Some(letter) = letters.next().await {
        let message = next_attempt(letter.delivery.envelope());
        let pair = (letter.delivery.envelope().clone(), message.clone());
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
mod tests {
    use rockbot_bus::Subscription;
    use rockbot_contracts::QueueSpec;

    use super::*;
    use crate::dlq::dead_letters::tests::{DlqFixture, texts};

    fn sent(replayed: &Replayed) -> Vec<String> {
        texts(&replayed.sent.iter().map(|(_, message)| message.clone()).collect::<Vec<_>>())
    }

    #[tokio::test]
    async fn replayed_letter_is_next_attempt_with_full_budget() {
        let mut fixture = DlqFixture::with_letters(2).await;
        let ids = fixture.ids().await;
        let all = Selection::Oldest(u32::MAX);
        let replayed = replay(&fixture.bus, &fixture.queue, all, false).await.unwrap();
        assert_eq!((sent(&replayed), replayed.left), (vec!["0".into(), "1".into()], 0));
        let arrived = fixture.drain_work_queue().await;
        assert_eq!(texts(&arrived), ["0", "1"]);
        for (number, message) in arrived.iter().enumerate() {
            assert_eq!(message.correlation_id.as_deref(), Some(&*format!("call-{number}")));
            assert_eq!((message.attempt, &message.dead_letter_reason), (2, &None));
            assert!(!ids.contains(&message.message_id.to_string()));
            assert_eq!(message.budget.unwrap().timeout, Duration::from_secs(60));
            assert!(message.remaining().unwrap() > Duration::from_secs(50));
        }
        assert!(fixture.texts().await.is_empty());
    }

    #[test]
    fn expired_budget_starts_again() {
        let mut letter = Envelope::raw("Text", Vec::new());
        let expired = TimeBudget { timeout: Duration::from_secs(30), deadline_unix_ms: 1 };
        letter.budget = Some(expired);
        let left = next_attempt(&letter).remaining().unwrap();
        assert!(left > Duration::from_secs(20) && left <= Duration::from_secs(30));
        // A peer may send only the deadline.
        letter.timestamp = 1_000;
        letter.budget = Some(TimeBudget { timeout: UNSPECIFIED, deadline_unix_ms: 1_030_000 });
        let left = next_attempt(&letter).remaining().unwrap();
        assert!(left > Duration::from_secs(20) && left <= Duration::from_secs(30));
        letter.budget = None;
        assert_eq!(next_attempt(&letter).budget, None);
    }

    #[tokio::test]
    async fn dry_run_changes_nothing() {
        let mut fixture = DlqFixture::with_letters(3).await;
        let replayed =
            replay(&fixture.bus, &fixture.queue, Selection::Oldest(2), true).await.unwrap();
        assert_eq!((sent(&replayed), replayed.left), (vec!["0".into(), "1".into()], 3));
        assert!(fixture.drain_work_queue().await.is_empty());
        assert_eq!(fixture.texts().await, ["0", "1", "2"]);
    }

    #[tokio::test]
    async fn unselected_letters_keep_their_order() {
        let mut fixture = DlqFixture::with_letters(5).await;
        let ids = fixture.ids().await;
        let selected = [ids[3].clone(), ids[1].clone()];
        replay(&fixture.bus, &fixture.queue, Selection::ByIds(&selected), false).await.unwrap();
        assert_eq!(texts(&fixture.drain_work_queue().await), ["1", "3"]);
        assert_eq!(fixture.texts().await, ["0", "2", "4"]);
        replay(&fixture.bus, &fixture.queue, Selection::Oldest(2), false).await.unwrap();
        assert_eq!(texts(&fixture.drain_work_queue().await), ["0", "2"]);
        assert_eq!(fixture.texts().await, ["4"]);
    }

    #[tokio::test]
    async fn unknown_id_prevents_replay() {
        let mut fixture = DlqFixture::with_letters(2).await;
        let selected = [fixture.ids().await.remove(0), "unknown".to_owned()];
        let failure =
            replay(&fixture.bus, &fixture.queue, Selection::ByIds(&selected), false).await;
        assert_eq!(failure.unwrap_err().code, exit::ANSWERED_WITH_ERROR);
        assert!(fixture.drain_work_queue().await.is_empty());
        assert_eq!(fixture.texts().await, ["0", "1"]);
    }

    #[tokio::test]
    async fn failed_replay_reports_sent_and_remaining_letters() {
        let fixture = DlqFixture::with_letters(3).await;
        // A work queue with a capacity of one message, and its dead-letter queue.
        let full = RoutingKey::new("full").unwrap();
        let spec = QueueSpec::work(&full).with_max_length(1);
        drop(fixture.bus.consume(Subscription::new(spec.clone(), 1)).await.unwrap());
        let letters = QueueSpec::dead_letters_of(&spec.name);
        let mut into = letters.clone();
        into.bindings = vec![(&RoutingKey::new("dead.letters").unwrap()).into()];
        drop(fixture.bus.consume(Subscription::new(into, 1)).await.unwrap());
        for text in ["0", "1", "2"] {
            let envelope = Envelope::raw("Text", text.as_bytes().to_vec());
            let key = RoutingKey::new("dead.letters").unwrap();
            fixture.bus.publish(Publication::mandatory(key, envelope)).await.unwrap();
        }
        let all = Selection::Oldest(u32::MAX);
        let replayed = replay(&fixture.bus, &spec.name, all, false).await.unwrap();
        assert_eq!((sent(&replayed), replayed.left), (vec!["0".into()], 2));
        assert_eq!(replayed.failure.unwrap().code, exit::TEMPORARY);
        let inspection = super::super::show::inspect(&fixture.bus, &spec.name, all).await.unwrap();
        assert_eq!(texts(&inspection.letters), ["1", "2"]);
    }
}
