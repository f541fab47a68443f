//! Health of a bus.

use std::{future::ready, sync::Arc};

use futures_util::future::BoxFuture;
use metrics::gauge;

use crate::port::Bus;

/// Returns a function that updates the metric `rockbot_bus_connected`.
pub fn connected_gauge(bus: Arc<dyn Bus>) -> impl Fn() + Send + Sync + 'static {
    move || gauge!("rockbot_bus_connected").set(f64::from(u8::from(bus.is_ready())))
}

/// Returns a check that passes while the bus is connected and every consumer consumes.
pub fn readiness_check(
    bus: Arc<dyn Bus>,
) -> impl Fn() -> BoxFuture<'static, Result<(), String>> + Send + Sync + 'static {
    move || {
        let ready_now = bus.is_ready();
        let error = || "not connected, or a queue is not consumed".to_owned();
        Box::pin(ready(ready_now.then_some(()).ok_or_else(error)))
    }
}
