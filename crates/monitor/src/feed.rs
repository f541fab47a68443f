//! The message feed: copies of the messages about calls, in a queue of this process.

use std::{collections::BTreeSet, sync::Arc, time::Duration};

use parking_lot::Mutex;
use rockbot_bus::{Bus, ConsumeError, Consumer, QueueState, Subscription};
use rockbot_contracts::{
    BindingPattern, Envelope, HandlerPool, InstanceId, Message as _, PoolName, QueueName,
    QueueSpec, RoutingKey, ToolCatalog,
    identity::User,
    json::Limits,
    tool::REPLY_PROBE,
    topology::{
        monitored_replies, monitored_requests, script_invoke, tool_invoke, tool_invoke_mcp,
    },
};
use rockbot_tool_rpc::catalog::{CatalogObserver, CatalogSnapshot};
use tokio::{
    sync::{mpsc, watch},
    task::JoinSet,
    time::{Instant, interval},
};

use crate::message::{self, CallMessage};

/// The prefetch of the feed's queue. Each delivery may have 4 MiB.
const PREFETCH: u16 = 32;

/// The capacity of the feed, in messages. When it is full, the queue at the broker fills and drops its
/// oldest messages.
const CAPACITY: usize = 256;

/// The maximum number of request keys whose handlers are known.
const MAX_KEYS: usize = 64;

/// The interval between two checks for a missing work queue.
const RETRY_INTERVAL: Duration = Duration::from_secs(2);

/// An observed message and its arrival.
#[derive(Debug, Clone)]
pub struct Observed {
    /// The arrival.
    pub at: Instant,
    /// The routing key.
    pub key: RoutingKey,
    /// The decoded message, or why it cannot be decoded.
    pub message: Result<CallMessage, &'static str>,
}

/// The feed of messages about calls. Dropping it ends the subscription.
#[derive(Debug)]
pub struct Feed {
    messages: mpsc::Receiver<Observed>,
    /// Requests that are observed only after their handler sent a message.
    hidden: Vec<RoutingKey>,
    catalog: Arc<Mutex<CatalogObserver>>,
    _listeners: JoinSet<()>,
}

impl Feed {
    /// Subscribes to the messages about calls. Arguments and results are kept only with `content`.
    ///
    /// A copy counts as a delivery: it would make a request routable that no work queue receives, and its
    /// caller would wait for a reply instead of failing at once. So requests are observed only when their
    /// work queue exists, which outlives its consumers. A missing queue is checked again every 2 s. When
    /// the user may not inspect a queue, a message from one of its handlers shows that it exists.
    ///
    /// Pools that are not among `pools` are observed from the first message or announcement of one of their
    /// handlers on.
    ///
    /// # Errors
    /// When the bus is unavailable, or refuses the queue.
    pub async fn open(
        bus: Arc<dyn Bus>,
        content: bool,
        pools: &[PoolName],
    ) -> Result<Self, ConsumeError> {
        let pools = pools.iter().map(|pool| HandlerPool::Named(pool.clone()).invoke_key());
        let keys: BTreeSet<_> = monitored_requests().into_iter().chain(pools).collect();
        let requests: Vec<_> =
            keys.iter().map(|key| (QueueSpec::work(key).name, key.clone())).collect();
        let names: Vec<_> = requests.iter().map(|(name, _)| name.clone()).collect();
        let reports = bus.inspect(&names).await?.queues;
        let mut bindings = monitored_replies();
        let (mut missing, mut hidden) = (Vec::new(), Vec::new());
        for ((name, key), report) in requests.into_iter().zip(reports) {
            match report.state {
                QueueState::Present(_) => bindings.push((&key).into()),
                QueueState::Missing => missing.push((name, key)),
                QueueState::Refused => hidden.push(key),
            }
        }
        let (sender, messages) = mpsc::channel(CAPACITY);
        let catalog = Arc::<Mutex<CatalogObserver>>::default();
        let mut listeners = JoinSet::new();
        let listener =
            Listener { bus, sender, content, active: Arc::default(), catalog: catalog.clone() };
        let consumer = listener.consume(bindings).await?;
        for (name, key) in missing {
            listeners.spawn(listener.clone().listen_when_created(name, key));
        }
        for key in hidden.clone() {
            listeners.spawn(listener.clone().listen_when_active(key));
        }
        listeners.spawn(listener.clone().listen_to_new_pools(keys));
        listeners.spawn(listener.listen(consumer));
        Ok(Self { messages, hidden, catalog, _listeners: listeners })
    }

    /// Returns a notice for the requests that are not observed from the start, if there are any.
    pub fn notice(&self) -> Option<String> {
        let hidden: Vec<_> = self.hidden.iter().map(RoutingKey::as_str).collect();
        (!hidden.is_empty()).then(|| {
            format!("requests of {} are shown after their handler's first reply", hidden.join(", "))
        })
    }

    /// Returns the handlers that announced themselves since the feed was opened, without those that stopped.
    /// Each announces itself every 10 s.
    #[must_use]
    pub fn catalog(&self) -> CatalogSnapshot {
        self.catalog.lock().snapshot()
    }

    /// Returns the next message; `None` when the bus was closed.
    ///
    /// # Cancellation
    /// Safe: no message is lost when the future is dropped.
    pub async fn next(&mut self) -> Option<Observed> {
        self.messages.recv().await
    }
}

#[derive(Clone)]
struct Listener {
    bus: Arc<dyn Bus>,
    sender: mpsc::Sender<Observed>,
    content: bool,
    /// The keys whose handlers have sent messages.
    active: Arc<watch::Sender<Vec<RoutingKey>>>,
    catalog: Arc<Mutex<CatalogObserver>>,
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
            let envelope = delivery.envelope();
            if let Some(key) = envelope.user_id.as_deref().and_then(request_key) {
                self.mark_active(key);
            }
            if envelope.message_type() == ToolCatalog::TYPE {
                self.catalog.lock().observe(envelope);
                if let Some(pool) = announced_pool(envelope) {
                    self.mark_active(pool.invoke_key());
                }
                continue;
            }
            let message = message::decode(&key, delivery.envelope(), self.content);
            let message = message.map_err(|error| message::describe_error(&error));
            // Probes of the reply path are not calls.
            if message.as_ref().is_ok_and(|message| message.tool.as_deref() == Some(REPLY_PROBE)) {
                continue;
            }
            if self.sender.send(Observed { at, key, message }).await.is_err() {
                return;
            }
        }
    }

    /// Marks a request key as one whose handlers are running.
    fn mark_active(&self, key: RoutingKey) {
        self.active.send_if_modified(|active| {
            let is_new = !active.contains(&key) && active.len() < MAX_KEYS;
            if is_new {
                active.push(key);
            }
            is_new
        });
    }

    async fn listen_when_created(self, queue: QueueName, key: RoutingKey) {
        let mut retry = interval(RETRY_INTERVAL);
        let names = [queue];
        loop {
            retry.tick().await;
            // Without a connection, try again later.
            let report = match self.bus.inspect(&names).await {
                Ok(report) => report,
                Err(ConsumeError::Disconnected { .. }) => continue,
                Err(_) => return,
            };
            match report.queues.first().map(|queue| queue.state) {
                Some(QueueState::Present(_)) => break,
                // The broker or the user's permissions changed.
                Some(QueueState::Refused) => return self.listen_when_active(key).await,
                Some(QueueState::Missing) | None => {}
            }
        }
        self.listen_for(key).await;
    }

    async fn listen_when_active(self, key: RoutingKey) {
        let mut active = self.active.subscribe();
        if active.wait_for(|active| active.contains(&key)).await.is_ok() {
            self.listen_for(key).await;
        }
    }

    /// Listens to the requests of pools that become active, other than those with a key among `known`.
    async fn listen_to_new_pools(self, mut known: BTreeSet<RoutingKey>) {
        let mut active = self.active.subscribe();
        let mut listeners = JoinSet::new();
        loop {
            let keys = active.borrow_and_update().clone();
            let is_pool = |key: &RoutingKey| HandlerPool::from_invoke_key(key).is_some();
            for key in keys.into_iter().filter(is_pool) {
                if known.insert(key.clone()) {
                    let queue = QueueSpec::work(&key).name;
                    listeners.spawn(self.clone().listen_when_created(queue, key));
                }
            }
            if active.changed().await.is_err() {
                return;
            }
        }
    }

    async fn listen_for(self, key: RoutingKey) {
        let mut retry = interval(RETRY_INTERVAL);
        let consumer = loop {
            retry.tick().await;
            match self.consume(vec![(&key).into()]).await {
                Ok(consumer) => break consumer,
                Err(ConsumeError::Disconnected { .. }) => {}
                Err(_) => return,
            }
        };
        self.listen(consumer).await;
    }
}

/// Returns the key of the requests that the service of a broker user handles. The broker validates the
/// user of a message, and a service consumes its queue before it replies.
fn request_key(user: &str) -> Option<RoutingKey> {
    match User::service_of(user)? {
        User::ToolHandler => Some(tool_invoke()),
        User::PoolHandler(pool) => Some(HandlerPool::Named(pool).invoke_key()),
        User::McpBridge => Some(tool_invoke_mcp()),
        User::ScriptsManager => Some(script_invoke()),
        _ => None,
    }
}

/// Returns the pool that an announcement names, if its sender serves it.
fn announced_pool(announcement: &Envelope) -> Option<HandlerPool> {
    let pool = announcement.decode::<ToolCatalog>(Limits::default()).ok()?.pool()?;
    pool.may_be_served_by(announcement.user_id.as_deref()).then_some(pool)
}

#[cfg(test)]
mod tests {
    use futures_util::future::BoxFuture;
    use rockbot_bus::{BusReport, MemoryBus, Publication, PublishError};
    use rockbot_contracts::{
        SessionId, ToolCallId, ToolCancel, ToolHints, ToolInvokeRequest, ToolProgress,
        ToolRegistration, ToolSource,
        topology::{tool_cancel, tool_catalog_announce},
    };
    use tokio::time::timeout;

    use super::*;
    use crate::message::MessageKind;

    fn request(id: &str) -> Envelope {
        request_of("bash", id)
    }

    fn request_of(tool: &str, id: &str) -> Envelope {
        Envelope::from_payload(&ToolInvokeRequest {
            tool_call_id: ToolCallId::new(id).unwrap(),
            tool_name: tool.to_owned(),
            arguments: "{}".to_owned(),
            session_id: SessionId::new("s").unwrap(),
        })
    }

    fn cancel(id: &str) -> Envelope {
        let tool_call_id = ToolCallId::new(id).unwrap();
        Envelope::from_payload(&ToolCancel { tool_call_id, reason: "no".to_owned() })
    }

    async fn next(feed: &mut Feed) -> Observed {
        timeout(Duration::from_secs(60), feed.next()).await.unwrap().unwrap()
    }

    async fn consume_work_queue(bus: &MemoryBus, key: &RoutingKey) -> Consumer {
        bus.consume(Subscription::new(QueueSpec::work(key), 10)).await.unwrap()
    }

    /// Publishes requests until the watch observes one, and returns its call id.
    async fn publish_until_observed(bus: &dyn Bus, feed: &mut Feed) -> String {
        let mut retry = interval(Duration::from_millis(100));
        loop {
            let publication = Publication::mandatory(tool_invoke(), request("observed"));
            bus.publish(publication).await.unwrap();
            tokio::select! {
                observed = next(feed) => return observed.message.unwrap().call.to_string(),
                _ = retry.tick() => {}
            }
        }
    }

    async fn assert_scripts_unroutable(bus: &dyn Bus) {
        let published = bus.publish(Publication::mandatory(script_invoke(), request("s"))).await;
        assert!(matches!(published, Err(PublishError::Unroutable { .. })), "{published:?}");
    }

    #[tokio::test]
    async fn watch_receives_copies() {
        let bus = Arc::new(MemoryBus::new());
        let mut consumer = consume_work_queue(&bus, &tool_invoke()).await;
        let mut feed = Feed::open(bus.clone(), false, &[]).await.unwrap();
        bus.publish(Publication::mandatory(tool_invoke(), request("a"))).await.unwrap();
        bus.publish(Publication::mandatory(tool_cancel(), cancel("a"))).await.unwrap();
        let first = next(&mut feed).await.message.unwrap();
        assert!(matches!(first.kind, MessageKind::Request(_)), "{first:?}");
        assert_eq!(first.call.as_str(), "a");
        let second = next(&mut feed).await.message.unwrap();
        assert!(matches!(second.kind, MessageKind::Cancel { reason: None }), "{second:?}");
        let delivery = consumer.next().await.unwrap();
        assert_eq!(delivery.envelope().message_type(), ToolInvokeRequest::TYPE);
    }

    #[tokio::test]
    async fn malformed_message_does_not_stop_the_feed() {
        let bus = Arc::new(MemoryBus::new());
        let _consumer = consume_work_queue(&bus, &tool_invoke()).await;
        let mut feed = Feed::open(bus.clone(), false, &[]).await.unwrap();
        let malformed = Envelope::raw(ToolInvokeRequest::TYPE, b"{".to_vec());
        for envelope in [malformed, request("b")] {
            bus.publish(Publication::mandatory(tool_invoke(), envelope)).await.unwrap();
        }
        let first = next(&mut feed).await;
        assert_eq!((first.key, first.message), (tool_invoke(), Err("malformed")));
        assert_eq!(next(&mut feed).await.message.unwrap().call.as_str(), "b");
    }

    #[tokio::test]
    async fn reply_probe_is_not_a_call() {
        let bus = Arc::new(MemoryBus::new());
        let _consumer = consume_work_queue(&bus, &tool_invoke()).await;
        let mut feed = Feed::open(bus.clone(), false, &[]).await.unwrap();
        for envelope in [request_of(REPLY_PROBE, "probe"), request("b")] {
            bus.publish(Publication::mandatory(tool_invoke(), envelope)).await.unwrap();
        }
        assert_eq!(next(&mut feed).await.message.unwrap().call.as_str(), "b");
    }

    #[tokio::test(start_paused = true)]
    async fn watch_keeps_requests_without_handler_unroutable() {
        let bus = Arc::new(MemoryBus::new());
        let mut feed = Feed::open(bus.clone(), false, &[]).await.unwrap();
        let publication = Publication::mandatory(tool_invoke(), request("a"));
        let error = bus.publish(publication).await.unwrap_err();
        assert!(matches!(error, PublishError::Unroutable { .. }), "{error}");
        let to_one_bridge = RoutingKey::new("tool.invoke.mcp.at.bridge-0").unwrap();
        let published = bus.publish(Publication::mandatory(to_one_bridge, request("a"))).await;
        assert!(matches!(published, Err(PublishError::Unroutable { .. })), "{published:?}");

        // Requests are observed once their work queue exists; the other queues are still missing.
        let _consumer = consume_work_queue(&bus, &tool_invoke()).await;
        assert_eq!(publish_until_observed(&*bus, &mut feed).await, "observed");
        assert_scripts_unroutable(&*bus).await;
    }

    /// A bus that rejects every inspection.
    struct UninspectableBus(MemoryBus);

    impl Bus for UninspectableBus {
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
                report.queues.iter_mut().for_each(|queue| queue.state = QueueState::Refused);
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
    async fn uninspectable_queue_is_observed_after_handler_message() {
        let bus = Arc::new(UninspectableBus(MemoryBus::new()));
        let _consumer = consume_work_queue(&bus.0, &tool_invoke()).await;
        let mut feed = Feed::open(bus.clone(), false, &[]).await.unwrap();
        let publication = Publication::mandatory(tool_invoke(), request("not observed"));
        bus.publish(publication).await.unwrap();
        let progress = ToolProgress {
            tool_call_id: ToolCallId::new("not observed").unwrap(),
            tool_name: "bash".to_owned(),
            sequence: 1,
            text: None,
            partial: None,
        };
        let mut progress = Envelope::from_payload(&progress);
        progress.user_id = Some("rockbot.tool-handler".into());
        let key = RoutingKey::new("tool.progress.assistant.i").unwrap();
        bus.publish(Publication::mandatory(key, progress)).await.unwrap();
        let first = next(&mut feed).await.message.unwrap();
        assert!(matches!(first.kind, MessageKind::Progress(_)), "{first:?}");
        assert_eq!(publish_until_observed(&*bus, &mut feed).await, "observed");
        // No handler of these has sent a message.
        assert_scripts_unroutable(&*bus).await;
    }

    fn announcement(pool: &HandlerPool, user: Option<&str>) -> Publication {
        let mut envelope = Envelope::from_payload(&ToolCatalog {
            handler: "tool-handler".to_owned(),
            instance: InstanceId::new("i").unwrap(),
            tools: vec![ToolRegistration {
                name: "bash".to_owned(),
                label: None,
                description: "Runs a command".to_owned(),
                tool_description: None,
                parameters: serde_json::json!({"type": "object"}),
                source: ToolSource::Files,
                hints: ToolHints::default(),
                timeout_ms: None,
            }],
            removed: Vec::new(),
            fingerprint: "f".to_owned(),
            version: None,
            load: None,
            invoke_key: Some(pool.invoke_key()),
            instructions: Vec::new(),
            guides: Vec::new(),
            script_isolation: None,
        });
        envelope.user_id = user.map(Into::into);
        Publication::announcement(tool_catalog_announce(), envelope)
    }

    #[tokio::test(start_paused = true)]
    async fn pool_is_observed_after_its_own_announcement() {
        let bus = Arc::new(MemoryBus::new());
        let pool = |name| HandlerPool::Named(PoolName::new(name).unwrap());
        let (web, gpu) = (pool("web"), pool("gpu"));
        let _web = consume_work_queue(&bus, &web.invoke_key()).await;
        let _gpu = consume_work_queue(&bus, &gpu.invoke_key()).await;
        let mut feed = Feed::open(bus.clone(), false, &[]).await.unwrap();
        let forged = announcement(&gpu, Some("rockbot.tool-handler.web"));
        bus.publish(forged).await.unwrap();
        let user = Some("rockbot.tool-handler.web");
        bus.publish(announcement(&web, user)).await.unwrap();
        let mut retry = interval(Duration::from_millis(10));
        let observed = loop {
            bus.publish(Publication::mandatory(gpu.invoke_key(), request("a"))).await.unwrap();
            bus.publish(Publication::mandatory(web.invoke_key(), request("b"))).await.unwrap();
            tokio::select! {
                observed = feed.next() => break observed.unwrap(),
                _ = retry.tick() => {}
            }
        };
        assert_eq!(observed.key, web.invoke_key());
        let pools = feed.catalog().pools();
        assert_eq!(pools, [web], "the forged announcement is ignored");
    }

    #[test]
    fn request_key_is_known_for_services_only() {
        assert_eq!(request_key("rockbot.tool-handler"), Some(tool_invoke()));
        let web = HandlerPool::Named(PoolName::new("web").unwrap());
        assert_eq!(request_key("rockbot.tool-handler.web"), Some(web.invoke_key()));
        assert_eq!(request_key("fleet.a.mcp-bridge"), Some(tool_invoke_mcp()));
        assert_eq!(request_key("rockbot.scripts-manager"), Some(script_invoke()));
        for user in ["rockbot.agent.tool-handler", "rockbot.cli", "tool-handler", "guest", ""] {
            assert_eq!(request_key(user), None, "{user}");
        }
    }

    #[tokio::test]
    async fn slow_watch_does_not_block_publishers() {
        let bus = Arc::new(MemoryBus::new());
        let mut consumer = consume_work_queue(&bus, &tool_invoke()).await;
        let feed = Feed::open(bus.clone(), false, &[]).await.unwrap();
        for number in 0..12_000 {
            let request = request(&format!("call-{number}"));
            bus.publish(Publication::mandatory(tool_invoke(), request)).await.unwrap();
        }
        drop(feed);
        assert!(consumer.next().await.is_some());
    }
}
