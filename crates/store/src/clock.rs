//! What "expired" is measured by.

use std::{
    fmt,
    sync::{
        Arc,
        atomic::{AtomicI64, Ordering},
    },
    time::{Duration, SystemTime, UNIX_EPOCH},
};

/// A moment, in milliseconds since the Unix epoch.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Timestamp(i64);

impl Timestamp {
    /// The moment that many milliseconds after the Unix epoch.
    #[must_use]
    pub const fn from_millis(millis: i64) -> Self {
        Self(millis)
    }

    /// Milliseconds since the Unix epoch.
    #[must_use]
    pub const fn as_millis(self) -> i64 {
        self.0
    }

    /// The moment `duration` later; the last one there is when that is too far away.
    #[must_use]
    pub fn after(self, duration: Duration) -> Self {
        Self(self.0.saturating_add(millis(duration)))
    }

    /// How long it is from `earlier` to this moment; zero when `earlier` is later.
    #[must_use]
    pub fn since(self, earlier: Self) -> Duration {
        Duration::from_millis(u64::try_from(self.0.saturating_sub(earlier.0)).unwrap_or(0))
    }
}

impl fmt::Display for Timestamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ms since 1970", self.0)
    }
}

impl From<SystemTime> for Timestamp {
    fn from(time: SystemTime) -> Self {
        Self(time.duration_since(UNIX_EPOCH).map_or(0, millis))
    }
}

/// Converts a duration to milliseconds, rounded up so that nothing expires early.
#[must_use]
pub fn millis(duration: Duration) -> i64 {
    i64::try_from(duration.as_nanos().div_ceil(1_000_000)).unwrap_or(i64::MAX)
}

/// Where a store takes the time from.
///
/// With [`Clock::System`] a store in memory or in a file takes this machine's time, and PostgreSQL
/// its server's, so that replicas on machines whose clocks disagree still agree on what is expired.
#[derive(Debug, Clone, Default)]
pub enum Clock {
    /// The time of day.
    #[default]
    System,
    /// A hand that a test moves.
    Manual(ManualClock),
}

impl Clock {
    /// This machine's time of day, or the test's.
    #[must_use]
    pub fn now(&self) -> Timestamp {
        self.manual().unwrap_or_else(|| SystemTime::now().into())
    }

    /// Returns the time of a manual clock, and `None` for the system clock.
    #[must_use]
    pub fn manual(&self) -> Option<Timestamp> {
        match self {
            Self::System => None,
            Self::Manual(hand) => Some(hand.now()),
        }
    }
}

/// A clock that stands still until it is moved. Clones are the same clock.
#[derive(Debug, Clone)]
pub struct ManualClock(Arc<AtomicI64>);

impl ManualClock {
    /// A clock that stands at some moment of the year 2001.
    #[must_use]
    pub fn new() -> Self {
        Self(Arc::new(AtomicI64::new(1_000_000_000_000)))
    }

    /// Where it stands.
    #[must_use]
    pub fn now(&self) -> Timestamp {
        Timestamp(self.0.load(Ordering::SeqCst))
    }

    /// Moves it forward.
    pub fn advance(&self, by: Duration) {
        self.0.fetch_add(millis(by), Ordering::SeqCst);
    }
}

impl Default for ManualClock {
    fn default() -> Self {
        Self::new()
    }
}

impl From<&ManualClock> for Clock {
    fn from(hand: &ManualClock) -> Self {
        Self::Manual(hand.clone())
    }
}
