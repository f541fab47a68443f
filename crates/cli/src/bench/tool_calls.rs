//! Calls of one tool.

use std::{sync::Arc, time::Instant};

use futures_util::{StreamExt, stream};
use rockbot_contracts::{SessionId, ToolRegistration};
use rockbot_service::{Interrupts, exit};
use rockbot_tools::{ToolCall, ToolContext, ToolExecutor};

use super::{Load, measurement::Measurement};
use crate::{
    failure::{Failure, OrExit},
    fleet::Discovered,
};

/// Session of the calls.
const SESSION: &str = "bench";

/// Calls a tool. An interrupt ends the measurement, and cancels the running calls.
pub(super) async fn run(
    discovered: &Discovered,
    tool: &ToolRegistration,
    arguments: &str,
    load: Load,
    interrupts: &mut Interrupts,
) -> Result<Measurement, Failure> {
    let executor = ToolExecutor::new(discovered.registry.clone());
    let session = SessionId::new(SESSION).or_exit(exit::SOFTWARE)?;
    let arguments: Arc<str> = arguments.into();
    let calls = stream::iter(0..load.calls).map(|_| {
        let mut context = ToolContext::new(&tool.name, session.clone(), discovered.name.clone());
        context.deadline = tokio::time::Instant::now() + load.timeout;
        let call = executor.execute(ToolCall { context, arguments: arguments.clone() });
        async move {
            let started = Instant::now();
            let result = call.await;
            (started.elapsed(), result)
        }
    });
    let mut calls = calls.buffer_unordered(usize::from(load.concurrency));
    let mut measured = Measurement::default();
    let started = Instant::now();
    loop {
        tokio::select! {
            ended = calls.next() => match ended {
                Some((latency, Ok(result))) if !result.is_error => measured.succeed(latency),
                Some((_, Ok(_))) => measured.fail("an error of the tool"),
                Some((_, Err(failure))) => measured.fail(failure.code().to_string()),
                None => break,
            },
            _ = interrupts.recv() => break,
        }
    }
    Ok(measured.finish(started.elapsed()))
}
