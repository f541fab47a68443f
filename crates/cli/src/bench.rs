//! `rockbot bench`: the rate and the latencies of messages or of calls of a read-only tool.

mod measurement;
mod probe;
mod tool_calls;

use std::time::Duration;

use rockbot_service::{Interrupts, exit};

use self::measurement::Measurement;
use crate::{
    arguments::Bench,
    failure::{Failure, OrExit, Outcome},
    fleet::Fleet,
    print::{note, outln},
    render,
    settings::Settings,
    tools::{self, CALLER, GivenArguments},
};

/// Size of a measurement.
#[derive(Debug, Clone, Copy)]
struct Load {
    calls: usize,
    concurrency: u16,
    /// Time limit of each message or call.
    timeout: Duration,
}

/// Runs the command.
pub(crate) async fn run(settings: &Settings, options: Bench, json: bool) -> Outcome {
    let Bench { calls, concurrency, tool, timeout, arguments } = options;
    let load = Load { calls: calls as usize, concurrency, timeout: Duration::from_secs(timeout) };
    // Validated before anything starts.
    let given = GivenArguments::parse(&arguments, tools::read_arguments)?;
    let fleet = Fleet::open(settings).await?;
    let measured = measure(&fleet, load, tool.as_deref(), given).await;
    fleet.close().await;
    report(&measured?, load, tool.as_deref(), json)
}

async fn measure(
    fleet: &Fleet,
    load: Load,
    tool: Option<&str>,
    given: GivenArguments,
) -> Result<Measurement, Failure> {
    let mut interrupts = Interrupts::listen().or_exit(exit::SOFTWARE)?;
    let Some(name) = tool else { return probe::run(fleet, load, &mut interrupts).await };
    let discovered = fleet.discover_tool(CALLER, name).await?;
    let tool = tools::find(&discovered, name)?;
    if !tool.hints.read_only {
        return Err(Failure::usage(format!(
            "{name} is not a read-only tool, and would be called {} times; choose one whose effect is \
             \"reads\" in `rockbot tools list`",
            load.calls
        )));
    }
    let arguments = given.for_tool(&tool)?;
    fleet.require_caller(&discovered.directory.handlers())?;
    tool_calls::run(&discovered, &tool, &arguments, load, &mut interrupts).await
}

fn report(measured: &Measurement, load: Load, tool: Option<&str>, json: bool) -> Outcome {
    if json {
        outln!("{}", render::json(&measured.to_json(load.concurrency, tool)))?;
    } else {
        outln!("{}", measured.describe(tool.unwrap_or("messages to this process")))?;
    }
    if measured.ended() < load.calls && !json {
        note!("interrupted: {} were not sent or not answered", load.calls - measured.ended());
    }
    Ok(if measured.failures() == 0 { exit::OK } else { exit::ANSWERED_WITH_ERROR })
}
