//! Replays on the in-memory bus.

use rockbot_bus::Subscription;
use rockbot_contracts::QueueSpec;

use super::*;
use crate::letters::dead_letters::tests::{DlqFixture, texts};

fn sent(replayed: &Replayed) -> Vec<String> {
    texts(&replayed.sent.iter().map(|(_, message)| message.clone()).collect::<Vec<_>>())
}

#[tokio::test(start_paused = true)]
async fn replayed_letter_is_next_attempt_with_full_budget() {
    let mut fixture = DlqFixture::with_letters(2).await;
    let ids = fixture.ids().await;
    let all = Selection::Oldest(u32::MAX);
    let replayed = replay(&fixture.bus, &fixture.queue, None, all, false).await.unwrap();
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

#[tokio::test(start_paused = true)]
async fn refused_letters_stay_in_order_and_others_are_resent() {
    let mut fixture = DlqFixture::with_letters(0).await;
    let senders = SenderCheck::new(&fixture.queue, "rockbot", Some("rockbot.operator"));
    for (number, user) in
        [Some("rockbot.tool-handler.web"), Some("rockbot.agent.a"), None, Some("")]
            .into_iter()
            .enumerate()
    {
        fixture.add_letter(number, user, "a").await;
    }
    for dry_run in [true, false] {
        let all = Selection::Oldest(u32::MAX);
        let replayed =
            replay(&fixture.bus, &fixture.queue, Some(&senders), all, dry_run).await.unwrap();
        assert_eq!(sent(&replayed), ["1", "2"]);
        let refused: Vec<_> = replayed.refused.iter().map(|(letter, _)| letter.clone()).collect();
        assert_eq!(texts(&refused), ["0", "3"]);
        assert_eq!(replayed.left, if dry_run { 4 } else { 2 });
        let user = replayed.refused[0].0.user_id.as_deref();
        assert_eq!(user, Some("rockbot.tool-handler.web"));
    }
    assert_eq!(texts(&fixture.drain_work_queue().await), ["1", "2"]);
    assert_eq!(fixture.texts().await, ["0", "3"]);
    let all = Selection::Oldest(u32::MAX);
    replay(&fixture.bus, &fixture.queue, None, all, false).await.unwrap();
    assert_eq!(texts(&fixture.drain_work_queue().await), ["0", "3"]);
}

#[tokio::test]
async fn replay_ends_with_many_refused_letters() {
    let mut fixture = DlqFixture::with_letters(0).await;
    let senders = SenderCheck::new(&fixture.queue, "rockbot", Some("rockbot.operator"));
    let held = usize::from(MAX_HELD);
    for number in 0..=held {
        fixture.add_letter(number, Some(""), "a").await;
    }
    let all = Selection::Oldest(u32::MAX);
    let replayed = replay(&fixture.bus, &fixture.queue, Some(&senders), all, false).await;
    assert_eq!(replayed.unwrap().refused.len(), held);
    let expected: Vec<_> = (0..=held).map(|number| number.to_string()).collect();
    assert_eq!(fixture.texts().await, expected);
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

#[tokio::test(start_paused = true)]
async fn dry_run_changes_nothing() {
    let mut fixture = DlqFixture::with_letters(3).await;
    let replayed =
        replay(&fixture.bus, &fixture.queue, None, Selection::Oldest(2), true).await.unwrap();
    assert_eq!((sent(&replayed), replayed.left), (vec!["0".into(), "1".into()], 3));
    assert!(fixture.drain_work_queue().await.is_empty());
    assert_eq!(fixture.texts().await, ["0", "1", "2"]);
}

#[tokio::test(start_paused = true)]
async fn unselected_letters_keep_their_order() {
    let mut fixture = DlqFixture::with_letters(5).await;
    let ids = fixture.ids().await;
    let selected = [ids[3].clone(), ids[1].clone()];
    replay(&fixture.bus, &fixture.queue, None, Selection::ByIds(&selected), false).await.unwrap();
    assert_eq!(texts(&fixture.drain_work_queue().await), ["1", "3"]);
    assert_eq!(fixture.texts().await, ["0", "2", "4"]);
    replay(&fixture.bus, &fixture.queue, None, Selection::Oldest(2), false).await.unwrap();
    assert_eq!(texts(&fixture.drain_work_queue().await), ["0", "2"]);
    assert_eq!(fixture.texts().await, ["4"]);
}

#[tokio::test(start_paused = true)]
async fn unknown_id_prevents_replay() {
    let mut fixture = DlqFixture::with_letters(2).await;
    let selected = [fixture.ids().await.remove(0), "unknown".to_owned()];
    let failure =
        replay(&fixture.bus, &fixture.queue, None, Selection::ByIds(&selected), false).await;
    assert!(matches!(failure.unwrap_err(), LetterError::NotFound { .. }));
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
    let replayed = replay(&fixture.bus, &spec.name, None, all, false).await.unwrap();
    assert_eq!((sent(&replayed), replayed.left), (vec!["0".into()], 2));
    let failure = replayed.failure.unwrap();
    let is_full = matches!(
        failure,
        LetterError::Publish { source: rockbot_bus::PublishError::Refused { .. }, .. }
    );
    assert!(is_full, "{failure:?}");
    let inspection = super::super::inspect::inspect(&fixture.bus, &spec.name, all).await.unwrap();
    assert_eq!(texts(&inspection.letters), ["1", "2"]);
}
