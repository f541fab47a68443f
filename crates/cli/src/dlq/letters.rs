//! Dead letters in hand: taken in order, and put back in order.

use std::{collections::VecDeque, time::Duration};

use rockbot_bus::{Bus, Consumer, Delivery, Look, Settlement, Subscription};
use rockbot_contracts::{QueueName, QueueSpec};
use rockbot_service::exit;
use tokio::time::timeout;
use tracing::debug;

use crate::{
    arguments::MOST_LETTERS,
    ending::{Exits, Failure},
};

/// How long to wait for a letter that was counted; another command may hold it.
const NEXT_WITHIN: Duration = Duration::from_secs(5);

/// Which letters are wanted.
#[derive(Debug, Clone, Copy)]
pub(super) enum Choice<'a> {
    /// So many, the oldest first.
    Oldest(u32),
    /// Those with these message ids, among the oldest [`MOST_LETTERS`].
    ByIds(&'a [String]),
}

impl<'a> Choice<'a> {
    /// The named ones, or so many where none is named.
    pub(super) fn of(ids: &'a [String], or_oldest: u32) -> Self {
        if ids.is_empty() { Self::Oldest(or_oldest) } else { Self::ByIds(ids) }
    }
}

/// What becomes of the letters that are taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Purpose {
    /// Each is settled before the next is taken.
    Settle,
    /// All are put back in the end, so they are all in hand at once: at most [`MOST_LETTERS`].
    Look,
}

/// A letter and its place in the queue.
#[derive(Debug)]
pub(super) struct Letter {
    place: u32,
    pub(super) delivery: Delivery,
}

/// The dead letters of one work queue while they are looked at. End it with [`Letters::close`]:
/// letters that are dropped go back to the queue as well, but in any order.
#[derive(Debug)]
pub(super) struct Letters {
    consumer: Consumer,
    waiting: u32,
    taken: u32,
    /// How many are still to be taken off the queue.
    left: u32,
    found: VecDeque<Letter>,
    put_back: Vec<Letter>,
}

impl Letters {
    /// Begins to take the chosen letters of `queue`.
    ///
    /// # Errors
    /// When the queue does not exist or the bus is out of reach, and when there is no letter with
    /// one of the ids; then nothing was changed.
    pub(super) async fn open(
        bus: &dyn Bus,
        queue: &QueueName,
        choice: Choice<'_>,
        purpose: Purpose,
    ) -> Result<Self, Failure> {
        let waiting = count(bus, queue).await?;
        let left = match choice {
            Choice::Oldest(limit) if purpose == Purpose::Settle => limit.min(waiting),
            Choice::Oldest(limit) => limit.min(waiting).min(MOST_LETTERS),
            Choice::ByIds(_) => waiting.min(MOST_LETTERS),
        };
        let one_by_one = purpose == Purpose::Settle && matches!(choice, Choice::Oldest(_));
        let in_hand = if one_by_one { 1 } else { u16::try_from(left).unwrap_or(u16::MAX) };
        let subscription = Subscription::new(QueueSpec::dead_letters_of(queue), in_hand);
        let consumer = bus.consume(subscription).await.exits(exit::UNAVAILABLE)?;
        let (found, put_back) = (VecDeque::new(), Vec::new());
        let mut letters = Self { consumer, waiting, taken: 0, left, found, put_back };
        if let Choice::ByIds(ids) = choice {
            letters.find(ids).await;
            if let Some(missing) = letters.missing(ids) {
                let (missing, looked) = (missing.to_owned(), letters.taken);
                letters.close().await;
                return Err(Failure {
                    code: exit::ANSWERED_WITH_ERROR,
                    cause: anyhow::anyhow!(
                        "none of the oldest {looked} dead letters of {queue} has the id {missing}; \
                         nothing was changed"
                    ),
                });
            }
        }
        Ok(letters)
    }

    /// How many letters waited when the look began.
    pub(super) fn waiting(&self) -> u32 {
        self.waiting
    }

    /// The next of the chosen letters; `None` after the last, or when somebody else holds the
    /// others.
    pub(super) async fn next(&mut self) -> Option<Letter> {
        match self.found.pop_front() {
            Some(letter) => Some(letter),
            None => self.take().await,
        }
    }

    /// Keeps a letter, to be put back when this is closed.
    pub(super) fn keep(&mut self, letter: Letter) {
        self.put_back.push(letter);
    }

    /// Puts everything back that is in hand, in its order.
    pub(super) async fn close(mut self) {
        // Before anything goes back: it would be delivered here again, out of its order.
        self.consumer.cancel().await;
        while let Ok(Some(delivery)) = timeout(NEXT_WITHIN, self.consumer.next()).await {
            self.taken += 1;
            self.put_back.push(Letter { place: self.taken, delivery });
        }
        self.put_back.extend(self.found);
        self.put_back.sort_unstable_by_key(|letter| letter.place);
        for letter in self.put_back {
            if let Err(error) = letter.delivery.settle(Settlement::Retry).await {
                debug!(%error, "the broker puts it back by itself");
            }
        }
    }

    async fn take(&mut self) -> Option<Letter> {
        if self.left == 0 {
            return None;
        }
        let delivery = timeout(NEXT_WITHIN, self.consumer.next()).await.ok()??;
        self.left -= 1;
        self.taken += 1;
        Some(Letter { place: self.taken, delivery })
    }

    async fn find(&mut self, ids: &[String]) {
        while let Some(letter) = self.take().await {
            let id = letter.delivery.envelope().message_id.as_str();
            if ids.iter().any(|wanted| wanted == id) {
                self.found.push_back(letter);
            } else {
                self.put_back.push(letter);
            }
        }
        self.left = 0;
    }

    fn missing<'a>(&self, ids: &'a [String]) -> Option<&'a str> {
        let has = |id: &str| {
            self.found.iter().any(|letter| letter.delivery.envelope().message_id.as_str() == id)
        };
        ids.iter().map(String::as_str).find(|id| !has(id))
    }
}

/// How many dead letters of `queue` wait.
///
/// # Errors
/// When their queue does not exist or may not be looked at, or the bus is out of reach.
pub(super) async fn count(bus: &dyn Bus, queue: &QueueName) -> Result<u32, Failure> {
    let report = bus.inspect(&[queue.dead_letters()]).await.exits(exit::UNAVAILABLE)?;
    match report.queues.first().map(|queue| queue.look) {
        Some(Look::There(depth)) => Ok(depth.ready),
        Some(Look::Refused) => Err(may_not_look(queue)),
        Some(Look::Missing) | None => Err(no_such_queue(queue)),
    }
}

fn may_not_look(queue: &QueueName) -> Failure {
    Failure::unavailable(format!(
        "the broker does not let this user look at the dead letters of {queue}: name the operator's \
         user in the URL of the bus"
    ))
}

pub(super) fn no_such_queue(queue: &QueueName) -> Failure {
    Failure::unavailable(format!(
        "there is no queue for dead letters of {queue}: it is made when a process first consumes \
         {queue}. Check the name, --bus and bus.namespace; `rockbot dlq list` shows what there is"
    ))
}

#[cfg(test)]
pub(super) mod tests {
    use rockbot_bus::{MemoryBus, Publication};
    use rockbot_contracts::{Envelope, RoutingKey};

    use super::*;

    /// A work queue whose messages all became dead letters.
    pub(crate) struct Bin {
        pub(crate) bus: MemoryBus,
        pub(crate) queue: QueueName,
        pub(crate) work: Consumer,
    }

    impl Bin {
        /// Dead letters with the texts "0", "1", and so on.
        pub(crate) async fn with(count: usize) -> Self {
            let bus = MemoryBus::new();
            let key = RoutingKey::new("jobs").unwrap();
            let spec = QueueSpec::work(&key);
            let mut work = bus.consume(Subscription::new(spec.clone(), 1)).await.unwrap();
            for number in 0..count {
                let envelope = Envelope::raw("Text", number.to_string().into_bytes())
                    .correlated(format!("call-{number}"))
                    .within(Duration::from_secs(60));
                let publication = Publication::mandatory(key.clone(), envelope);
                bus.publish(publication).await.unwrap();
                let delivery = work.next().await.unwrap();
                delivery.settle(Settlement::dead_letter("no good")).await.unwrap();
            }
            Self { bus, queue: spec.name, work }
        }

        async fn letters(&self) -> Vec<Envelope> {
            let all = Choice::Oldest(u32::MAX);
            super::super::show::look(&self.bus, &self.queue, all).await.unwrap().letters
        }

        pub(crate) async fn texts(&self) -> Vec<String> {
            texts(&self.letters().await)
        }

        pub(crate) async fn ids(&self) -> Vec<String> {
            let id = |letter: &Envelope| letter.message_id.to_string();
            self.letters().await.iter().map(id).collect()
        }

        /// What waits in the work queue.
        pub(crate) async fn at_work(&mut self) -> Vec<Envelope> {
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
