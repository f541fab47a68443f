//! How a queue of the contracts is declared on the broker.

use lapin::{
    Channel, ExchangeKind,
    options::{ExchangeDeclareOptions, QueueBindOptions, QueueDeclareOptions},
    types::{AMQPValue, FieldTable, ShortString},
};
use rockbot_contracts::{
    QueueKind, QueueName, QueueSpec,
    topology::{DEAD_LETTER_LOOKS, DEAD_LETTER_TTL, MAX_DELIVERIES, REPLY_QUEUE_EXPIRY},
};

/// The names of one fleet on the broker.
#[derive(Debug, Clone)]
pub(crate) struct Namespace {
    name: String,
    pub(crate) exchange: ShortString,
    pub(crate) dead_letters: ShortString,
}

impl Namespace {
    /// `None` when the name is too long or would not make valid queue names.
    pub(crate) fn new(name: &str) -> Option<Self> {
        let fits = QueueName::new(name).is_ok() && name.len() <= 64;
        let exchange = ShortString::try_new(name).ok()?;
        let dead_letters = ShortString::try_new(format!("{name}.dlx")).ok()?;
        fits.then(|| Self { name: name.to_owned(), exchange, dead_letters })
    }

    /// The queue's name on the broker; an error when it is over 255 bytes.
    pub(crate) fn queue(&self, name: &QueueName) -> Result<ShortString, lapin::Error> {
        ShortString::try_new(format!("{}.{name}", self.name))
            .map_err(|error| std::io::Error::other(error.to_string()).into())
    }

    /// Declares both exchanges.
    pub(crate) async fn declare_exchanges(&self, channel: &Channel) -> lapin::Result<()> {
        let durable = ExchangeDeclareOptions { durable: true, ..Default::default() };
        let exchanges =
            [(&self.exchange, ExchangeKind::Topic), (&self.dead_letters, ExchangeKind::Direct)];
        for (exchange, kind) in exchanges {
            channel
                .exchange_declare(exchange.clone(), kind, durable, FieldTable::default())
                .await?;
        }
        Ok(())
    }

    /// Declares a queue with its bindings, and the queue for its dead letters before it.
    pub(crate) async fn declare(&self, channel: &Channel, spec: &QueueSpec) -> lapin::Result<()> {
        if spec.kind == QueueKind::Work {
            self.declare_queue(channel, &QueueSpec::dead_letters_of(&spec.name)).await?;
        }
        self.declare_queue(channel, spec).await
    }

    async fn declare_queue(&self, channel: &Channel, spec: &QueueSpec) -> lapin::Result<()> {
        let queue = self.queue(&spec.name)?;
        let (options, arguments) = self.shape(spec, &queue);
        channel.queue_declare(queue.clone(), options, arguments).await?;
        if spec.kind == QueueKind::DeadLetters {
            // Bound by the name of the queue whose letters it takes.
            let key = queue.as_str().trim_end_matches(".dlq");
            let bind = channel.queue_bind(
                queue.clone(),
                self.dead_letters.clone(),
                key.into(),
                QueueBindOptions::default(),
                FieldTable::default(),
            );
            bind.await?;
        }
        for pattern in &spec.bindings {
            let key = ShortString::try_new(pattern.as_str())
                .map_err(|error| std::io::Error::other(error.to_string()))?;
            let bind = channel.queue_bind(
                queue.clone(),
                self.exchange.clone(),
                key,
                QueueBindOptions::default(),
                FieldTable::default(),
            );
            bind.await?;
        }
        Ok(())
    }

    fn shape(&self, spec: &QueueSpec, queue: &ShortString) -> (QueueDeclareOptions, FieldTable) {
        let durable = QueueDeclareOptions { durable: true, ..Default::default() };
        let exclusive =
            QueueDeclareOptions { exclusive: true, auto_delete: true, ..Default::default() };
        let text = |text: &str| AMQPValue::LongString(text.into());
        let millis = |duration: std::time::Duration| {
            AMQPValue::LongLongInt(i64::try_from(duration.as_millis()).unwrap_or(i64::MAX))
        };
        let mut arguments = FieldTable::default();
        let mut set = |name: &str, value: AMQPValue| {
            arguments.insert(name.into(), value);
        };
        set("x-max-length", AMQPValue::LongLongInt(spec.max_length.into()));
        let options = match spec.kind {
            QueueKind::Work => {
                set("x-queue-type", text("quorum"));
                // The broker counts returns, not deliveries: n returns are n + 1 deliveries.
                let returns = i64::from(MAX_DELIVERIES - 1);
                set("x-delivery-limit", AMQPValue::LongLongInt(returns));
                set("x-overflow", text("reject-publish"));
                set("x-dead-letter-exchange", text(self.dead_letters.as_str()));
                set("x-dead-letter-routing-key", text(queue.as_str()));
                set("x-dead-letter-strategy", text("at-least-once"));
                durable
            }
            QueueKind::DeadLetters => {
                set("x-queue-type", text("quorum"));
                set("x-delivery-limit", AMQPValue::LongLongInt(DEAD_LETTER_LOOKS.into()));
                set("x-message-ttl", millis(DEAD_LETTER_TTL));
                durable
            }
            QueueKind::Reply => {
                set("x-expires", millis(REPLY_QUEUE_EXPIRY));
                durable
            }
            QueueKind::Exclusive => exclusive,
        };
        (options, arguments)
    }
}
