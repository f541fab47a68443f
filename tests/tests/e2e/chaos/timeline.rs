//! The time of a run, and the faults on it.

use std::{
    fmt,
    sync::Mutex,
    time::{Duration, Instant, SystemTime},
};

use rustix::process::Pid;

/// The start of a run and its events. Times are durations since the start.
pub(super) struct Timeline {
    start: Instant,
    wall: SystemTime,
    events: Mutex<Vec<Event>>,
    signals: Mutex<Vec<SentSignal>>,
}

/// A signal that a fault sent to a process.
#[derive(Debug, Clone)]
pub(super) struct SentSignal {
    pub(super) at: Duration,
    /// The process, such as `handler-1`.
    pub(super) name: String,
    /// Its process id; empty for a service.
    pub(super) pid: String,
    /// Such as `SIGKILL`.
    pub(super) signal: String,
}

impl SentSignal {
    /// Stands for the end of an outage of a service.
    pub(super) const UP: &str = "up";

    /// Returns whether the process continues later.
    pub(super) fn stops(&self) -> bool {
        self.signal == "SIGSTOP"
    }
}

/// A fault or its repair.
#[derive(Debug, Clone)]
pub(super) struct Event {
    pub(super) at: Duration,
    pub(super) text: String,
}

impl Timeline {
    pub(super) fn start() -> Self {
        Self {
            start: Instant::now(),
            wall: SystemTime::now(),
            events: Mutex::default(),
            signals: Mutex::default(),
        }
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

    /// Records a signal to a process.
    pub(super) fn record_signal(&self, name: &str, pid: Pid, signal: &str) {
        self.record_fault(name, pid.as_raw_nonzero().to_string(), signal);
    }

    /// Records that a service was killed.
    pub(super) fn record_outage(&self, name: &str) {
        self.record_fault(name, String::new(), "SIGKILL");
    }

    /// Records that a service is up again.
    pub(super) fn record_end_of_outage(&self, name: &str) {
        self.record_fault(name, String::new(), SentSignal::UP);
    }

    fn record_fault(&self, name: &str, pid: String, signal: &str) {
        self.record(format!("{name} {signal}"));
        let (name, signal) = (name.to_owned(), signal.to_owned());
        let signal = SentSignal { at: self.now(), name, pid, signal };
        self.signals.lock().expect("not poisoned").push(signal);
    }

    pub(super) fn signals(&self) -> Vec<SentSignal> {
        self.signals.lock().expect("not poisoned").clone()
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
