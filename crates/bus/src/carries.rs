//! Whether a bus carries messages, for whoever asks how a process is.

use std::{future::ready, sync::Arc};

use futures_util::future::BoxFuture;

use crate::port::Bus;

/// Looks whether the bus is connected and every consumer consumes, each time it is called.
pub fn carries(
    bus: Arc<dyn Bus>,
) -> impl Fn() -> BoxFuture<'static, Result<(), String>> + Send + Sync + 'static {
    move || {
        let told = match bus.is_ready() {
            true => Ok(()),
            false => Err("not connected, or a queue is not consumed".to_owned()),
        };
        Box::pin(ready(told))
    }
}
