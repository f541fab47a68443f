//! `rockbot dlq replay`: dead letters get another chance.

use std::time::Duration;

use anyhow::anyhow;
use rockbot_bus::{Bus, Publication, PublishError, Settlement};
use rockbot_contracts::{Envelope, QueueName, RoutingKey, envelope::TimeBudget};
use rockbot_service::exit;
use serde_json::json;

use super::letters::{Choice, Letters, Purpose};
use crate::{
    arguments::Which,
    ending::{Exits, Failure, Outcome},
    print::{note, say},
    show,
};

/// What was sent, and what was not.
#[derive(Debug)]
pub(super) struct Replayed {
    /// Dead letters and what was sent in their place; with a rehearsal, what would be sent.
    pub(super) sent: Vec<(Envelope, Envelope)>,
    /// How many dead letters stay in the queue, those that were not chosen among them.
    pub(super) left: u32,
    /// Why it stopped before the last one.
    pub(super) stopped: Option<Failure>,
}

pub(super) async fn run(
    bus: &dyn Bus,
    queue: &QueueName,
    which: &Which,
    limit: Option<u32>,
    json: bool,
) -> Outcome {
    let choice = Choice::of(&which.ids, limit.unwrap_or(u32::MAX));
    let Replayed { sent, left, stopped } = replay(bus, queue, choice, which.dry_run).await?;
    if json {
        let letters: Vec<_> = sent
            .iter()
            .map(|(letter, again)| {
                let sent_as = (!which.dry_run).then_some(again.message_id.as_str());
                json!({"messageId": letter.message_id.as_str(), "sentAs": sent_as,
                    "correlationId": letter.correlation_id.as_deref(), "type": letter.message_type()})
            })
            .collect();
        let error = stopped.as_ref().map(|failure| format!("{:#}", failure.cause));
        let said = json!({"queue": queue.as_str(), "dryRun": which.dry_run, "replayed": letters,
            "left": left, "error": error});
        say!("{}", show::json(&said))?;
    } else {
        let rows = sent.iter().map(|(letter, _)| {
            let id = letter.correlation_id.as_deref().unwrap_or("–");
            [letter.message_id.as_str(), letter.message_type(), id].map(show::visible_line).into()
        });
        if !sent.is_empty() {
            say!("{}\n", show::table(&["message id", "type", "correlation id"], rows))?;
        }
        let verb = if which.dry_run { "would be sent" } else { "sent" };
        let sent = show::count(sent.len(), "dead letter");
        note!("{sent} {verb} to {queue}, {left} left");
    }
    stopped.map_or(Ok(exit::OK), Err)
}

/// Sends the chosen letters to their work queue, one after the other, and settles each when the
/// message in its place is confirmed. Stops at the first that can't be sent or settled.
pub(super) async fn replay(
    bus: &dyn Bus,
    queue: &QueueName,
    choice: Choice<'_>,
    dry_run: bool,
) -> Result<Replayed, Failure> {
    let key = RoutingKey::new(queue.as_str()).exits(exit::USAGE)?;
    let purpose = if dry_run { Purpose::Look } else { Purpose::Settle };
    let mut letters = Letters::open(bus, queue, choice, purpose).await?;
    let mut replayed = Replayed { sent: Vec::new(), left: letters.waiting(), stopped: None };
    while let Some(letter) = letters.next().await {
        let again = once_more(letter.delivery.envelope());
        let pair = (letter.delivery.envelope().clone(), again.clone());
        if dry_run {
            letters.keep(letter);
            replayed.sent.push(pair);
            continue;
        }
        if let Err(error) = bus.publish(Publication::mandatory(key.clone(), again)).await {
            letters.keep(letter);
            replayed.stopped = Some(not_sent(&pair.0, error));
            break;
        }
        replayed.sent.push(pair);
        if let Err(error) = letter.delivery.settle(Settlement::Ack).await {
            let cause = anyhow!(error).context("a message was sent, and is still a dead letter");
            replayed.stopped = Some(Failure { code: exit::UNAVAILABLE, cause });
            break;
        }
        replayed.left -= 1;
    }
    letters.close().await;
    Ok(replayed)
}

/// The message in place of a dead letter: asked again, with as much time as it had.
fn once_more(letter: &Envelope) -> Envelope {
    let mut again = letter.clone().next_attempt();
    again.dead_letter_reason = None;
    again.budget = letter.budget.map(|budget| {
        let said = budget.timeout < UNSAID;
        // Without a length it is what was left when the message was made.
        let until = budget.deadline_unix_ms.saturating_sub(letter.timestamp.saturating_mul(1000));
        let length = if said { budget.timeout } else { Duration::from_millis(until) };
        TimeBudget::starting_now(length)
    });
    again
}

/// What a reader makes of a budget whose length was not said.
const UNSAID: Duration = Duration::from_millis(u64::MAX);

fn not_sent(letter: &Envelope, error: PublishError) -> Failure {
    use PublishError::{Closed, Disconnected, Refused, Unconfirmed, Unroutable};
    let code = if matches!(error, Refused { .. } | Unconfirmed { .. }) {
        exit::TEMPORARY
    } else if matches!(error, Unroutable { .. } | Disconnected { .. } | Closed) {
        exit::UNAVAILABLE
    } else {
        // It can never be sent.
        exit::ANSWERED_WITH_ERROR
    };
    let id = show::visible_line(letter.message_id.as_str());
    Failure { code, cause: anyhow!(error).context(format!("{id} stays a dead letter")) }
}

#[cfg(test)]
mod tests {
    use rockbot_bus::Subscription;
    use rockbot_contracts::QueueSpec;

    use super::*;
    use crate::dlq::letters::tests::{Bin, texts};

    fn sent(replayed: &Replayed) -> Vec<String> {
        texts(&replayed.sent.iter().map(|(_, again)| again.clone()).collect::<Vec<_>>())
    }

    #[tokio::test]
    async fn each_letter_is_asked_again_with_a_fresh_budget_of_the_same_length() {
        let mut bin = Bin::with(2).await;
        let ids = bin.ids().await;
        let all = Choice::Oldest(u32::MAX);
        let replayed = replay(&bin.bus, &bin.queue, all, false).await.unwrap();
        assert_eq!((sent(&replayed), replayed.left), (vec!["0".into(), "1".into()], 0));
        let arrived = bin.at_work().await;
        assert_eq!(texts(&arrived), ["0", "1"]);
        for (number, again) in arrived.iter().enumerate() {
            assert_eq!(again.correlation_id.as_deref(), Some(&*format!("call-{number}")));
            assert_eq!((again.attempt, &again.dead_letter_reason), (2, &None));
            assert!(!ids.contains(&again.message_id.to_string()));
            assert_eq!(again.budget.unwrap().timeout, Duration::from_secs(60));
            assert!(again.remaining().unwrap() > Duration::from_secs(50));
        }
        assert!(bin.texts().await.is_empty());
    }

    #[test]
    fn a_budget_that_is_over_begins_anew() {
        let mut letter = Envelope::raw("Text", Vec::new());
        let over = TimeBudget { timeout: Duration::from_secs(30), deadline_unix_ms: 1 };
        letter.budget = Some(over);
        let left = once_more(&letter).remaining().unwrap();
        assert!(left > Duration::from_secs(20) && left <= Duration::from_secs(30));
        // Of a peer that says only when it ends.
        letter.timestamp = 1_000;
        letter.budget = Some(TimeBudget { timeout: UNSAID, deadline_unix_ms: 1_030_000 });
        let left = once_more(&letter).remaining().unwrap();
        assert!(left > Duration::from_secs(20) && left <= Duration::from_secs(30));
        letter.budget = None;
        assert_eq!(once_more(&letter).budget, None);
    }

    #[tokio::test]
    async fn a_rehearsal_changes_nothing() {
        let mut bin = Bin::with(3).await;
        let replayed = replay(&bin.bus, &bin.queue, Choice::Oldest(2), true).await.unwrap();
        assert_eq!((sent(&replayed), replayed.left), (vec!["0".into(), "1".into()], 3));
        assert!(bin.at_work().await.is_empty());
        assert_eq!(bin.texts().await, ["0", "1", "2"]);
    }

    #[tokio::test]
    async fn only_the_chosen_are_sent_and_the_others_keep_their_order() {
        let mut bin = Bin::with(5).await;
        let ids = bin.ids().await;
        let chosen = [ids[3].clone(), ids[1].clone()];
        replay(&bin.bus, &bin.queue, Choice::ByIds(&chosen), false).await.unwrap();
        assert_eq!(texts(&bin.at_work().await), ["1", "3"]);
        assert_eq!(bin.texts().await, ["0", "2", "4"]);
        replay(&bin.bus, &bin.queue, Choice::Oldest(2), false).await.unwrap();
        assert_eq!(texts(&bin.at_work().await), ["0", "2"]);
        assert_eq!(bin.texts().await, ["4"]);
    }

    #[tokio::test]
    async fn one_unknown_id_and_nothing_is_sent() {
        let mut bin = Bin::with(2).await;
        let chosen = [bin.ids().await.remove(0), "nobody".to_owned()];
        let refused = replay(&bin.bus, &bin.queue, Choice::ByIds(&chosen), false).await;
        assert_eq!(refused.unwrap_err().code, exit::ANSWERED_WITH_ERROR);
        assert!(bin.at_work().await.is_empty());
        assert_eq!(bin.texts().await, ["0", "1"]);
    }

    #[tokio::test]
    async fn a_failure_stops_with_what_was_sent_and_what_was_not() {
        let bin = Bin::with(3).await;
        // Its own bin, and a work queue that has room for one message only.
        let full = RoutingKey::new("full").unwrap();
        let spec = QueueSpec::work(&full).with_max_length(1);
        drop(bin.bus.consume(Subscription::new(spec.clone(), 1)).await.unwrap());
        let letters = QueueSpec::dead_letters_of(&spec.name);
        let mut into = letters.clone();
        into.bindings = vec![(&RoutingKey::new("into.the.bin").unwrap()).into()];
        drop(bin.bus.consume(Subscription::new(into, 1)).await.unwrap());
        for text in ["0", "1", "2"] {
            let envelope = Envelope::raw("Text", text.as_bytes().to_vec());
            let key = RoutingKey::new("into.the.bin").unwrap();
            bin.bus.publish(Publication::mandatory(key, envelope)).await.unwrap();
        }
        let all = Choice::Oldest(u32::MAX);
        let replayed = replay(&bin.bus, &spec.name, all, false).await.unwrap();
        assert_eq!((sent(&replayed), replayed.left), (vec!["0".into()], 2));
        assert_eq!(replayed.stopped.unwrap().code, exit::TEMPORARY);
        let seen = super::super::show::look(&bin.bus, &spec.name, all).await.unwrap();
        assert_eq!(texts(&seen.letters), ["1", "2"]);
    }
}
