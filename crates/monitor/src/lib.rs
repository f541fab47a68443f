//! Observation of a fleet for people: its tool calls as they cross the bus, its queues and handlers, and its
//! dead letters. The terminal and the gateway draw what this library collects.
//!
//! - [`Feed`] receives copies of the messages about calls; [`Calls`] assembles them, and [`Filter`] selects;
//! - [`WorkQueue`] is the state of a work queue, and [`mod@findings`] lists the problems of a fleet;
//! - [`letters`] inspects, replays and purges dead letters.

pub mod calls;
pub mod feed;
pub mod filter;
pub mod findings;
pub mod letters;
pub mod message;
mod mismatch;
pub mod queues;
mod wording;

pub use calls::{Call, Calls, State, Tally};
pub use feed::{Feed, Observed};
pub use filter::Filter;
pub use findings::{Finding, Severity, findings};
pub use message::{CallMessage, MessageKind, Status};
pub use mismatch::{describe_conflicts, describe_mismatched};
pub use queues::WorkQueue;
