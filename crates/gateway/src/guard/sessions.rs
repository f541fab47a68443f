//! Login links and the sessions of browsers, in memory.

use std::{collections::HashMap, time::Duration};

use parking_lot::Mutex;
use tokio::time::Instant;

use super::secret::{NoRandomness, SecretHash, generate, hash};

/// Time in which a login link can be used.
const CODE_TTL: Duration = Duration::from_secs(5 * 60);
/// Length of a session.
pub(super) const SESSION_TTL: Duration = Duration::from_secs(12 * 60 * 60);
/// Maximum number of unused login links, and of sessions. The oldest makes place for a new one.
const MAX_CODES: usize = 16;
const MAX_SESSIONS: usize = 256;

/// Login links and sessions. They end with the process.
#[derive(Debug, Default)]
pub(super) struct Sessions {
    codes: Mutex<Expiring>,
    sessions: Mutex<Expiring>,
}

impl Sessions {
    /// Returns the code of a new login link: 128 bits, valid for 5 min and one use.
    pub(super) fn new_code(&self) -> Result<String, NoRandomness> {
        let code = generate::<16>()?;
        self.codes.lock().insert(hash(&code), CODE_TTL, MAX_CODES);
        Ok(code)
    }

    /// Uses up a code and returns the value of a session's cookie; `None` for a code that is unknown, was
    /// used, or has expired.
    pub(super) fn redeem(&self, code: &str) -> Result<Option<String>, NoRandomness> {
        if !self.codes.lock().remove(&hash(code)) {
            return Ok(None);
        }
        let value = generate::<32>()?;
        self.sessions.lock().insert(hash(&value), SESSION_TTL, MAX_SESSIONS);
        Ok(Some(value))
    }

    /// Returns whether the value of a cookie belongs to a session.
    pub(super) fn is_open(&self, value: &str) -> bool {
        self.sessions.lock().contains(&hash(value))
    }

    /// Ends a session.
    pub(super) fn end(&self, value: &str) {
        self.sessions.lock().remove(&hash(value));
    }
}

/// Hashes of secrets that expire.
#[derive(Debug, Default)]
struct Expiring(HashMap<SecretHash, Instant>);

impl Expiring {
    fn insert(&mut self, secret: SecretHash, ttl: Duration, limit: usize) {
        let now = Instant::now();
        self.0.retain(|_, expires_at| *expires_at > now);
        while self.0.len() >= limit {
            let oldest = self.0.iter().min_by_key(|(_, expires_at)| **expires_at);
            let Some(oldest) = oldest.map(|(secret, _)| *secret) else { break };
            self.0.remove(&oldest);
        }
        self.0.insert(secret, now + ttl);
    }

    fn contains(&self, secret: &SecretHash) -> bool {
        self.0.get(secret).is_some_and(|expires_at| *expires_at > Instant::now())
    }

    fn remove(&mut self, secret: &SecretHash) -> bool {
        self.0.remove(secret).is_some_and(|expires_at| expires_at > Instant::now())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn code_can_be_used_once_and_expires() {
        let sessions = Sessions::default();
        let code = sessions.new_code().unwrap();
        assert_eq!(sessions.redeem("guess").unwrap(), None);
        let cookie = sessions.redeem(&code).unwrap().unwrap();
        assert_eq!(sessions.redeem(&code).unwrap(), None, "used twice");
        assert!(sessions.is_open(&cookie));
        let late = sessions.new_code().unwrap();
        tokio::time::advance(CODE_TTL).await;
        assert_eq!(sessions.redeem(&late).unwrap(), None, "expired");
        tokio::time::advance(SESSION_TTL).await;
        assert!(!sessions.is_open(&cookie));
    }

    #[tokio::test(start_paused = true)]
    async fn ended_session_is_closed() {
        let sessions = Sessions::default();
        let cookie = sessions.redeem(&sessions.new_code().unwrap()).unwrap().unwrap();
        sessions.end(&cookie);
        assert!(!sessions.is_open(&cookie));
    }

    #[tokio::test(start_paused = true)]
    async fn oldest_session_makes_place_for_a_new_one() {
        let sessions = Sessions::default();
        let mut cookies = Vec::new();
        for _ in 0..=MAX_SESSIONS {
            tokio::time::advance(Duration::from_millis(1)).await;
            cookies.push(sessions.redeem(&sessions.new_code().unwrap()).unwrap().unwrap());
        }
        assert!(!sessions.is_open(&cookies[0]) && sessions.is_open(&cookies[1]));
        assert_eq!(sessions.sessions.lock().0.len(), MAX_SESSIONS);
    }
}
