//! Access to the dead letters of a work queue: taken and returned in order.

use std::{collections::VecDeque, time::Duration};

use rockbot_bus::{Bus, Consumer, Delivery, QueueState, Settlement, Subscription};
use rockbot_contracts::{QueueName, QueueSpec};
use tokio::time::timeout;
use tracing::debug;

use super::error::LetterError;

/// The largest number of dead letters held at once; each may have 4 MiB.
pub const MAX_LETTERS: u32 = 1000;

/// The time limit for a counted letter to arrive; another consumer may hold it.
const NEXT_TIMEOUT: Duration = Duration::from_secs(5);

/// A selection of letters.
#[derive(Debug, Clone, Copy)]
pub enum Selection<'a> {
    /// This many, oldest first.
    Oldest(u32),
    /// Those with these message ids, among the oldest [`MAX_LETTERS`].
    ByIds(&'a [String]),
}

impl<'a> Selection<'a> {
    /// Selects the letters with `ids`, or the oldest `limit` when there are no ids.
    #[must_use]
    pub fn new(ids: &'a [String], limit: u32) -> Self {
        if ids.is_empty() { Self::Oldest(limit) } else { Self::ByIds(ids) }
    }
}

/// The use of the taken letters.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Purpose {
    /// Each is settled before the next is taken.
    Settle,
    /// Each is settled, or held until the end: at most [`MAX_HELD`].
    Resend,
    /// All are held until they are returned together: at most [`MAX_LETTERS`].
    Inspect,
}

/// The number of letters that may be held while others are resent; each may have 4 MiB.
pub const MAX_HELD: u16 = 100;

/// A dead letter and its position in the queue.
#[derive(Debug)]
pub(super) struct DeadLetter {
    position: u32,
    pub(super) delivery: Delivery,
}

/// The selected dead letters of one work queue. End with [`DeadLetters::close`]: dropped letters return
/// to the queue as well, but in any order.
#[derive(Debug)]
pub(super) struct DeadLetters {
    consumer: Consumer,
    waiting: u32,
    taken: u32,
    /// The number of letters still to take.
    remaining: u32,
    found: VecDeque<DeadLetter>,
    returned: Vec<DeadLetter>,
}

impl DeadLetters {
    /// Starts to take the selected dead letters of `queue`.
    ///
    /// # Errors
    /// When the queue does not exist, the bus is unavailable, or an id is not found; nothing is
    /// changed then.
    pub(super) async fn open(
        bus: &dyn Bus,
        queue: &QueueName,
        selection: Selection<'_>,
        purpose: Purpose,
    ) -> Result<Self, LetterError> {
        let waiting = count(bus, queue).await?;
        let remaining = match selection {
            Selection::Oldest(limit) if purpose != Purpose::Inspect => limit.min(waiting),
            Selection::Oldest(limit) => limit.min(waiting).min(MAX_LETTERS),
            Selection::ByIds(_) => waiting.min(MAX_LETTERS),
        };
        let max_prefetch = match (purpose, selection) {
            (Purpose::Settle, Selection::Oldest(_)) => 1,
            // Held letters count too.
            (Purpose::Resend, Selection::Oldest(_)) => MAX_HELD + 1,
            (_, _) => u16::MAX,
        };
        let prefetch = u16::try_from(remaining).unwrap_or(u16::MAX).min(max_prefetch).max(1);
        let subscription = Subscription::new(QueueSpec::dead_letters_of(queue), prefetch);
        let consumer = bus.consume(subscription).await?;
        let (found, returned) = (VecDeque::new(), Vec::new());
        let mut letters = Self { consumer, waiting, taken: 0, remaining, found, returned };
        if let Selection::ByIds(ids) = selection {
            letters.find(ids).await;
            if let Some(missing) = letters.missing(ids) {
                let (missing, searched) = (missing.to_owned(), letters.taken);
                letters.close().await;
                let (id, queue) = (missing, queue.clone());
                return Err(LetterError::NotFound { id, searched, queue });
            }
        }
        Ok(letters)
    }

    /// Returns the number of dead letters at the time of [`DeadLetters::open`].
    pub(super) fn waiting(&self) -> u32 {
        self.waiting
    }

    /// Returns the next selected letter; `None` after the last, or when another consumer holds the rest.
    pub(super) async fn next(&mut self) -> Option<DeadLetter> {
        match self.found.pop_front() {
            Some(letter) => Some(letter),
            None => self.take().await,
        }
    }

    /// Holds a letter until [`DeadLetters::close`] returns it.
    pub(super) fn hold(&mut self, letter: DeadLetter) {
        self.returned.push(letter);
    }

    /// Returns all held letters to the queue, in their order.
    pub(super) async fn close(mut self) {
        // Before letters are returned, which would be redelivered here out of order.
        self.consumer.cancel().await;
        while let Ok(Some(delivery)) = timeout(NEXT_TIMEOUT, self.consumer.next()).await {
            self.taken += 1;
            self.returned.push(DeadLetter { position: self.taken, delivery });
        }
        self.returned.extend(self.found);
        self.returned.sort_unstable_by_key(|letter| letter.position);
        for letter in self.returned {
            if let Err(error) = letter.delivery.settle(Settlement::Retry).await {
                debug!(%error, "dead letter return failed; the broker requeues it");
            }
        }
    }

    async fn take(&mut self) -> Option<DeadLetter> {
        if self.remaining == 0 {
            return None;
        }
        let delivery = timeout(NEXT_TIMEOUT, self.consumer.next()).await.ok()??;
        self.remaining -= 1;
        self.taken += 1;
        Some(DeadLetter { position: self.taken, delivery })
    }

    async fn find(&mut self, ids: &[String]) {
        while let Some(letter) = self.take().await {
            let id = letter.delivery.envelope().message_id.as_str();
            if ids.iter().any(|selected| selected == id) {
                self.found.push_back(letter);
            } else {
                self.returned.push(letter);
            }
        }
        self.remaining = 0;
    }

    fn missing<'a>(&self, ids: &'a [String]) -> Option<&'a str> {
        let has = |id: &str| {
            self.found.iter().any(|letter| letter.delivery.envelope().message_id.as_str() == id)
        };
        ids.iter().map(String::as_str).find(|id| !has(id))
    }
}

/// Returns the number of dead letters of `queue`.
///
/// # Errors
/// When the dead-letter queue does not exist or may not be inspected, or the bus is unavailable.
pub async fn count(bus: &dyn Bus, queue: &QueueName) -> Result<u32, LetterError> {
    let report = bus.inspect(&[queue.dead_letters()]).await?;
    match report.queues.first().map(|queue| queue.state) {
        Some(QueueState::Present(depth)) => Ok(depth.ready),
        Some(QueueState::Refused) => Err(LetterError::NotPermitted { queue: queue.clone() }),
        Some(QueueState::Missing) | None => Err(LetterError::NoSuchQueue { queue: queue.clone() }),
    }
}

#[cfg(test)]
pub(super) mod tests {
    use rockbot_bus::{MemoryBus, Publication};
    use rockbot_contracts::{Envelope, RoutingKey};

    use super::*;

    /// A work queue whose messages were all dead-lettered.
    pub(crate) struct DlqFixture {
        pub(crate) bus: MemoryBus,
        pub(crate) queue: QueueName,
        pub(crate) work: Consumer,
    }

    impl DlqFixture {
        /// Creates dead letters with the texts "0", "1", and so on.
        pub(crate) async fn with_letters(count: usize) -> Self {
            let bus = MemoryBus::new();
            let key = RoutingKey::new("jobs").unwrap();
            let spec = QueueSpec::work(&key);
            let work = bus.consume(Subscription::new(spec.clone(), 1)).await.unwrap();
            let mut fixture = Self { bus, queue: spec.name, work };
            for number in 0..count {
                fixture.add_letter(number, None, "caller").await;
            }
            fixture
        }

        /// Adds a dead letter of a broker user with the number as its text.
        pub(crate) async fn add_letter(&mut self, number: usize, user: Option<&str>, source: &str) {
            let mut envelope = Envelope::raw("Text", number.to_string().into_bytes())
                .with_correlation_id(format!("call-{number}"))
                .with_source(source)
                .within(Duration::from_secs(60));
            envelope.user_id = user.map(Into::into);
            let key = RoutingKey::new(self.queue.as_str()).unwrap();
            self.bus.publish(Publication::mandatory(key, envelope)).await.unwrap();
            let delivery = self.work.next().await.unwrap();
            delivery.settle(Settlement::dead_letter("rejected")).await.unwrap();
        }

        async fn letters(&self) -> Vec<Envelope> {
            let all = Selection::Oldest(u32::MAX);
            super::super::inspect::inspect(&self.bus, &self.queue, all).await.unwrap().letters
        }

        pub(crate) async fn texts(&self) -> Vec<String> {
            texts(&self.letters().await)
        }

        pub(crate) async fn ids(&self) -> Vec<String> {
            let id = |letter: &Envelope| letter.message_id.to_string();
            self.letters().await.iter().map(id).collect()
        }

        /// Takes all messages of the work queue.
        pub(crate) async fn drain_work_queue(&mut self) -> Vec<Envelope> {
            let mut arrived = Vec::new();
            while let Ok(Some(delivery)) =
                timeout(Duration::from_millis(20), self.work.next()).await
            {
                arrived.push(delivery.envelope().clone());
                delivery.settle(Settlement::Ack).await.unwrap();
            }
            arrived
        }
    }

    pub(crate) fn texts(letters: &[Envelope]) -> Vec<String> {
        letters.iter().map(|letter| String::from_utf8(letter.body.clone()).unwrap()).collect()
    }
}
