//! Rates of requests, by person, token or address.

use std::{collections::HashMap, sync::Arc, time::Duration};

use parking_lot::Mutex;
use tokio::time::Instant;

/// Maximum number of senders that are remembered. Beyond it, those that were idle for a minute are
/// forgotten, and others share one rate.
const MAX_SENDERS: usize = 16_384;

const MINUTE: Duration = Duration::from_secs(60);

/// Limits the requests per minute of each sender. Up to a minute's worth can be sent at once.
#[derive(Debug, Default)]
pub(crate) struct Rates {
    /// For each sender, the time at which its budget is full again.
    full_at: Mutex<HashMap<Arc<str>, Instant>>,
}

impl Rates {
    /// Counts a request of `sender`.
    ///
    /// # Errors
    /// Returns the time until a request is accepted again; the request is not counted then.
    pub(crate) fn count(&self, sender: &Arc<str>, per_minute: u32) -> Result<(), Duration> {
        let interval = MINUTE / per_minute.max(1);
        let now = Instant::now();
        let mut senders = self.full_at.lock();
        if senders.len() >= MAX_SENDERS && !senders.contains_key(sender) {
            senders.retain(|_, full_at| *full_at > now);
        }
        let overflow: Arc<str> = Arc::from("");
        let is_full = senders.len() >= MAX_SENDERS && !senders.contains_key(sender);
        let sender = if is_full { &overflow } else { sender };
        let full_at = senders.get(sender).copied().unwrap_or(now).max(now) + interval;
        let ahead = full_at - now;
        if ahead > MINUTE {
            return Err(ahead - MINUTE);
        }
        senders.insert(sender.clone(), full_at);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn budget_of_a_minute_refills_steadily() {
        let rates = Rates::default();
        let (ada, bob): (Arc<str>, Arc<str>) = ("ada".into(), "bob".into());
        for _ in 0..6 {
            rates.count(&ada, 6).unwrap();
        }
        assert_eq!(rates.count(&ada, 6), Err(MINUTE / 6));
        rates.count(&bob, 6).unwrap();
        tokio::time::advance(MINUTE / 6).await;
        rates.count(&ada, 6).unwrap();
        assert!(rates.count(&ada, 6).is_err());
    }

    #[tokio::test(start_paused = true)]
    async fn number_of_senders_is_bounded() {
        let rates = Rates::default();
        for number in 0..MAX_SENDERS + 100 {
            let _ = rates.count(&number.to_string().into(), 1);
        }
        assert!(rates.full_at.lock().len() <= MAX_SENDERS + 1);
        tokio::time::advance(2 * MINUTE).await;
        rates.count(&"new".into(), 1).unwrap();
        assert_eq!(rates.full_at.lock().len(), 1);
    }
}
