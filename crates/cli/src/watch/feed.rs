//! What crosses the bus: copies of the messages about calls, in a queue of this watch.

use std::{sync::Arc, time::Duration};

use rockbot_bus::{Bus, ConsumeError, Consumer, Look, Subscription};
use rockbot_contracts::{
    BindingPattern, Envelope, InstanceId, QueueName, QueueSpec, RoutingKey,
    identity::User,
    tool::REPLY_PROBE,
    topology::{
        monitored_answers, monitored_requests, script_invoke, tool_invoke, tool_invoke_mcp,
    },
};
use tokio::{
    sync::{mpsc, watch},
    task::JoinSet,
    time::{Instant, interval},
};

use super::heard::{self, Heard};

/// Deliveries on their way to this process. Each may have 4 MiB.
const PREFETCH: u16 = 32;

/// Messages that are read and not yet taken. While there are so many, the queue at the broker fills,
/// and drops its oldest.
const WAITING: usize = 256;

/// How often to look whether a missing work queue is there.
const LOOK_AGAIN: Duration = Duration::from_secs(2);

/// A message, and when it came.
#[derive(Debug, Clone)]
pub(super) struct Message {
    pub(super) at: Instant,
    pub(super) key: RoutingKey,
    /// What is wrong with it, where it can't be read.
    pub(super) heard: Result<Heard, &'static str>,
}

/// The messages about calls, from now on. Dropping it ends the watch.
pub(super) struct Feed {
    messages: mpsc::Receiver<Message>,
    _listeners: JoinSet<()>,
}

impl Feed {
    /// Begins to listen. What was asked and answered is kept only with `content`.
    ///
    /// A copy for a monitor counts as delivered: it would make a request routable that no queue
    /// takes, and its asker would wait for an answer instead of being told that nobody serves the
    /// tool. So requests are listened for only where their work queue is, which outlives its
    /// workers; for one that is missing this looks again and again. Of one that may not be looked
    /// at, an answer by a worker of it tells that it is there.
    pub(super) async fn open(bus: Arc<dyn Bus>, content: bool) -> Result<Self, ConsumeError> {
        let requests = monitored_requests().map(|key| (QueueSpec::work(&key).name, key));
        let names: Vec<_> = requests.iter().map(|(name, _)| name.clone()).collect();
        let there = bus.inspect(&names).await?.queues;
        let mut bindings = monitored_answers();
        let (mut missing, mut hidden) = (Vec::new(), Vec::new());
        for ((name, key), report) in requests.into_iter().zip(there) {
            match report.look {
                Look::There(_) => bindings.push((&key).into()),
                Look::Missing => missing.push((name, key)),
                Look::Refused => hidden.push(key),
            }
        }
        let (sender, messages) = mpsc::channel(WAITING);
        let mut listeners = JoinSet::new();
        let listener = Listener { bus, sender, content, served: Arc::default() };
        let consumer = listener.consume(bindings).await?;
        for (name, key) in missing {
            listeners.spawn(listener.clone().listen_once_there(name, key));
        }
        for key in hidden {
            listeners.spawn(listener.clone().listen_once_served(key));
        }
        listeners.spawn(listener.listen(consumer));
        Ok(Self { messages, _listeners: listeners })
    }

    /// The next message; `None` when the bus was closed.
    ///
    /// # Cancellation
    /// Safe: no message is lost when the future is dropped.
    pub(super) async fn next(&mut self) -> Option<Message> {
        self.messages.recv().await
    }
}

#[derive(Clone)]
struct Listener {
    bus: Arc<dyn Bus>,
    sender: mpsc::Sender<Message>,
    content: bool,
    /// Keys whose requests have a worker, by what was heard of workers.
    served: Arc<watch::Sender<Vec<RoutingKey>>>,
}

impl Listener {
    async fn consume(&self, bindings: Vec<BindingPattern>) -> Result<Consumer, ConsumeError> {
        let queue = QueueSpec::monitor(&InstanceId::generate(), bindings);
        self.bus.consume(Subscription::on_receipt(queue, PREFETCH)).await
    }

    async fn listen(self, mut consumer: Consumer) {
        while let Some(delivery) = consumer.next().await {
            let at = Instant::now();
            let key = delivery.routing_key().clone();
            self.note_worker(delivery.envelope());
            let heard = heard::read(&key, delivery.envelope(), self.content);
            let heard = heard.map_err(|error| heard::trouble(&error));
            // The question whether answers arrive is nobody's call.
            if heard.as_ref().is_ok_and(|heard| heard.tool.as_deref() == Some(REPLY_PROBE)) {
                continue;
            }
            if self.sender.send(Message { at, key, heard }).await.is_err() {
                return;
            }
        }
    }

    fn note_worker(&self, envelope: &Envelope) {
        let Some(key) = envelope.user_id.as_deref().and_then(served_by) else { return };
        self.served.send_if_modified(|served| {
            let is_new = !served.contains(&key);
            if is_new {
                served.push(key);
            }
            is_new
        });
    }

    async fn listen_once_there(self, queue: QueueName, key: RoutingKey) {
        let mut look = interval(LOOK_AGAIN);
        let names = [queue];
        loop {
            look.tick().await;
            // Without a connection there is another look later.
            let report = match self.bus.inspect(&names).await {
                Ok(report) => report,
                Err(ConsumeError::Disconnected { .. }) => continue,
                Err(_) => return,
            };
            match report.queues.first().map(|queue| queue.look) {
                Some(Look::There(_)) => break,
                // The broker, or the user's rights, became others.
                Some(Look::Refused) => return self.listen_once_served(key).await,
                Some(Look::Missing) | None => {}
            }
        }
        self.listen_for(key).await;
    }

    async fn listen_once_served(self, key: RoutingKey) {
        let mut served = self.served.subscribe();
        if served.wait_for(|served| served.contains(&key)).await.is_ok() {
            self.listen_for(key).await;
        }
    }

    async fn listen_for(self, key: RoutingKey) {
        let mut tries = interval(LOOK_AGAIN);
        let consumer = loop {
            tries.tick().await;
            match self.consume(vec![(&key).into()]).await {
                Ok(consumer) => break consumer,
                Err(ConsumeError::Disconnected { .. }) => {}
                Err(_) => return,
            }
        };
        self.listen(consumer).await;
    }
}

/// The key of the requests that a user of the broker serves. The broker vouches for the user of a
/// message, and lets a service consume before it answers.
fn served_by(user: &str) -> Option<RoutingKey> {
    match User::service_of(user)? {
        User::ToolHandler => Some(tool_invoke()),
        User::McpBridge => Some(tool_invoke_mcp()),
        User::ScriptsManager => Some(script_invoke()),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use futures_util::future::BoxFuture;
    use rockbot_bus::{BusReport, MemoryBus, Publication, PublishError};
    use rockbot_contracts::{
        Message as _, SessionId, ToolCallId, ToolCancel, ToolInvokeRequest, ToolProgress,
        topology::tool_cancel,
    };
    use tokio::time::timeout;

    use super::*;
    use crate::watch::heard::What;

    fn request(id: &str) -> Envelope {
        request_of("bash", id)
    }

    fn request_of(tool: &str, id: &str) -> Envelope {
        Envelope::of(&ToolInvokeRequest {
            tool_call_id: ToolCallId::new(id).unwrap(),
            tool_name: tool.to_owned(),
            arguments: "{}".to_owned(),
            session_id: SessionId::new("s").unwrap(),
        })
    }

    fn cancel(id: &str) -> Envelope {
        let tool_call_id = ToolCallId::new(id).unwrap();
        Envelope::of(&ToolCancel { tool_call_id, reason: "no".to_owned() })
    }

    async fn next(feed: &mut Feed) -> Message {
        timeout(Duration::from_secs(60), feed.next()).await.unwrap().unwrap()
    }

    async fn work(bus: &MemoryBus, key: &RoutingKey) -> Consumer {
        bus.consume(Subscription::new(QueueSpec::work(key), 10)).await.unwrap()
    }

    /// Asks for a tool again and again until the watch hears of it, and tells which call it heard of.
    async fn asked_until_heard(bus: &dyn Bus, feed: &mut Feed) -> String {
        let mut tries = interval(Duration::from_millis(100));
        loop {
            let ask = Publication::mandatory(tool_invoke(), request("asked again"));
            bus.publish(ask).await.unwrap();
            tokio::select! {
                message = next(feed) => return message.heard.unwrap().call.to_string(),
                _ = tries.tick() => {}
            }
        }
    }

    async fn expect_nobody_for_scripts(bus: &dyn Bus) {
        let asked = bus.publish(Publication::mandatory(script_invoke(), request("s"))).await;
        assert!(matches!(asked, Err(PublishError::Unroutable { .. })), "{asked:?}");
    }

    #[tokio::test]
    async fn copies_are_heard_and_the_worker_gets_the_message_all_the_same() {
        let bus = Arc::new(MemoryBus::new());
        let mut worker = work(&bus, &tool_invoke()).await;
        let mut feed = Feed::open(bus.clone(), false).await.unwrap();
        bus.publish(Publication::mandatory(tool_invoke(), request("a"))).await.unwrap();
        bus.publish(Publication::mandatory(tool_cancel(), cancel("a"))).await.unwrap();
        let asked = next(&mut feed).await.heard.unwrap();
        assert!(matches!(asked.what, What::Asked(_)), "{asked:?}");
        assert_eq!(asked.call.as_str(), "a");
        let cancelled = next(&mut feed).await.heard.unwrap();
        assert!(matches!(cancelled.what, What::Cancelled { reason: None }), "{cancelled:?}");
        assert_eq!(worker.next().await.unwrap().envelope().message_type(), ToolInvokeRequest::TYPE);
    }

    #[tokio::test]
    async fn a_message_that_cannot_be_read_is_told_and_the_next_one_is_heard() {
        let bus = Arc::new(MemoryBus::new());
        let _worker = work(&bus, &tool_invoke()).await;
        let mut feed = Feed::open(bus.clone(), false).await.unwrap();
        let nonsense = Envelope::raw(ToolInvokeRequest::TYPE, b"{".to_vec());
        for envelope in [nonsense, request("b")] {
            bus.publish(Publication::mandatory(tool_invoke(), envelope)).await.unwrap();
        }
        let bad = next(&mut feed).await;
        assert_eq!((bad.key, bad.heard), (tool_invoke(), Err("malformed")));
        assert_eq!(next(&mut feed).await.heard.unwrap().call.as_str(), "b");
    }

    #[tokio::test]
    async fn a_probe_of_replies_is_no_call() {
        let bus = Arc::new(MemoryBus::new());
        let _worker = work(&bus, &tool_invoke()).await;
        let mut feed = Feed::open(bus.clone(), false).await.unwrap();
        for envelope in [request_of(REPLY_PROBE, "probe"), request("b")] {
            bus.publish(Publication::mandatory(tool_invoke(), envelope)).await.unwrap();
        }
        assert_eq!(next(&mut feed).await.heard.unwrap().call.as_str(), "b");
    }

    #[tokio::test(start_paused = true)]
    async fn a_watch_hides_from_no_asker_that_nobody_serves_the_tool() {
        let bus = Arc::new(MemoryBus::new());
        let mut feed = Feed::open(bus.clone(), false).await.unwrap();
        let ask = Publication::mandatory(tool_invoke(), request("a"));
        let error = bus.publish(ask).await.unwrap_err();
        assert!(matches!(error, PublishError::Unroutable { .. }), "{error}");
        let to_one_bridge = RoutingKey::new("tool.invoke.mcp.at.bridge-0").unwrap();
        let asked = bus.publish(Publication::mandatory(to_one_bridge, request("a"))).await;
        assert!(matches!(asked, Err(PublishError::Unroutable { .. })), "{asked:?}");

        // Once somebody serves it, it is heard; the other keys are still missing.
        let _worker = work(&bus, &tool_invoke()).await;
        assert_eq!(asked_until_heard(&*bus, &mut feed).await, "asked again");
        expect_nobody_for_scripts(&*bus).await;
    }

    /// A bus that lets nobody look at its queues.
    struct Hiding(MemoryBus);

    impl Bus for Hiding {
        fn publish(&self, publication: Publication) -> BoxFuture<'_, Result<(), PublishError>> {
            self.0.publish(publication)
        }

        fn consume(
            &self,
            subscription: Subscription,
        ) -> BoxFuture<'_, Result<Consumer, ConsumeError>> {
            self.0.consume(subscription)
        }

        fn inspect<'a>(
            &'a self,
            queues: &'a [QueueName],
        ) -> BoxFuture<'a, Result<BusReport, ConsumeError>> {
            Box::pin(async move {
                let mut report = self.0.inspect(queues).await?;
                report.queues.iter_mut().for_each(|queue| queue.look = Look::Refused);
                Ok(report)
            })
        }

        fn is_ready(&self) -> bool {
            self.0.is_ready()
        }

        fn close(&self) -> BoxFuture<'_, ()> {
            self.0.close()
        }
    }

    #[tokio::test(start_paused = true)]
    async fn of_a_queue_that_may_not_be_looked_at_requests_are_heard_once_a_worker_answered() {
        let bus = Arc::new(Hiding(MemoryBus::new()));
        let _worker = work(&bus.0, &tool_invoke()).await;
        let mut feed = Feed::open(bus.clone(), false).await.unwrap();
        let ask = Publication::mandatory(tool_invoke(), request("not heard"));
        bus.publish(ask).await.unwrap();
        let progress = ToolProgress {
            tool_call_id: ToolCallId::new("not heard").unwrap(),
            tool_name: "bash".to_owned(),
            sequence: 1,
            text: None,
            partial: None,
        };
        let mut progress = Envelope::of(&progress);
        progress.user_id = Some("rockbot.tool-handler".into());
        let key = RoutingKey::new("tool.progress.assistant.i").unwrap();
        bus.publish(Publication::mandatory(key, progress)).await.unwrap();
        let first = next(&mut feed).await.heard.unwrap();
        assert!(matches!(first.what, What::Progressed(_)), "{first:?}");
        assert_eq!(asked_until_heard(&*bus, &mut feed).await, "asked again");
        // Nobody was heard of who serves these.
        expect_nobody_for_scripts(&*bus).await;
    }

    #[test]
    fn only_a_worker_tells_that_its_queue_is_there() {
        assert_eq!(served_by("rockbot.tool-handler"), Some(tool_invoke()));
        assert_eq!(served_by("fleet.a.mcp-bridge"), Some(tool_invoke_mcp()));
        assert_eq!(served_by("rockbot.scripts-manager"), Some(script_invoke()));
        for user in ["rockbot.agent.tool-handler", "rockbot.cli", "tool-handler", "guest", ""] {
            assert_eq!(served_by(user), None, "{user}");
        }
    }

    #[tokio::test]
    async fn a_watch_that_is_slow_makes_no_publisher_wait_or_fail() {
        let bus = Arc::new(MemoryBus::new());
        let mut worker = work(&bus, &tool_invoke()).await;
        let feed = Feed::open(bus.clone(), false).await.unwrap();
        for number in 0..12_000 {
            let request = request(&format!("call-{number}"));
            bus.publish(Publication::mandatory(tool_invoke(), request)).await.unwrap();
        }
        drop(feed);
        assert!(worker.next().await.is_some());
    }
}
