//! Declaration of exchanges and queues at the broker.

use lapin::{
    Channel, Connection, ExchangeKind, Queue,
    options::{ExchangeDeclareOptions, QueueBindOptions, QueueDeclareOptions},
    types::{AMQPValue, FieldTable, ShortString},
};
use rockbot_contracts::{
    QueueKind, QueueName, QueueSpec,
    identity::is_of_other_namespace,
    shape::{Argument, dead_letter_exchange, queue_name},
};

use crate::refusal::{self, ReplyCode, reply_code};

/// Exchanges and queue names of a fleet at the broker.
#[derive(Debug, Clone)]
pub(crate) struct Namespace {
    name: String,
    pub(crate) exchange: ShortString,
    pub(crate) dead_letters: ShortString,
    /// Set when exchanges and dead-letter queues were created by the imported definitions, and the user
    /// may not declare them.
    prepared: bool,
}

const IMPORT_DEFINITIONS: &str = "the definitions for this user: import those that `rockbot admin \
     broker-users` writes";

impl Namespace {
    /// Returns whether the user was created for this namespace, which implies that all services of the
    /// fleet have users and sign their messages.
    pub(crate) fn has_user(&self, user: &str) -> bool {
        user.strip_prefix(&self.name).is_some_and(|rest| rest.starts_with('.'))
    }

    /// Returns whether the user was created for another namespace.
    pub(crate) fn is_foreign_user(&self, user: &str) -> bool {
        is_of_other_namespace(user, &self.name)
    }

    /// Creates a namespace; `None` when the name is over 64 bytes or not valid in queue names.
    pub(crate) fn new(name: &str) -> Option<Self> {
        let fits = QueueName::new(name).is_ok() && name.len() <= 64;
        let exchange = ShortString::try_new(name).ok()?;
        let dead_letters = ShortString::try_new(dead_letter_exchange(name)).ok()?;
        fits.then(|| Self { name: name.to_owned(), exchange, dead_letters, prepared: false })
    }

    /// Adapts the namespace to `user`. The definitions with the users of a namespace also create its
    /// dead-letter queues, because the right to bind one would include reading all of them.
    pub(crate) fn for_user(mut self, user: &ShortString) -> Self {
        let own_user = user.as_str().strip_prefix(&self.name);
        self.prepared = own_user.is_some_and(|rest| rest.starts_with('.'));
        self
    }

    /// Returns the queue's name at the broker; an error when it is over 255 bytes.
    pub(crate) fn queue(&self, name: &QueueName) -> Result<ShortString, lapin::Error> {
        ShortString::try_new(queue_name(&self.name, name))
            .map_err(|error| std::io::Error::other(error.to_string()).into())
    }

    /// Declares the exchanges on a new connection, or checks that the prepared topic exchange exists.
    pub(crate) async fn prepare(&self, connection: &Connection) -> lapin::Result<()> {
        let channel = connection.create_channel().await?;
        if !self.prepared {
            return self.declare_exchanges(&channel).await;
        }
        let passive = ExchangeDeclareOptions { passive: true, ..Default::default() };
        let (name, none) = (self.exchange.clone(), FieldTable::default());
        let inspected = channel.exchange_declare(name, ExchangeKind::Topic, passive, none).await;
        self.check_prepared(inspected)
    }

    /// Declares both exchanges, unless they are prepared.
    pub(crate) async fn declare_exchanges(&self, channel: &Channel) -> lapin::Result<()> {
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

    /// Fails if a prepared exchange or queue is missing. A denied inspection passes, since it does not
    /// show whether the object exists.
    fn check_prepared<T>(&self, inspected: lapin::Result<T>) -> lapin::Result<()> {
        match inspected {
            Err(error) if reply_code(&error) != Some(ReplyCode::AccessRefused) => {
                Err(self.unprepared(&error))
            }
            _ => Ok(()),
        }
    }

    /// Adds the remedy for a missing exchange or queue.
    fn unprepared(&self, error: &lapin::Error) -> lapin::Error {
        std::io::Error::other(format!("{error}; the broker lacks {IMPORT_DEFINITIONS}")).into()
    }

    /// Describes the refusal of an operation, with a remedy.
    pub(crate) fn explain(&self, error: &lapin::Error) -> String {
        let text = refusal::explain(error);
        // A broker may refuse an object that was not prepared like one of another user.
        if self.prepared && reply_code(error) == Some(ReplyCode::AccessRefused) {
            return format!(
                "{text}; if it belongs to this user, the broker lacks {IMPORT_DEFINITIONS}"
            );
        }
        text
    }

    /// Returns whether a queue is missing. The channel may be closed afterwards.
    pub(crate) async fn is_missing(&self, channel: &Channel, spec: &QueueSpec) -> bool {
        let inspected = self.inspect(channel, spec).await;
        inspected.is_err_and(|error| reply_code(&error) == Some(ReplyCode::NotFound))
    }

    /// Declares a queue with its bindings, after its dead-letter queue.
    pub(crate) async fn declare(&self, channel: &Channel, spec: &QueueSpec) -> lapin::Result<()> {
        if spec.kind == QueueKind::DeadLetters && self.prepared {
            let inspected = self.inspect(channel, spec).await;
            return inspected.map(drop).map_err(|error| self.unprepared(&error));
        }
        if spec.kind == QueueKind::Work && !self.prepared {
            self.declare_queue(channel, &spec.dead_letters()).await?;
        }
        self.declare_queue(channel, spec).await
    }

    /// Returns whether the dead-letter queue of `spec` must have been prepared.
    pub(crate) fn expects_dead_letters(&self, spec: &QueueSpec) -> bool {
        self.prepared && spec.kind == QueueKind::Work
    }

    /// Fails when the dead-letter queue of `spec` is missing. The channel may be closed afterwards.
    pub(crate) async fn expect_dead_letters(
        &self,
        channel: &Channel,
        spec: &QueueSpec,
    ) -> lapin::Result<()> {
        self.check_prepared(self.inspect(channel, &spec.dead_letters()).await)
    }

    async fn inspect(&self, channel: &Channel, spec: &QueueSpec) -> lapin::Result<Queue> {
        let queue = self.queue(&spec.name)?;
        let passive = QueueDeclareOptions { passive: true, ..Default::default() };
        channel.queue_declare(queue, passive, FieldTable::default()).await
    }

    async fn declare_queue(&self, channel: &Channel, spec: &QueueSpec) -> lapin::Result<()> {
        let queue = self.queue(&spec.name)?;
        let (options, arguments) = self.declaration(spec);
        channel.queue_declare(queue, options, arguments).await?;
        self.bind_queue(channel, spec).await
    }

    /// Adds the missing bindings of an existing queue and of its dead-letter queue.
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
            // The routing key of a dead letter is the name of its queue.
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

    fn declaration(&self, spec: &QueueSpec) -> (QueueDeclareOptions, FieldTable) {
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
