//! How a queue of the contracts is declared on the broker.

use lapin::{
    Channel, ExchangeKind,
    options::{ExchangeDeclareOptions, QueueBindOptions, QueueDeclareOptions},
    types::{AMQPValue, FieldTable, ShortString},
};
use rockbot_contracts::{
    QueueKind, QueueName, QueueSpec,
    shape::{Argument, dead_letter_exchange, queue_name},
};

/// The names of one fleet on the broker.
#[derive(Debug, Clone)]
pub(crate) struct Namespace {
    name: String,
    pub(crate) exchange: ShortString,
    pub(crate) dead_letters: ShortString,
    /// Whether this process's user finds the dead letters prepared, and may not declare them.
    prepared: bool,
}

impl Namespace {
    /// `None` when the name is too long or would not make valid queue names.
    pub(crate) fn new(name: &str) -> Option<Self> {
        let fits = QueueName::new(name).is_ok() && name.len() <= 64;
        let exchange = ShortString::try_new(name).ok()?;
        let dead_letters = ShortString::try_new(dead_letter_exchange(name)).ok()?;
        fits.then(|| Self { name: name.to_owned(), exchange, dead_letters, prepared: false })
    }

    /// The same for a connection of `user`. A user that was made for this namespace comes with the
    /// queues for its dead letters: binding one takes the right to read everybody's.
    pub(crate) fn seen_by(mut self, user: &ShortString) -> Self {
        let made_for = user.as_str().strip_prefix(&self.name);
        self.prepared = made_for.is_some_and(|rest| rest.starts_with('.'));
        self
    }

    /// The queue's name on the broker; an error when it is over 255 bytes.
    pub(crate) fn queue(&self, name: &QueueName) -> Result<ShortString, lapin::Error> {
        ShortString::try_new(queue_name(&self.name, name))
            .map_err(|error| std::io::Error::other(error.to_string()).into())
    }

    /// Declares both exchanges, or finds them where they are prepared. Asked for one that is
    /// missing, the broker closes the channel.
    pub(crate) async fn provide_exchanges(&self, channel: &Channel) -> lapin::Result<()> {
        let options =
            ExchangeDeclareOptions { passive: self.prepared, durable: true, ..Default::default() };
        let exchanges =
            [(&self.exchange, ExchangeKind::Topic), (&self.dead_letters, ExchangeKind::Direct)];
        for (exchange, kind) in exchanges {
            let declared =
                channel.exchange_declare(exchange.clone(), kind, options, FieldTable::default());
            declared.await.map_err(|error| self.unprepared(error))?;
        }
        Ok(())
    }

    /// Says what to do where something should have been prepared and is not there.
    fn unprepared(&self, error: lapin::Error) -> lapin::Error {
        if !self.prepared {
            return error;
        }
        std::io::Error::other(format!(
            "{error}; the broker is not prepared for this user: import the definitions that \
             `cargo xtask broker-users` writes"
        ))
        .into()
    }

    /// Declares a queue with its bindings, and the queue for its dead letters before it.
    pub(crate) async fn declare(&self, channel: &Channel, spec: &QueueSpec) -> lapin::Result<()> {
        if spec.kind == QueueKind::DeadLetters && self.prepared {
            return self.find_queue(channel, spec).await;
        }
        if spec.kind == QueueKind::Work {
            let dead_letters = spec.dead_letters();
            if self.prepared {
                self.find_queue(channel, &dead_letters).await?;
            } else {
                self.declare_queue(channel, &dead_letters).await?;
            }
        }
        self.declare_queue(channel, spec).await
    }

    async fn find_queue(&self, channel: &Channel, spec: &QueueSpec) -> lapin::Result<()> {
        let queue = self.queue(&spec.name)?;
        let look = QueueDeclareOptions { passive: true, ..Default::default() };
        let found = channel.queue_declare(queue, look, FieldTable::default()).await;
        found.map(drop).map_err(|error| self.unprepared(error))
    }

    async fn declare_queue(&self, channel: &Channel, spec: &QueueSpec) -> lapin::Result<()> {
        let queue = self.queue(&spec.name)?;
        let (options, arguments) = self.shape(spec);
        channel.queue_declare(queue, options, arguments).await?;
        self.bind_queue(channel, spec).await
    }

    /// Makes the bindings of a queue that exists, and of the queue for its dead letters. What is
    /// bound already stays as it is.
    pub(crate) async fn bind(&self, channel: &Channel, spec: &QueueSpec) -> lapin::Result<()> {
        if spec.kind == QueueKind::DeadLetters && self.prepared {
            return Ok(());
        }
        if spec.kind == QueueKind::Work && !self.prepared {
            self.bind_queue(channel, &spec.dead_letters()).await?;
        }
        self.bind_queue(channel, spec).await
    }

    async fn bind_queue(&self, channel: &Channel, spec: &QueueSpec) -> lapin::Result<()> {
        let queue = self.queue(&spec.name)?;
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

    fn shape(&self, spec: &QueueSpec) -> (QueueDeclareOptions, FieldTable) {
        let mut arguments = FieldTable::default();
        for (name, value) in spec.arguments(&self.name) {
            let value = match value {
                Argument::Text(text) => AMQPValue::LongString(text.into()),
                Argument::Number(number) => {
                    AMQPValue::LongLongInt(i64::try_from(number).unwrap_or(i64::MAX))
                }
            };
            arguments.insert(name.into(), value);
        }
        let exclusive = spec.kind == QueueKind::Exclusive;
        let options = QueueDeclareOptions {
            durable: !exclusive,
            exclusive,
            auto_delete: exclusive,
            ..Default::default()
        };
        (options, arguments)
    }
}
