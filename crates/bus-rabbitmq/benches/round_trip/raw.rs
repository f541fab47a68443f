//! The equivalent exchange on the plain AMQP client, with the guarantees of the bus.

use std::{
    collections::HashMap,
    sync::{
        Arc, Mutex,
        atomic::{AtomicU64, AtomicUsize, Ordering},
    },
};

use futures_util::StreamExt;
use lapin::{
    BasicProperties, Channel, Confirmation, Connection, ConnectionProperties, ExchangeKind,
    options::{
        BasicAckOptions, BasicConsumeOptions, BasicPublishOptions, BasicQosOptions,
        ConfirmSelectOptions, ExchangeDeclareOptions, QueueBindOptions, QueueDeclareOptions,
    },
    types::{AMQPValue, FieldTable, ShortString},
};
use tokio::sync::{Notify, oneshot};

use crate::child::ready_until_orphaned;

const REQUEST: &str = r#"{"toolCallId":"01890000000070008000000000000000","toolName":"echo","arguments":"{\"text\":\"hello\"}","sessionId":"01890000000070008000000000000000"}"#;

async fn connect(namespace: &str) -> (Connection, Channel) {
    let url = std::env::var("ROCKBOT_TEST_AMQP_URL").expect("run `cargo xtask bench`");
    let connection = Connection::connect(&url, ConnectionProperties::default()).await.expect("up");
    let channel = connection.create_channel().await.expect("a channel");
    let durable = ExchangeDeclareOptions { durable: true, ..Default::default() };
    for (name, kind) in [
        (namespace.to_owned(), ExchangeKind::Topic),
        (format!("{namespace}.dlx"), ExchangeKind::Direct),
    ] {
        let declared = channel.exchange_declare(name.into(), kind, durable, FieldTable::default());
        declared.await.expect("declared");
    }
    (connection, channel)
}

async fn queue(channel: &Channel, namespace: &str, name: &str, key: &str, arguments: FieldTable) {
    let durable = QueueDeclareOptions { durable: true, ..Default::default() };
    channel.queue_declare(name.into(), durable, arguments).await.expect("declared");
    let bound = channel.queue_bind(
        name.into(),
        namespace.into(),
        key.into(),
        QueueBindOptions::default(),
        FieldTable::default(),
    );
    bound.await.expect("bound");
}

async fn publish(
    channel: &Channel,
    exchange: &str,
    key: &str,
    body: &[u8],
    properties: BasicProperties,
) {
    let options = BasicPublishOptions { mandatory: true, immediate: false };
    let confirm = channel
        .basic_publish(exchange.into(), key.into(), options, body, properties)
        .await
        .expect("published");
    assert_eq!(confirm.await.expect("confirmed"), Confirmation::Ack(None));
}

fn properties(kind: &str, id: &str) -> BasicProperties {
    let mut headers = FieldTable::default();
    headers.insert("rb-wire".into(), AMQPValue::LongLongInt(1));
    headers.insert("rb-source".into(), AMQPValue::LongString("bench".into()));
    BasicProperties::default()
        .with_message_id(id.into())
        .with_correlation_id(id.into())
        .with_type(kind.into())
        .with_content_type("application/json".into())
        .with_delivery_mode(2)
        .with_headers(headers)
}

/// Serves until the parent exits, or until it has replied to `limit` calls.
pub async fn serve(namespace: &str, limit: usize) {
    let (_connection, channel) = connect(namespace).await;
    let mut arguments = FieldTable::default();
    let name = format!("{namespace}.tool.invoke");
    for (key, value) in [
        ("x-queue-type", AMQPValue::LongString("quorum".into())),
        ("x-delivery-limit", AMQPValue::LongLongInt(29)),
        ("x-max-length", AMQPValue::LongLongInt(100_000)),
        ("x-overflow", AMQPValue::LongString("reject-publish".into())),
        ("x-dead-letter-exchange", AMQPValue::LongString(format!("{namespace}.dlx").into())),
        ("x-dead-letter-routing-key", AMQPValue::LongString(name.clone().into())),
        ("x-dead-letter-strategy", AMQPValue::LongString("at-least-once".into())),
    ] {
        arguments.insert(key.into(), value);
    }
    queue(&channel, namespace, &name, "tool.invoke", arguments).await;
    channel.basic_qos(256, BasicQosOptions::default()).await.expect("prefetch");
    let consumer = channel.basic_consume(
        name.into(),
        ShortString::default(),
        BasicConsumeOptions::default(),
        FieldTable::default(),
    );
    let mut consumer = consumer.await.expect("consuming");
    let replies = _connection.create_channel().await.expect("a channel");
    replies.confirm_select(ConfirmSelectOptions::default()).await.expect("confirms");
    let exchange: Arc<str> = namespace.into();
    let (left, done) = (Arc::new(AtomicUsize::new(limit)), Arc::new(Notify::new()));
    let notify = done.clone();
    tokio::spawn(async move {
        while let Some(Ok(delivery)) = consumer.next().await {
            let (replies, exchange) = (replies.clone(), exchange.clone());
            let (left, notify) = (left.clone(), notify.clone());
            tokio::spawn(async move {
                let request: serde_json::Value =
                    serde_json::from_slice(&delivery.data).expect("JSON");
                let id = request["toolCallId"].as_str().expect("an id");
                let text: serde_json::Value =
                    serde_json::from_str(request["arguments"].as_str().expect("text"))
                        .expect("JSON");
                let reply = serde_json::json!({"toolCallId": id, "toolName": "echo",
                    "content": text["text"], "isError": false, "elapsedMs": 0});
                let correlation = delivery.properties.correlation_id().clone().expect("an id");
                let to = delivery.properties.reply_to().clone().expect("an address");
                let properties = properties("ToolInvokeResponse", correlation.as_str());
                let body = serde_json::to_vec(&reply).expect("JSON");
                publish(&replies, &exchange, to.as_str(), &body, properties).await;
                delivery.ack(BasicAckOptions::default()).await.expect("acked");
                if left.fetch_sub(1, Ordering::Relaxed) == 1 {
                    notify.notify_one();
                }
            });
        }
    });
    tokio::select! {
        () = ready_until_orphaned(), if limit == usize::MAX => {}
        () = done.notified() => {}
    }
}

type PendingReplies = Arc<Mutex<HashMap<String, oneshot::Sender<Vec<u8>>>>>;

#[derive(Clone)]
pub struct Client {
    _connection: Arc<Connection>,
    channel: Channel,
    namespace: Arc<str>,
    reply_to: Arc<str>,
    pending: PendingReplies,
    next: Arc<AtomicU64>,
}

impl Client {
    pub async fn connect(namespace: &str) -> Self {
        let (connection, listening) = connect(namespace).await;
        let reply_to = "tool.result.bench.one";
        let name = format!("{namespace}.{reply_to}");
        let mut arguments = FieldTable::default();
        arguments.insert("x-expires".into(), AMQPValue::LongLongInt(600_000));
        arguments.insert("x-max-length".into(), AMQPValue::LongLongInt(10_000));
        queue(&listening, namespace, &name, reply_to, arguments).await;
        listening.basic_qos(512, BasicQosOptions::default()).await.expect("prefetch");
        let consumer = listening.basic_consume(
            name.into(),
            ShortString::default(),
            BasicConsumeOptions::default(),
            FieldTable::default(),
        );
        let mut consumer = consumer.await.expect("consuming");
        let pending = PendingReplies::default();
        let replies = pending.clone();
        tokio::spawn(async move {
            while let Some(Ok(delivery)) = consumer.next().await {
                delivery.ack(BasicAckOptions::default()).await.expect("acked");
                let id = delivery.properties.correlation_id().as_ref().expect("an id").to_string();
                let reply = replies.lock().expect("not poisoned").remove(&id);
                let _ = reply.expect("a pending request").send(delivery.data);
            }
        });
        let channel = connection.create_channel().await.expect("a channel");
        channel.confirm_select(ConfirmSelectOptions::default()).await.expect("confirms");
        Self {
            _connection: Arc::new(connection),
            channel,
            namespace: namespace.into(),
            reply_to: reply_to.into(),
            pending,
            next: Arc::default(),
        }
    }

    /// Makes a call and checks its result.
    pub fn call(&self) -> impl Future<Output = ()> + Send + 'static {
        let client = self.clone();
        async move {
            let id = format!("{:032x}", client.next.fetch_add(1, Ordering::Relaxed));
            let (sender, reply) = oneshot::channel();
            client.pending.lock().expect("not poisoned").insert(id.clone(), sender);
            let properties =
                properties("ToolInvokeRequest", &id).with_reply_to(client.reply_to.as_ref().into());
            let body = REQUEST.as_bytes();
            publish(&client.channel, &client.namespace, "tool.invoke", body, properties).await;
            let reply: serde_json::Value =
                serde_json::from_slice(&reply.await.expect("a reply")).expect("JSON");
            assert_eq!(reply["content"], "hello");
        }
    }
}
