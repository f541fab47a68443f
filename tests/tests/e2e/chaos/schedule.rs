//! The random schedule of faults, which a seed determines.

use std::{fmt, time::Duration};

use rand::{RngExt, SeedableRng, rngs::StdRng};

use super::handlers::HANDLERS;

/// Time before the first fault, in which calls come to run everywhere.
const WARM_UP: Duration = Duration::from_secs(2);
/// Pauses between two faults, in milliseconds.
const PAUSES: std::ops::Range<u64> = 400..4000;
/// Offsets of a clock, in seconds.
const CLOCK_OFFSETS: std::ops::RangeInclusive<i64> = -300..=300;
/// Pauses of a run that shares its machine with other tests.
const GENTLE_PAUSES: std::ops::Range<u64> = 1500..3500;

/// A fault and the time at which it is injected.
#[derive(Debug, Clone, Copy)]
pub(super) struct ScheduledFault {
    pub(super) at: Duration,
    pub(super) fault: Fault,
}

/// A fault. A duration is the time until it is repaired.
#[derive(Debug, Clone, Copy)]
pub(super) enum Fault {
    /// SIGKILL to a handler.
    KillHandler(usize, Duration),
    /// SIGSTOP to a handler, then SIGCONT.
    HangHandler(usize, Duration),
    /// SIGSTOP to a handler whose connection the broker then closes, then SIGCONT.
    HangDisconnectedHandler(usize, Duration),
    /// SIGTERM to a handler.
    TerminateHandler(usize, Duration),
    /// The clock of a handler is this many seconds ahead, or behind, and then correct.
    ChangeClock(usize, i64, Duration),
    /// The broker closes the connections of a handler.
    DisconnectHandler(usize),
    /// The broker closes the connections of the caller.
    DisconnectCaller,
    /// The broker closes all connections.
    DisconnectAll,
    /// The broker stops in order and starts again.
    StopBroker(Duration),
    /// SIGKILL to the broker.
    CrashBroker(Duration),
    /// SIGSTOP to all processes of the database, then SIGCONT.
    PauseDatabase(Duration),
    /// SIGKILL to all processes of the database.
    CrashDatabase(Duration),
    /// The reply queue of the caller is deleted.
    DeleteReplyQueue,
    /// Another caller sends calls, determined by a seed, and its connection is cut.
    CutCaller(Duration, u64),
    /// Another caller sends calls, determined by a seed, and drops them.
    DropCaller(Duration, u64),
}

impl Fault {
    /// Returns the name of its kind.
    pub(super) fn kind(self) -> &'static str {
        match self {
            Self::KillHandler(..) => "kill handler",
            Self::HangHandler(..) => "hang handler",
            Self::HangDisconnectedHandler(..) => "hang and disconnect handler",
            Self::TerminateHandler(..) => "terminate handler",
            Self::ChangeClock(..) => "change clock",
            Self::DisconnectHandler(..) => "disconnect handler",
            Self::DisconnectCaller => "disconnect caller",
            Self::DisconnectAll => "disconnect all",
            Self::StopBroker(..) => "stop broker",
            Self::CrashBroker(..) => "crash broker",
            Self::PauseDatabase(..) => "pause database",
            Self::CrashDatabase(..) => "crash database",
            Self::DeleteReplyQueue => "delete reply queue",
            Self::CutCaller(..) => "cut caller",
            Self::DropCaller(..) => "drop caller",
        }
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.kind())?;
        match self {
            Self::KillHandler(index, time)
            | Self::HangHandler(index, time)
            | Self::HangDisconnectedHandler(index, time)
            | Self::TerminateHandler(index, time) => {
                write!(f, " {} for {:.1} s", index + 1, time.as_secs_f64())
            }
            Self::ChangeClock(index, offset, time) => {
                write!(f, " {} by {offset:+} s for {:.1} s", index + 1, time.as_secs_f64())
            }
            Self::DisconnectHandler(index) => write!(f, " {}", index + 1),
            Self::StopBroker(time)
            | Self::CrashBroker(time)
            | Self::PauseDatabase(time)
            | Self::CrashDatabase(time)
            | Self::CutCaller(time, _)
            | Self::DropCaller(time, _) => write!(f, " for {:.1} s", time.as_secs_f64()),
            Self::DisconnectCaller | Self::DisconnectAll | Self::DeleteReplyQueue => Ok(()),
        }
    }
}

/// Returns the faults of a run with services of its own.
pub(super) fn full(seed: u64, duration: Duration) -> Vec<ScheduledFault> {
    schedule(seed, duration, PAUSES, any_fault)
}

/// Returns the faults of a run on shared services: none that others would notice, or that needs more
/// than a few seconds.
pub(super) fn gentle(seed: u64, duration: Duration) -> Vec<ScheduledFault> {
    schedule(seed, duration, GENTLE_PAUSES, gentle_fault)
}

fn schedule(
    seed: u64,
    duration: Duration,
    pauses: std::ops::Range<u64>,
    next: fn(&mut StdRng) -> Fault,
) -> Vec<ScheduledFault> {
    let mut random = StdRng::seed_from_u64(seed);
    let mut faults = Vec::new();
    let mut at = WARM_UP;
    while at < duration {
        faults.push(ScheduledFault { at, fault: next(&mut random) });
        at += Duration::from_millis(random.random_range(pauses.clone()));
    }
    faults
}

fn any_fault(random: &mut StdRng) -> Fault {
    let handler = random.random_range(0..HANDLERS);
    let kind = random.random_range(0..36);
    let seed = random.random_range(0..u64::MAX);
    let offset = random.random_range(CLOCK_OFFSETS);
    let mut seconds =
        |range: std::ops::Range<f64>| Duration::from_secs_f64(random.random_range(range));
    match kind {
        0..5 => Fault::KillHandler(handler, seconds(0.1..4.0)),
        5..8 => Fault::HangHandler(handler, seconds(0.2..14.0)),
        8..11 => Fault::HangDisconnectedHandler(handler, seconds(0.5..14.0)),
        11..14 => Fault::TerminateHandler(handler, seconds(0.1..2.0)),
        14..17 => Fault::DisconnectHandler(handler),
        17..19 => Fault::DisconnectCaller,
        19..20 => Fault::DisconnectAll,
        20..21 => Fault::StopBroker(seconds(0.1..3.0)),
        21..22 => Fault::CrashBroker(seconds(0.1..3.0)),
        22..24 => Fault::PauseDatabase(seconds(0.3..13.0)),
        24..26 => Fault::CrashDatabase(seconds(0.1..3.0)),
        26..28 => Fault::DeleteReplyQueue,
        28..30 => Fault::CutCaller(seconds(0.1..1.5), seed),
        30..32 => Fault::DropCaller(seconds(0.1..1.5), seed),
        _ => Fault::ChangeClock(handler, offset, seconds(2.0..14.0)),
    }
}

fn gentle_fault(random: &mut StdRng) -> Fault {
    let handler = random.random_range(0..HANDLERS);
    let kind = random.random_range(0..8);
    let seed = random.random_range(0..u64::MAX);
    let mut seconds =
        |range: std::ops::Range<f64>| Duration::from_secs_f64(random.random_range(range));
    match kind {
        0..3 => Fault::KillHandler(handler, seconds(0.1..1.0)),
        3..5 => Fault::TerminateHandler(handler, seconds(0.1..1.0)),
        5..7 => Fault::HangHandler(handler, seconds(0.2..2.0)),
        _ => Fault::CutCaller(seconds(0.1..1.0), seed),
    }
}

#[test]
fn seed_determines_schedule() {
    let text = |seed| format!("{:?}", full(seed, Duration::from_secs(60)));
    assert_eq!(text(1), text(1));
    assert_ne!(text(1), text(2));
}
