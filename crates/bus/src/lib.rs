//! The messaging port: publish, consume, settle, request and reply.
//!
//! - [`Bus`]: the port. [`MemoryBus`] implements it within one process; RabbitMQ has an adapter crate.
//!   Both pass the same conformance suite.
//! - [`Delivery`]: a message to be settled, consumed by value so that it can't be settled twice.
//! - [`Worker`]: a loop that runs a [`Handler`] on each delivery, bounded, one task each, drained
//!   on stop.
//! - [`Requester`]: sends requests with a correlation id and waits for the replies, with a deadline.
//! - [`Observed`]: a bus with metrics and traces; [`QueueGauge`]: a metric of a queue's depth.

pub mod delivery;
mod health;
pub mod memory;
mod observed;
mod pending;
pub mod port;
mod queue_gauge;
pub mod report;
pub mod request;
mod request_error;
mod retry;
mod subscribe;
mod supervision;
pub mod worker;

pub use delivery::{Delivery, SettleError, Settlement, Settler};
pub use health::{connected_gauge, readiness_check};
pub use memory::MemoryBus;
pub use observed::Observed;
pub use pending::RequesterStats;
pub use port::{
    Assurance, Bus, ConsumeError, Consumer, DeliverySource, Publication, PublishError, Reconnects,
    Settling, Subscription,
};
pub use queue_gauge::QueueGauge;
pub use report::{BusReport, QueueReport, QueueState};
pub use request::{Request, Requester};
pub use request_error::RequestError;
pub use subscribe::{SUBSCRIBE_TIMEOUT, subscribe};
pub use supervision::restart_on_panic;
pub use worker::{Handler, Worker, WorkerStats};
