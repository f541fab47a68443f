//! Replies of an agent to its clients on a bus that delays, refuses, duplicates or loses them.

use std::{
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use futures_util::future::BoxFuture;
use rockbot_agent::{
    AgentClient, AgentInbox, ConversationRequestError, Replies, ReplyError, SendError, serve,
};
use rockbot_bus::{
    Assurance, Bus, BusReport, ConsumeError, Consumer, MemoryBus, Publication, PublishError,
    Subscription,
};
use rockbot_contracts::{
    AgentName, AgentReply, ApprovalId, ConversationRequest, ConversationResponse, Envelope,
    Executed, InstanceId, MessageId, QueueName, QueueSpec, ReplyBody, RoutingKey, ToolCallId,
    UserMessage,
    conversation::ConversationErrorCode,
    json::Limits,
    topology::{is_user_reply, user_conversation, user_message},
    user::TurnOutcome,
};
use rockbot_llm::ScriptedTurn;
use serde_json::json;
use tokio::time::{sleep, timeout};

use crate::harness::{AgentFixture, Behavior, ProbeTool, RecordingModel, message};

/// A bus with two publish channels, as RabbitMQ has them: an unconfirmed message arrives after the next
/// confirmed one. It also refuses a number of publications to users.
struct UnreliableBus {
    bus: MemoryBus,
    held_back: Mutex<Vec<Publication>>,
    refusals: AtomicUsize,
}

impl UnreliableBus {
    fn new(refusals: usize) -> Arc<Self> {
        let refusals = AtomicUsize::new(refusals);
        Arc::new(Self { bus: MemoryBus::new(), held_back: Mutex::default(), refusals })
    }

    async fn publish_reply(&self, publication: Publication) -> Result<(), PublishError> {
        let refused = self
            .refusals
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(1));
        if refused.is_ok() {
            return Err(PublishError::Disconnected { reason: "a test".to_owned() });
        }
        if publication.assurance == Assurance::Sent {
            self.held_back.lock().unwrap().push(publication);
            return Ok(());
        }
        let published = self.bus.publish(publication).await;
        let late = std::mem::take(&mut *self.held_back.lock().unwrap());
        for publication in late {
            self.bus.publish(publication).await?;
        }
        published
    }
}

impl Bus for UnreliableBus {
    fn publish(&self, publication: Publication) -> BoxFuture<'_, Result<(), PublishError>> {
        if is_user_reply(&publication.key) {
            Box::pin(self.publish_reply(publication))
        } else {
            self.bus.publish(publication)
        }
    }

    fn consume(&self, subscription: Subscription) -> BoxFuture<'_, Result<Consumer, ConsumeError>> {
        self.bus.consume(subscription)
    }

    fn inspect<'a>(
        &'a self,
        queues: &'a [QueueName],
    ) -> BoxFuture<'a, Result<BusReport, ConsumeError>> {
        self.bus.inspect(queues)
    }

    fn is_ready(&self) -> bool {
        self.bus.is_ready()
    }

    fn close(&self) -> BoxFuture<'_, ()> {
        self.bus.close()
    }
}

fn tester() -> AgentName {
    AgentName::new("tester").unwrap()
}

async fn client(bus: Arc<dyn Bus>) -> AgentClient {
    AgentClient::connect(bus, &InstanceId::new("proxy").unwrap()).await.unwrap()
}

/// Serves an agent that calls one tool and answers.
async fn agent_with_one_call(bus: &Arc<UnreliableBus>) -> AgentInbox {
    let echo = ProbeTool::new("echo", Behavior::Echo);
    let model = RecordingModel::script([
        ScriptedTurn::text("Let me look.").call("echo", json!({})),
        ScriptedTurn::text("Done."),
    ]);
    serve(AgentFixture::new().with(&echo).agent(&model), bus.clone(), 16).await.unwrap()
}

/// Reads all replies and checks that the call has its start and its end before the answer.
async fn check_complete(mut replies: Replies) {
    let mut all = Vec::new();
    while let Some(reply) = replies.next().await {
        all.push(reply.unwrap());
    }
    let position = |matches: fn(&ReplyBody) -> bool| {
        all.iter().position(|reply| matches(&reply.body)).unwrap_or_else(|| panic!("{all:#?}"))
    };
    let started = position(|body| matches!(body, ReplyBody::ToolStarted { .. }));
    let finished = position(|body| matches!(body, ReplyBody::ToolFinished { .. }));
    let answer = position(|body| matches!(body, ReplyBody::Answer { .. }));
    assert!(started < finished && finished < answer, "{all:#?}");
}

#[tokio::test]
async fn progress_is_not_overtaken_by_the_answer() {
    let bus = UnreliableBus::new(0);
    let _inbox = agent_with_one_call(&bus).await;
    let client = client(bus).await;
    let replies = client.send(&tester(), &message("s", "go")).await.unwrap();
    check_complete(replies).await;
}

#[tokio::test(start_paused = true)]
async fn call_events_survive_a_broker_outage() {
    let bus = UnreliableBus::new(8);
    let _inbox = agent_with_one_call(&bus).await;
    let client = client(bus).await;
    let replies = client.send(&tester(), &message("s", "go")).await.unwrap();
    check_complete(replies).await;
}

/// An agent that a test plays: it publishes replies itself.
struct PlayedAgent {
    bus: Arc<dyn Bus>,
    client: AgentClient,
    inbox: Consumer,
}

impl PlayedAgent {
    async fn new() -> Self {
        let bus: Arc<dyn Bus> = Arc::new(MemoryBus::new());
        let queue = QueueSpec::work(&user_message(&tester()));
        let inbox = bus.consume(Subscription::on_receipt(queue, 16)).await.unwrap();
        Self { client: client(bus.clone()).await, bus, inbox }
    }

    /// Sends a message and receives it.
    async fn send(&mut self) -> (Replies, Received) {
        let replies = self.client.send(&tester(), &message("s", "go")).await.unwrap();
        let envelope = self.inbox.next().await.unwrap().into_envelope();
        let received = Received { id: envelope.message_id.clone(), to: envelope.reply_to.unwrap() };
        (replies, received)
    }

    async fn reply(&self, received: &Received, sequence: u64, body: ReplyBody) {
        let reply = AgentReply {
            session_id: message("s", "").session_id,
            in_reply_to: received.id.clone(),
            agent: tester(),
            sequence,
            is_final: matches!(body, ReplyBody::Answer { .. }),
            body,
        };
        let envelope = Envelope::from_payload(&reply);
        self.bus.publish(Publication::mandatory(received.to.clone(), envelope)).await.unwrap();
    }
}

struct Received {
    id: MessageId,
    to: RoutingKey,
}

fn answer() -> ReplyBody {
    ReplyBody::Answer { text: "Done.".to_owned(), outcome: TurnOutcome::Completed, usage: None }
}

fn text(text: &str) -> ReplyBody {
    ReplyBody::TextDelta { text: text.to_owned() }
}

/// Returns the next reply, and the number of lost ones so far.
async fn next(replies: &mut Replies) -> (AgentReply, u64) {
    let reply = replies.next().await.unwrap().unwrap();
    (reply, replies.lost())
}

#[tokio::test]
async fn gaps_are_counted_and_duplicates_dropped() {
    let mut agent = PlayedAgent::new().await;
    let (mut replies, received) = agent.send().await;
    for (sequence, body) in
        [(1, text("a")), (1, text("a")), (4, ReplyBody::Steered {}), (3, text("b")), (6, answer())]
    {
        agent.reply(&received, sequence, body).await;
    }
    let (first, lost) = next(&mut replies).await;
    assert_eq!((first.body, lost), (text("a"), 0));
    let (second, lost) = next(&mut replies).await;
    assert_eq!((second.body, lost), (ReplyBody::Steered {}, 2));
    let (last, lost) = next(&mut replies).await;
    assert_eq!((last.body, lost), (answer(), 3));
    assert!(replies.next().await.is_none());
}

#[tokio::test]
async fn replies_of_a_later_process_continue_without_a_gap() {
    let mut agent = PlayedAgent::new().await;
    let (mut replies, received) = agent.send().await;
    let (first, second) = (AgentReply::sequence_base(1), AgentReply::sequence_base(2));
    let resumed = ReplyBody::Resumed { on: InstanceId::new("other").unwrap(), attempt: 2 };
    for (sequence, body) in [
        (first + 1, text("a")),
        (second + 1, resumed.clone()),
        // The first process was only suspended, and continues late.
        (first + 2, text("stale")),
        (second + 4, text("b")),
        (second + 5, answer()),
        (second + 5, answer()),
    ] {
        agent.reply(&received, sequence, body).await;
    }
    for (body, lost) in [(text("a"), 0), (resumed, 0), (text("b"), 2), (answer(), 2)] {
        let (reply, lost_before) = next(&mut replies).await;
        assert_eq!((reply.body, lost_before), (body, lost));
    }
    assert!(replies.next().await.is_none());
}

#[tokio::test]
async fn other_text_under_a_pending_id_is_not_sent() {
    let mut agent = PlayedAgent::new().await;
    let (first, received) = agent.send().await;
    let (go, stop) = (message("s", "go"), message("s", "stop"));
    let refused = agent.client.send_with_id(&tester(), &stop, received.id.clone()).await;
    let error = refused.unwrap_err();
    assert!(matches!(&error, SendError::OtherText { id } if *id == received.id), "{error}");
    assert!(!error.may_have_arrived());
    agent.reply(&received, 1, answer()).await;
    assert_eq!(first.last().await.unwrap().body, answer());
    let again = agent.client.send_with_id(&tester(), &go, received.id.clone()).await;
    assert!(again.is_ok(), "{again:?}");
    let next = agent.inbox.next().await.unwrap().into_envelope();
    assert_eq!(next.decode::<UserMessage>(Limits::default()).unwrap(), go);
}

#[tokio::test]
async fn adopting_client_receives_the_answer_instead_of_the_first() {
    let mut agent = PlayedAgent::new().await;
    let (first, received) = agent.send().await;
    let queue = QueueSpec::work(&user_conversation(&tester()));
    let mut requests = agent.bus.consume(Subscription::on_receipt(queue, 16)).await.unwrap();
    let instance = InstanceId::new("later").unwrap();
    let later = AgentClient::connect(agent.bus.clone(), &instance).await.unwrap();
    let session = message("s", "").session_id;
    let (agent_name, id) = (tester(), received.id.clone());
    let serve = async {
        let request = requests.next().await.unwrap().into_envelope();
        let payload: ConversationRequest = request.decode(Limits::default()).unwrap();
        let expected = ConversationRequest::Message {
            session_id: session.clone(),
            message_id: received.id.clone(),
        };
        assert_eq!(payload, expected);
        let response = ConversationResponse::Message { text: "go".to_owned(), is_answered: false };
        let envelope =
            Envelope::from_payload(&response).with_correlation_id(request.message_id.as_str());
        let publication = Publication::mandatory(request.reply_to.unwrap(), envelope);
        agent.bus.publish(publication).await.unwrap();
    };
    let (adopted, ()) = tokio::join!(later.adopt(&agent_name, &session, &id), serve);
    let adopted = adopted.unwrap();
    let resent = agent.inbox.next().await.unwrap().into_envelope();
    assert_eq!((&resent.message_id, resent.attempt), (&received.id, 2));
    assert_eq!(resent.decode::<UserMessage>(Limits::default()).unwrap(), message("s", "go"));
    let to = Received { id: received.id.clone(), to: resent.reply_to.unwrap() };
    agent.reply(&to, AgentReply::sequence_base(1) + 9, answer()).await;
    let last = adopted.last().await.unwrap();
    assert_eq!(last.body, answer());
    drop(first);
}

#[tokio::test]
async fn response_of_another_agent_is_dropped() {
    let agent = PlayedAgent::new().await;
    let queue = QueueSpec::work(&user_conversation(&tester()));
    let mut requests = agent.bus.consume(Subscription::on_receipt(queue, 16)).await.unwrap();
    let session_id = message("s", "").session_id;
    let request = ConversationRequest::Delete { session_id };
    let (name, refused) = (tester(), ConversationErrorCode::Busy);
    let serve = async {
        let request = requests.next().await.unwrap().into_envelope();
        let id = request.message_id.as_str();
        let failed = ConversationResponse::Failed { code: refused, message: "it runs".to_owned() };
        let forged = Envelope::from_payload(&ConversationResponse::Deleted {});
        for envelope in [
            forged.with_correlation_id("another"),
            Envelope::from_payload(&failed).with_correlation_id(id),
        ] {
            let to = request.reply_to.clone().unwrap();
            agent.bus.publish(Publication::mandatory(to, envelope)).await.unwrap();
        }
    };
    let (response, ()) = tokio::join!(agent.client.request(&name, &request), serve);
    let error = response.unwrap_err();
    assert!(
        matches!(&error, ConversationRequestError::Refused { code, message } if *code == refused && message == "it runs"),
        "{error}"
    );
}

/// A bus that does not confirm the first messages to agents, although it delivers them.
struct UnconfirmingBus {
    bus: MemoryBus,
    unconfirmed: AtomicUsize,
}

impl Bus for UnconfirmingBus {
    fn publish(&self, publication: Publication) -> BoxFuture<'_, Result<(), PublishError>> {
        Box::pin(async move {
            let key = publication.key.clone();
            self.bus.publish(publication).await?;
            let left = |left: usize| left.checked_sub(1);
            let count = &self.unconfirmed;
            match count.fetch_update(Ordering::Relaxed, Ordering::Relaxed, left) {
                Ok(_) => Err(PublishError::Unconfirmed { key, reason: "a test".to_owned() }),
                Err(_) => Ok(()),
            }
        })
    }

    fn consume(&self, subscription: Subscription) -> BoxFuture<'_, Result<Consumer, ConsumeError>> {
        self.bus.consume(subscription)
    }

    fn inspect<'a>(
        &'a self,
        queues: &'a [QueueName],
    ) -> BoxFuture<'a, Result<BusReport, ConsumeError>> {
        self.bus.inspect(queues)
    }

    fn is_ready(&self) -> bool {
        self.bus.is_ready()
    }

    fn close(&self) -> BoxFuture<'_, ()> {
        self.bus.close()
    }
}

#[tokio::test]
async fn unconfirmed_message_is_sent_again_under_its_id() {
    for (unconfirmed, copies, succeeds) in [(2, 3, true), (3, 3, false)] {
        let bus = UnconfirmingBus { bus: MemoryBus::new(), unconfirmed: unconfirmed.into() };
        let bus: Arc<dyn Bus> = Arc::new(bus);
        let queue = QueueSpec::work(&user_message(&tester()));
        let mut inbox = bus.consume(Subscription::on_receipt(queue, 16)).await.unwrap();
        let client = client(bus.clone()).await;
        let sent = client.send(&tester(), &message("s", "go")).await;
        assert_eq!(sent.is_ok(), succeeds, "{sent:?}");
        let mut ids = Vec::new();
        for _ in 0..copies {
            ids.push(inbox.next().await.unwrap().into_envelope().message_id);
        }
        assert!(ids.iter().all(|id| *id == ids[0]), "{ids:?}");
    }
}

#[tokio::test]
async fn slow_reader_receives_all_call_events() {
    let mut agent = PlayedAgent::new().await;
    let (mut replies, received) = agent.send().await;
    let call = ToolCallId::generate();
    let progress = |n| ReplyBody::ToolProgressed { tool_call_id: call.clone(), text: n };
    for sequence in 1..=3000 {
        agent.reply(&received, sequence, progress(sequence.to_string())).await;
    }
    let essential = [
        ReplyBody::ToolFinished {
            tool_call_id: call.clone(),
            tool_name: "slow".to_owned(),
            ran_on: None,
            elapsed_us: 1,
            bytes: 0,
            error: None,
            executed: Executed::Yes,
            child_loop_id: None,
            stages: None,
            result: None,
            result_left_out: 0,
        },
        ReplyBody::ApprovalAsked {
            approval_id: ApprovalId::generate(),
            asking_agent: tester(),
            tool_call_id: call.clone(),
            tool_name: "bash".to_owned(),
            tool_source: "files".to_owned(),
            arguments: String::new(),
            arguments_left_out: 0,
            call_hash: String::new(),
            expires_in_ms: 1,
            hints: None,
            rule: None,
        },
        answer(),
    ];
    for (sequence, body) in (3001..).zip(&essential) {
        agent.reply(&received, sequence, body.clone()).await;
    }
    // The client has received everything once it has received an answer to a later message.
    let (later, received) = agent.send().await;
    agent.reply(&received, 1, answer()).await;
    later.last().await.unwrap();
    let mut all = Vec::new();
    while let Some(reply) = replies.next().await {
        all.push(reply.unwrap().body);
    }
    assert!(all.ends_with(&essential), "{:?}", all.last());
    assert_eq!(replies.lost() as usize + all.len(), 3003);
    assert!(replies.lost() > 0, "the reader was slower than the bound");
}

#[tokio::test(start_paused = true)]
async fn idle_time_counts_across_dropped_waits() {
    let mut agent = PlayedAgent::new().await;
    let (mut replies, received) = agent.send().await;
    agent.reply(&received, 1, text("a")).await;
    next(&mut replies).await;
    // Time between two waits does not count: the reader was busy.
    sleep(Duration::from_secs(1000)).await;
    let mut waits = 0;
    let silent = loop {
        match timeout(Duration::from_secs(1), replies.next()).await {
            Ok(reply) => break reply.unwrap().unwrap_err(),
            Err(_) => waits += 1,
        }
        assert!(waits <= 120, "no idle timeout");
    };
    assert!(matches!(silent, ReplyError::Silent { .. }), "{silent}");
    assert!(waits >= 119, "{waits} s");
}

#[tokio::test]
async fn closed_client_ends_replies() {
    let mut agent = PlayedAgent::new().await;
    let (replies, _received) = agent.send().await;
    drop(agent.client);
    assert!(matches!(replies.last().await, Err(ReplyError::Closed)));
}
