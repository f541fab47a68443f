//! What crosses the bus: copies of the messages about calls, in a queue of this watch.

use std::{sync::Arc, time::Duration};

use rockbot_bus::{Bus, ConsumeError, Consumer, Subscription};
use rockbot_contracts::{
    BindingPattern, InstanceId, QueueName, QueueSpec, RoutingKey,
    tool::REPLY_PROBE,
    topology::{monitored_answers, monitored_requests},
};
use tokio::{
    sync::mpsc,
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
    /// workers; for one that is missing this looks again and again.
    pub(super) async fn open(bus: Arc<dyn Bus>, content: bool) -> Result<Self, ConsumeError> {
        let requests = monitored_requests().map(|key| (QueueSpec::work(&key).name, key));
        let names: Vec<_> = requests.iter().map(|(name, _)| name.clone()).collect();
        let there = bus.inspect(&names).await?.queues;
        let mut bindings = monitored_answers();
        let mut missing = Vec::new();
        for ((name, key), report) in requests.into_iter().zip(there) {
            match report.depth {
                Some(_) => bindings.push((&key).into()),
                None => missing.push((name, key)),
            }
        }
        let (sender, messages) = mpsc::channel(WAITING);
        let mut listeners = JoinSet::new();
        let listener = Listener { bus, sender, content };
        let consumer = listener.consume(bindings).await?;
        for (name, key) in missing {
            listeners.spawn(listener.clone().listen_once_there(name, key));
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

    async fn listen_once_there(self, queue: QueueName, key: RoutingKey) {
        let mut look = interval(LOOK_AGAIN);
        let names = [queue];
        let consumer = loop {
            look.tick().await;
            // Without a connection there is another look later.
            match self.bus.inspect(&names).await {
                Ok(report) if report.queues.iter().all(|queue| queue.depth.is_some()) => {}
                Ok(_) | Err(ConsumeError::Disconnected { .. }) => continue,
                Err(_) => return,
            }
            match self.consume(vec![(&key).into()]).await {
                Ok(consumer) => break consumer,
                Err(ConsumeError::Disconnected { .. }) => {}
                Err(_) => return,
            }
        };
        self.listen(consumer).await;
    }
}

#[cfg(test)]
mod tests {
    use rockbot_bus::{MemoryBus, Publication, PublishError};
    use rockbot_contracts::{
        Envelope, Message as _, SessionId, ToolCallId, ToolCancel, ToolInvokeRequest,
        topology::{script_invoke, tool_cancel, tool_invoke},
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
        let ask = || bus.publish(Publication::mandatory(tool_invoke(), request("a")));
        let error = ask().await.unwrap_err();
        assert!(matches!(error, PublishError::Unroutable { .. }), "{error}");
        let to_one_bridge = RoutingKey::new("tool.invoke.mcp.at.bridge-0").unwrap();
        let asked = bus.publish(Publication::mandatory(to_one_bridge, request("a"))).await;
        assert!(matches!(asked, Err(PublishError::Unroutable { .. })), "{asked:?}");

        // Once somebody serves it, it is heard; the other keys are still missing.
        let _worker = work(&bus, &tool_invoke()).await;
        let mut tries = interval(Duration::from_millis(100));
        let heard = loop {
            ask().await.unwrap();
            tokio::select! {
                message = next(&mut feed) => break message.heard.unwrap(),
                _ = tries.tick() => {}
            }
        };
        assert_eq!(heard.call.as_str(), "a");
        let script = bus.publish(Publication::mandatory(script_invoke(), request("s"))).await;
        assert!(matches!(script, Err(PublishError::Unroutable { .. })), "{script:?}");
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
