//! Timestamps and the clock that entries expire by.

use std::{
    fmt,
    sync::{
        Arc,
        atomic::{AtomicI64, Ordering},
    },
    time::{Duration, SystemTime, UNIX_EPOCH},
};

/// A point in time, in milliseconds since the Unix epoch.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Timestamp(i64);

impl Timestamp {
    /// Creates a timestamp from milliseconds since the Unix epoch.
    #[must_use]
    pub const fn from_millis(millis: i64) -> Self {
        Self(millis)
    }

    /// Returns the milliseconds since the Unix epoch.
    #[must_use]
    pub const fn as_millis(self) -> i64 {
        self.0
    }

    /// Returns the timestamp `duration` later, saturating at the latest one.
    #[must_use]
    pub fn after(self, duration: Duration) -> Self {
        Self(self.0.saturating_add(millis(duration)))
    }

    /// Returns the time since `earlier`; zero if `earlier` is later.
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

/// The clock of a store.
///
/// With [`Clock::System`], memory and SQLite stores use the time of this machine, and PostgreSQL that of
/// its server, so that replicas agree on expiry although their clocks differ.
#[derive(Debug, Clone, Default)]
pub enum Clock {
    /// The system clock.
    #[default]
    System,
    /// A clock that a test controls.
    Manual(ManualClock),
}

impl Clock {
    /// Returns the current time.
    #[must_use]
    pub fn now(&self) -> Timestamp {
        self.manual().unwrap_or_else(|| SystemTime::now().into())
    }

    /// Returns the time of a manual clock, and `None` for the system clock.
    #[must_use]
    pub fn manual(&self) -> Option<Timestamp> {
        match self {
            Self::System => None,
            Self::Manual(clock) => Some(clock.now()),
        }
    }
}

/// A clock that only advances manually. Clones share the time.
#[derive(Debug, Clone)]
pub struct ManualClock(Arc<AtomicI64>);

impl ManualClock {
    /// Creates a clock at a fixed time in 2001.
    #[must_use]
    pub fn new() -> Self {
        Self(Arc::new(AtomicI64::new(1_000_000_000_000)))
    }

    /// Returns the time.
    #[must_use]
    pub fn now(&self) -> Timestamp {
        Timestamp(self.0.load(Ordering::SeqCst))
    }

    /// Advances the time.
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
    fn from(clock: &ManualClock) -> Self {
        Self::Manual(clock.clone())
    }
}
