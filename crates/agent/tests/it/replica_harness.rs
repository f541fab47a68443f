//! Several processes of one agent, which share its inbox and its conversations.

use std::{sync::Arc, time::Duration};

use futures_util::future::BoxFuture;
use rockbot_agent::{
    Agent, AgentClient, AgentInbox, AgentParts, ConversationOptions, Conversations, Replies,
    Sharing, serve_shared,
};
use rockbot_bus::{Bus, Consumer, MemoryBus, Publication, Subscription};
use rockbot_contracts::{
    AgentName, AgentReply, InstanceId, Message, QueueSpec, ReplyBody, RoutingKey, json::Limits,
    topology::user_response, user::TurnOutcome,
};
use rockbot_llm::{ChatModel, FinishReason};
use rockbot_store::{Clock, Extension, Store, StoreError, Stores, Write, Written};
use rockbot_testkit::{
    InterceptedStore, StoreInterceptor,
    fixture::{text_message, within_timeout},
};
use tokio::{sync::Semaphore, time::Instant};

use crate::harness::{
    AgentFixture, Answer, Behavior, CannedModel, ProbeTool, RecordingModel, calls, text_events,
};

/// The shared bus and stores of the processes of an agent.
pub(crate) struct Fleet {
    pub(crate) bus: Arc<dyn Bus>,
    pub(crate) stores: Stores,
}

/// A process of the agent with its own model and tool.
pub(crate) struct Replica {
    pub(crate) inbox: AgentInbox,
    pub(crate) model: Arc<RecordingModel>,
    pub(crate) tool: Arc<ProbeTool>,
    pub(crate) gate: Arc<Semaphore>,
}

impl Fleet {
    pub(crate) fn new() -> Self {
        Self { bus: Arc::new(MemoryBus::new()), stores: Stores::memory(Clock::System) }
    }

    /// Returns a fleet on another bus with the same conversations.
    pub(crate) fn on_another_bus(&self) -> Self {
        Self { bus: Arc::new(MemoryBus::new()), stores: self.stores.clone() }
    }

    /// Starts a process whose model returns these answers. Its tool `wait` waits for its gate.
    pub(crate) async fn start(
        &self,
        instance: &str,
        concurrency: u16,
        answers: impl IntoIterator<Item = Answer>,
    ) -> Replica {
        let sharing = Sharing::new(self.stores.store.clone(), InstanceId::new(instance).unwrap());
        self.start_with(sharing, concurrency, answers).await
    }

    pub(crate) async fn start_with(
        &self,
        sharing: Sharing,
        concurrency: u16,
        answers: impl IntoIterator<Item = Answer>,
    ) -> Replica {
        let gate = Arc::new(Semaphore::new(0));
        let tool = ProbeTool::new("wait", Behavior::Gated(gate.clone()));
        let model = RecordingModel::new(CannedModel::new(answers));
        let options = ConversationOptions {
            instance: sharing.instance.clone(),
            ..ConversationOptions::default()
        };
        let Stores { store, log } = self.stores.clone();
        let AgentFixture { definition, registry, .. } = AgentFixture::new().with(&tool);
        let shared_model: Arc<dyn ChatModel> = model.clone();
        let agent = Agent::new(AgentParts {
            conversations: Conversations::new(log, store, tester(), options),
            ..AgentParts::new(definition, shared_model, registry)
        });
        let inbox = serve_shared(agent, self.bus.clone(), concurrency, sharing).await.unwrap();
        Replica { inbox, model, tool, gate }
    }

    pub(crate) async fn client(&self) -> AgentClient {
        AgentClient::connect(self.bus.clone(), &InstanceId::new("proxy").unwrap()).await.unwrap()
    }

    /// Consumes the replies to messages that a test publishes itself, with [`reply_address`].
    pub(crate) async fn replies(&self) -> Consumer {
        let reply_to = reply_address();
        let queue = QueueSpec::reply(&reply_to, vec![(&reply_to).into()]);
        self.bus.consume(Subscription::on_receipt(queue, 16)).await.unwrap()
    }

    /// Fails if another reply was published. No process may be running.
    pub(crate) async fn expect_no_reply(&self, replies: &mut Consumer) {
        let end = Publication::mandatory(reply_address(), text_message("end"));
        self.bus.publish(end).await.unwrap();
        let next = within_timeout("the end", replies.next()).await.unwrap().into_envelope();
        assert_ne!(next.message_type(), AgentReply::TYPE, "{next:?}");
    }
}

pub(crate) fn tester() -> AgentName {
    AgentName::new("tester").unwrap()
}

pub(crate) fn reply_address() -> RoutingKey {
    user_response(&InstanceId::new("proxy").unwrap())
}

pub(crate) async fn next_reply(replies: &mut Consumer) -> AgentReply {
    let delivery = within_timeout("a reply", replies.next()).await.unwrap();
    delivery.into_envelope().decode(Limits::default()).unwrap()
}

/// Returns the text of the next answer.
pub(crate) async fn next_answer(replies: &mut Consumer) -> String {
    loop {
        if let ReplyBody::Answer { text, .. } = next_reply(replies).await.body {
            return text;
        }
    }
}

pub(crate) fn call_wait() -> Answer {
    Answer::Events(calls(&[("call-1", "wait", "{}")], FinishReason::ToolCalls))
}

pub(crate) fn say(text: &str) -> Answer {
    Answer::Events(text_events(text))
}

/// Returns the text and the outcome of the final reply, and the instances that continued the turn.
pub(crate) async fn answer(mut replies: Replies) -> (String, TurnOutcome, Vec<String>) {
    let mut resumed = Vec::new();
    let mut sequence = 0;
    loop {
        let reply = within_timeout("a reply", replies.next()).await.unwrap().unwrap();
        assert!(reply.sequence > sequence, "replies are ordered");
        sequence = reply.sequence;
        match reply.body {
            ReplyBody::Resumed { on, .. } => resumed.push(on.to_string()),
            ReplyBody::Answer { text, outcome, .. } => {
                assert_eq!(replies.lost(), 0, "no reply was lost");
                return (text, outcome, resumed);
            }
            _ => {}
        }
    }
}

/// No lease can be written until then.
pub(crate) struct LeaseOutage(Instant);

impl LeaseOutage {
    /// Returns the settings of a process whose leases cannot be written for a time.
    pub(crate) fn sharing(fleet: &Fleet, instance: &str, outage: Duration) -> Sharing {
        let store = fleet.stores.store.clone();
        let store = InterceptedStore::wrap(store, Self(Instant::now() + outage));
        Sharing::new(store, InstanceId::new(instance).unwrap())
    }
}

impl StoreInterceptor for LeaseOutage {
    fn write<'a>(
        &'a self,
        store: &'a dyn Store,
        write: Write,
    ) -> BoxFuture<'a, Result<Written, StoreError>> {
        Box::pin(async move {
            let is_lease = write.key.as_str().starts_with("conversation-owners/");
            if is_lease && Instant::now() < self.0 {
                return Err(StoreError::Unavailable { reason: "a test".to_owned() });
            }
            store.write(write).await
        })
    }

    fn extend<'a>(
        &'a self,
        store: &'a dyn Store,
        extensions: Vec<Extension>,
        ttl: Duration,
    ) -> BoxFuture<'a, Result<Vec<Written>, StoreError>> {
        Box::pin(async move {
            if Instant::now() < self.0 {
                return Err(StoreError::Unavailable { reason: "a test".to_owned() });
            }
            store.extend(extensions, ttl).await
        })
    }
}
