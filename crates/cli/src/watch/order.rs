//! The order of the shown calls.

use std::{cmp::Reverse, time::Duration};

use rockbot_monitor::Call;

/// The order of the shown calls.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) enum Order {
    /// The newest first.
    #[default]
    Start,
    /// Those with the longest time from request to reply, or to now, first.
    Duration,
    /// Those that waited longest in their queue first.
    Waited,
}

/// The time of a call in its queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Waited {
    /// As the handler measured it.
    Measured(Duration),
    /// At most the time until the first progress.
    AtMost(Duration),
}

impl Order {
    /// Returns the order after this one.
    pub(super) fn next(self) -> Self {
        match self {
            Self::Start => Self::Duration,
            Self::Duration => Self::Waited,
            Self::Waited => Self::Start,
        }
    }

    /// Orders calls that have the newest first. Calls without a time are last.
    pub(super) fn sort(self, calls: &mut [&Call], now: Duration) {
        match self {
            Self::Start => {}
            Self::Duration => calls.sort_by_key(|call| Reverse(duration(call, now))),
            Self::Waited => calls.sort_by_key(|call| Reverse(waited(call).map(Waited::time))),
        }
    }
}

impl Waited {
    fn time(self) -> Duration {
        match self {
            Self::Measured(time) | Self::AtMost(time) => time,
        }
    }
}

/// Returns the time from the request to the reply, or to now for a live call. When the request was not observed, it is
/// the run time.
fn duration(call: &Call, now: Duration) -> Option<Duration> {
    let run_time = || call.reply.as_ref()?.value.run_time;
    let elapsed = || {
        let request = call.request.as_ref().filter(|_| call.state().is_live())?;
        Some(now.saturating_sub(request.at))
    };
    call.latency().or_else(run_time).or_else(elapsed)
}

/// Returns the time that a call waited in its queue, once it is known.
pub(super) fn waited(call: &Call) -> Option<Waited> {
    if let Some(reply) = &call.reply {
        let queue_ms = reply.value.stages.as_ref().and_then(|stages| stages.queue_ms);
        if let Some(queue_ms) = queue_ms {
            return Some(Waited::Measured(Duration::from_millis(queue_ms)));
        }
    }
    let started = call.progress.as_ref()?.first;
    started.checked_sub(call.request.as_ref()?.at).map(Waited::AtMost)
}
