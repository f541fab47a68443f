//! The runtime of the client library.

use std::io;

use parking_lot::Mutex;

use tokio::runtime::{Builder, Handle, Runtime};

/// Started with the first connection. Lives as long as the process: a thread of the client library
/// outlives a connection attempt that was given up, and would panic on a runtime that has shut down.
static RUNTIME: Mutex<Option<Runtime>> = Mutex::new(None);

/// Returns the runtime that runs the client library's tasks, timers and sockets.
///
/// # Errors
/// When its thread can't be started.
pub(crate) fn handle() -> io::Result<Handle> {
    let mut runtime = RUNTIME.lock();
    if let Some(runtime) = &*runtime {
        return Ok(runtime.handle().clone());
    }
    let mut builder = Builder::new_multi_thread();
    let started = builder.worker_threads(1).thread_name("amqp").enable_all().build()?;
    Ok(runtime.insert(started).handle().clone())
}
