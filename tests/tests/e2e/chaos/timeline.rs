//! The time of a run, and the faults on it.

use std::{
    fmt,
    sync::Mutex,
    time::{Duration, Instant, SystemTime},
};

/// The start of a run and its events. Times are durations since the start.
pub(super) struct Timeline {
    start: Instant,
    wall: SystemTime,
    events: Mutex<Vec<Event>>,
}

/// A fault or its repair.
#[derive(Debug, Clone)]
pub(super) struct Event {
    pub(super) at: Duration,
    pub(super) text: String,
}

impl Timeline {
    pub(super) fn start() -> Self {
        Self { start: Instant::now(), wall: SystemTime::now(), events: Mutex::default() }
    }

    pub(super) fn now(&self) -> Duration {
        self.start.elapsed()
    }

    /// Waits until a time of the run.
    pub(super) async fn wait_until(&self, at: Duration) {
        tokio::time::sleep_until((self.start + at).into()).await;
    }

    /// Waits for a duration, such as that of a fault.
    pub(super) async fn pass(&self, time: Duration) {
        self.wait_until(self.now() + time).await;
    }

    /// Returns the time of the run at a number of seconds since 1970.
    pub(super) fn at_unix(&self, seconds: f64) -> Duration {
        let wall = self.wall.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        Duration::from_secs_f64((seconds - wall.as_secs_f64()).max(0.0))
    }

    pub(super) fn record(&self, text: impl Into<String>) {
        let event = Event { at: self.now(), text: text.into() };
        self.events.lock().expect("not poisoned").push(event);
    }

    pub(super) fn events(&self) -> Vec<Event> {
        self.events.lock().expect("not poisoned").clone()
    }
}

impl fmt::Display for Event {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:9.3} s  {}", self.at.as_secs_f64(), self.text)
    }
}
