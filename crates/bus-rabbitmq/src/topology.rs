//! How a queue of the contracts is declared on the broker.

use lapin::{
    Channel, Connection, ExchangeKind, Queue,
    options::{ExchangeDeclareOptions, QueueBindOptions, QueueDeclareOptions},
    types::{AMQPValue, FieldTable, ShortString},
};
use rockbot_contracts::{
    QueueKind, QueueName, QueueSpec,
    shape::{Argument, dead_letter_exchange, queue_name},
};

use crate::refusal::{Refusal, refusal};

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

    /// Provides the exchanges on a new connection, or finds the one that every user has to do with
    /// where they are prepared.
    pub(crate) async fn begin(&self, connection: &Connection) -> lapin::Result<()> {
        let channel = connection.create_channel().await?;
        if !self.prepared {
            return self.provide_exchanges(&channel).await;
        }
        let look = ExchangeDeclareOptions { passive: true, ..Default::default() };
        let (name, none) = (self.exchange.clone(), FieldTable::default());
        let found = channel.exchange_declare(name, ExchangeKind::Topic, look, none).await;
        self.expected(found)
    }

    /// Declares both exchanges, unless they are prepared.
    pub(crate) async fn provide_exchanges(&self, channel: &Channel) -> lapin::Result<()> {
        if self.prepared {
            return Ok(());
        }
        let options = ExchangeDeclareOptions { durable: true, ..Default::default() };
        let exchanges =
            [(&self.exchange, ExchangeKind::Topic), (&self.dead_letters, ExchangeKind::Direct)];
        for (exchange, kind) in exchanges {
            let none = FieldTable::default();
            channel.exchange_declare(exchange.clone(), kind, options, none).await?;
        }
        Ok(())
    }

    /// Whether something that should be prepared may be there: a look that is refused tells nothing.
    fn expected<T>(&self, found: lapin::Result<T>) -> lapin::Result<()> {
        match found {
            Err(error) if refusal(&error) != Some(Refusal::AccessRefused) => {
                Err(self.unprepared(&error))
            }
            _ => Ok(()),
        }
    }

    /// Says what to do where something should have been prepared and is not there.
    fn unprepared(&self, error: &lapin::Error) -> lapin::Error {
        std::io::Error::other(format!(
            "{error}; the broker is not prepared for this user: import the definitions that \
             `cargo xtask broker-users` writes"
        ))
        .into()
    }

    /// Declares a queue with its bindings, and the queue for its dead letters before it.
    pub(crate) async fn declare(&self, channel: &Channel, spec: &QueueSpec) -> lapin::Result<()> {
        if spec.kind == QueueKind::DeadLetters && self.prepared {
            let found = self.look_at(channel, spec).await;
            return found.map(drop).map_err(|error| self.unprepared(&error));
        }
        if spec.kind == QueueKind::Work && !self.prepared {
            self.declare_queue(channel, &spec.dead_letters()).await?;
        }
        self.declare_queue(channel, spec).await
    }

    /// Whether the dead letters of `spec` have a queue that was prepared.
    pub(crate) fn expects_dead_letters(&self, spec: &QueueSpec) -> bool {
        self.prepared && spec.kind == QueueKind::Work
    }

    /// Fails when the queue for the dead letters of `spec` is missing. The channel is of no use
    /// afterwards.
    pub(crate) async fn expect_dead_letters(
        &self,
        channel: &Channel,
        spec: &QueueSpec,
    ) -> lapin::Result<()> {
        self.expected(self.look_at(channel, &spec.dead_letters()).await)
    }

    async fn look_at(&self, channel: &Channel, spec: &QueueSpec) -> lapin::Result<Queue> {
        let queue = self.queue(&spec.name)?;
        let look = QueueDeclareOptions { passive: true, ..Default::default() };
        channel.queue_declare(queue, look, FieldTable::default()).await
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
