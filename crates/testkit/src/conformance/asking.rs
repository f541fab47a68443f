//! Questions and answers.

use std::{
    sync::{Arc, Mutex},
    time::{Duration, Instant},
};

use rockbot_bus::{
    Consumer, Publication, PublishError, Request, RequestError, Requester, Settlement,
};
use rockbot_contracts::{Envelope, Message, RoutingKey, ToolProgress};

use crate::bed::{Bed, PATIENCE, address, key, message, next, soon, text_of, until, work};

fn question(id: &str) -> Request {
    Request {
        key: key("questions"),
        envelope: message(id).correlated(id),
        timeout: PATIENCE,
        grace: Duration::ZERO,
        on_interim: None,
        ask_again: false,
        give_up: None,
    }
}

fn requester(bed: &Bed, instance: &str) -> Arc<Requester> {
    Arc::new(Requester::new(bed.here.clone(), address("asker", instance)))
}

/// Takes a question: who wants the answer, and under which id.
async fn heard(consumer: &mut Consumer) -> (RoutingKey, String) {
    let delivery = next(consumer).await;
    let reply_to = delivery.envelope().reply_to.clone().expect("a question says where to answer");
    let id = text_of(&delivery);
    assert_eq!(delivery.envelope().correlation_id.as_deref(), Some(id.as_str()));
    assert!(delivery.envelope().remaining().is_some(), "a question has a time budget");
    delivery.settle(Settlement::Ack).await.expect("acked");
    (reply_to, id)
}

async fn answer(bed: &Bed, to: &RoutingKey, id: &str, text: &str) {
    let envelope = message(text).correlated(id);
    let publication = Publication::mandatory(to.clone(), envelope);
    bed.there.publish(publication).await.expect("somebody listens for answers");
}

fn text(envelope: &Envelope) -> String {
    serde_json::from_slice(&envelope.body).expect("a text")
}

fn ask(
    requester: &Arc<Requester>,
    request: Request,
) -> tokio::task::JoinHandle<Result<Envelope, RequestError>> {
    let requester = requester.clone();
    tokio::spawn(async move { requester.ask(request).await })
}

/// The whole way there and back.
pub async fn a_question_gets_its_answer(bed: Bed) {
    let mut consumer = bed.consume(work("questions"), 1).await;
    let asked = ask(&requester(&bed, "one"), question("q1"));
    let (to, id) = heard(&mut consumer).await;
    answer(&bed, &to, &id, "yes").await;
    let answered = soon("the answer", asked).await.expect("no panic").expect("an answer");
    assert_eq!(text(&answered), "yes");
}

/// Also while the first asker has not looked at its answer yet, and when it never does.
pub async fn an_answered_question_leaves_its_id_to_the_next(bed: Bed) {
    let mut consumer = bed.consume(work("questions"), 1).await;
    let requester = requester(&bed, "one");
    for looks in [true, false] {
        let mut first = Box::pin(requester.ask(question("q1")));
        let (to, id) = tokio::select! {
            heard = heard(&mut consumer) => heard,
            answered = &mut first => panic!("nobody answered, but {answered:?}"),
        };
        answer(&bed, &to, &id, "one").await;
        until("the first is answered", || requester.pending() == 0).await;
        let second = ask(&requester, question("q1"));
        let (to, id) = heard(&mut consumer).await;
        if looks {
            assert_eq!(text(&soon("the first answer", first).await.expect("an answer")), "one");
        } else {
            drop(first);
        }
        assert_eq!(requester.pending(), 1);
        answer(&bed, &to, &id, "two").await;
        let answered = soon("the second answer", second).await.expect("no panic");
        assert_eq!(text(&answered.expect("an answer")), "two");
    }
}

/// Answers are matched by id, not by order.
pub async fn answers_find_their_askers_in_any_order(bed: Bed) {
    let mut consumer = bed.consume(work("questions"), 100).await;
    let requester = requester(&bed, "one");
    let ids: Vec<_> = (0..20).map(|number| format!("q{number}")).collect();
    let asked: Vec<_> = ids.iter().map(|id| ask(&requester, question(id))).collect();
    let mut questions = Vec::new();
    for _ in &ids {
        questions.push(heard(&mut consumer).await);
    }
    for (to, id) in questions.iter().rev() {
        answer(&bed, to, id, &format!("answer to {id}")).await;
    }
    for (id, asked) in ids.iter().zip(asked) {
        let answered = soon("the answer", asked).await.expect("no panic").expect("an answer");
        assert_eq!(text(&answered), format!("answer to {id}"));
    }
    assert_eq!(requester.pending(), 0);
}

/// Nobody waits for a time-out to learn that nobody is there.
pub async fn a_question_to_nobody_fails_at_once(bed: Bed) {
    let requester = requester(&bed, "one");
    let began = Instant::now();
    let error = requester.ask(question("q1")).await.expect_err("nobody is there");
    assert!(matches!(error, RequestError::Publish(PublishError::Unroutable { .. })), "{error}");
    assert!(began.elapsed() < PATIENCE / 2, "that was a time-out");
    assert_eq!(requester.pending(), 0);
}

/// A wait has an end.
pub async fn a_question_without_an_answer_times_out(bed: Bed) {
    let _consumer = bed.consume(work("questions"), 1).await;
    let requester = requester(&bed, "one");
    let request = Request { timeout: Duration::from_millis(300), ..question("q1") };
    let error = requester.ask(request).await.expect_err("no answer");
    assert!(matches!(error, RequestError::TimedOut { .. }), "{error}");
    assert_eq!(requester.pending(), 0);
}

/// An answer after the time-out changes nothing but a counter.
pub async fn a_late_answer_is_dropped_and_counted(bed: Bed) {
    let mut consumer = bed.consume(work("questions"), 1).await;
    let requester = requester(&bed, "one");
    let request = Request { timeout: Duration::from_millis(500), ..question("q1") };
    let asked = ask(&requester, request);
    let (to, id) = heard(&mut consumer).await;
    asked.await.expect("no panic").expect_err("no answer in time");
    answer(&bed, &to, &id, "late").await;
    until("the late answer", || requester.stats().late() == 1).await;
    let asked = ask(&requester, question("q2"));
    let (to, id) = heard(&mut consumer).await;
    answer(&bed, &to, &id, "in time").await;
    assert_eq!(text(&soon("it", asked).await.expect("no panic").expect("an answer")), "in time");
}

/// The first answer counts.
pub async fn a_second_answer_is_dropped_and_counted(bed: Bed) {
    let mut consumer = bed.consume(work("questions"), 1).await;
    let requester = requester(&bed, "one");
    let asked = ask(&requester, question("q1"));
    let (to, id) = heard(&mut consumer).await;
    answer(&bed, &to, &id, "first").await;
    answer(&bed, &to, &id, "second").await;
    assert_eq!(text(&soon("it", asked).await.expect("no panic").expect("an answer")), "first");
    until("the second answer", || requester.stats().late() == 1).await;
}

/// An answer to a question of nobody's, or without an id, is not an answer.
pub async fn a_foreign_answer_is_dropped_and_counted(bed: Bed) {
    let mut consumer = bed.consume(work("questions"), 1).await;
    let requester = requester(&bed, "one");
    let asked = ask(&requester, question("q1"));
    let (to, id) = heard(&mut consumer).await;
    answer(&bed, &to, "somebody-elses", "foreign").await;
    let publication = Publication::mandatory(to.clone(), message("no id"));
    bed.there.publish(publication).await.expect("taken");
    until("both foreign answers", || requester.stats().late() == 2).await;
    answer(&bed, &to, &id, "mine").await;
    assert_eq!(text(&soon("it", asked).await.expect("no panic").expect("an answer")), "mine");
}

/// Signs of life come as they were sent, and before the answer.
pub async fn progress_comes_in_order_before_the_answer(bed: Bed) {
    let mut consumer = bed.consume(work("questions"), 1).await;
    let requester = requester(&bed, "one");
    let seen = Arc::new(Mutex::new(Vec::new()));
    let sink = seen.clone();
    let on_interim: Arc<dyn Fn(&Envelope) + Send + Sync> = Arc::new(move |envelope| {
        sink.lock().expect("not poisoned").push(text(envelope));
    });
    let asked = ask(&requester, Request { on_interim: Some(on_interim), ..question("q1") });
    let (to, id) = heard(&mut consumer).await;
    let progress_to = requester.address().tool_progress();
    for number in 0..5 {
        let body = serde_json::to_vec(&number.to_string()).expect("JSON");
        let envelope = Envelope::raw(ToolProgress::TYPE, body).correlated(id.as_str());
        let publication = Publication::announcement(progress_to.clone(), envelope);
        bed.there.publish(publication).await.expect("sent");
    }
    until("all progress", || requester.stats().interim() == 5).await;
    answer(&bed, &to, &id, "done").await;
    soon("the answer", asked).await.expect("no panic").expect("an answer");
    assert_eq!(*seen.lock().expect("not poisoned"), ["0", "1", "2", "3", "4"]);
}

/// Replicas of one agent have queues of their own.
pub async fn two_replicas_never_take_each_others_answers(bed: Bed) {
    let mut consumer = bed.consume(work("questions"), 10).await;
    let (one, two) = (requester(&bed, "one"), requester(&bed, "two"));
    // The same id on purpose: only the address tells them apart.
    let first = ask(&one, question("same"));
    let (to_one, id) = heard(&mut consumer).await;
    let second = ask(&two, question("same"));
    let (to_two, _) = heard(&mut consumer).await;
    assert_ne!(to_one, to_two);
    answer(&bed, &to_two, &id, "for two").await;
    answer(&bed, &to_one, &id, "for one").await;
    assert_eq!(text(&soon("it", first).await.expect("no panic").expect("one")), "for one");
    assert_eq!(text(&soon("it", second).await.expect("no panic").expect("two")), "for two");
    assert_eq!(one.stats().late() + two.stats().late(), 0);
}

/// A process that never asks has no queue, and one that asks often has one.
pub async fn a_requester_subscribes_once_and_lazily(bed: Bed) {
    let requester = requester(&bed, "one");
    let names = [requester.address().queue().name];
    let consumers = async || {
        let report = bed.here.inspect(&names).await.expect("a report");
        report.queues[0].depth().map(|depth| depth.consumers)
    };
    assert_eq!(consumers().await, None);
    let mut consumer = bed.consume(work("questions"), 100).await;
    let asked: Vec<_> =
        (0..10).map(|number| ask(&requester, question(&format!("q{number}")))).collect();
    for _ in &asked {
        let (to, id) = heard(&mut consumer).await;
        answer(&bed, &to, &id, "yes").await;
    }
    for asked in asked {
        soon("the answer", asked).await.expect("no panic").expect("an answer");
    }
    assert_eq!(consumers().await, Some(1));
}

/// Two open questions can't share an id, and every question needs one.
pub async fn a_correlation_id_in_use_is_refused(bed: Bed) {
    let mut consumer = bed.consume(work("questions"), 1).await;
    let requester = requester(&bed, "one");
    let asked = ask(&requester, question("q1"));
    let (to, id) = heard(&mut consumer).await;
    let error = requester.ask(question("q1")).await.expect_err("in use");
    assert!(matches!(error, RequestError::BadCorrelationId { .. }), "{error}");
    let error = requester.ask(question("")).await.expect_err("no id");
    assert!(matches!(error, RequestError::BadCorrelationId { .. }), "{error}");
    answer(&bed, &to, &id, "yes").await;
    soon("the answer", asked).await.expect("no panic").expect("the first is not harmed");
}

/// The map of open questions has a bound.
pub async fn too_many_open_questions_are_refused(bed: Bed) {
    let mut consumer = bed.consume(work("questions"), 10).await;
    let requester = Requester::new(bed.here.clone(), address("asker", "one")).with_max_pending(1);
    let requester = Arc::new(requester);
    let asked = ask(&requester, question("q1"));
    let (to, id) = heard(&mut consumer).await;
    let error = requester.ask(question("q2")).await.expect_err("one is open");
    assert!(matches!(error, RequestError::TooManyPending { limit: 1 }), "{error}");
    answer(&bed, &to, &id, "yes").await;
    soon("the answer", asked).await.expect("no panic").expect("an answer");
}

/// An asker that goes away leaves nothing behind.
pub async fn a_dropped_question_is_forgotten(bed: Bed) {
    let mut consumer = bed.consume(work("questions"), 1).await;
    let requester = requester(&bed, "one");
    let asked = ask(&requester, question("q1"));
    let (to, id) = heard(&mut consumer).await;
    asked.abort();
    until("the question is closed", || requester.pending() == 0).await;
    answer(&bed, &to, &id, "too late").await;
    until("the answer is counted as late", || requester.stats().late() == 1).await;
}
