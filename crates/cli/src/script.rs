//! `rockbot script`: runs a script in the script sandbox.

mod tool_runner;

use std::{
    io::{self, IsTerminal, Read, Write},
    path::Path,
    sync::Arc,
    time::Duration,
};

use anyhow::Context;
use rockbot_contracts::{
    AgentName, SessionId,
    topology::{ReplyAddress, script_invoke},
};
use rockbot_scripts::{
    BusRunner, EXECUTE_PYTHON_SCRIPT, Requirements, RunnerName, Script, ScriptOutcome,
    ScriptRunner, input_hint,
    runner::{MAX_INPUT_BYTES, MAX_SCRIPT_BYTES},
};
use rockbot_service::{Interrupts, exit};
use rockbot_tools::{ToolContext, ToolFailure, ToolUpdate};
use serde_json::json;

use self::tool_runner::ToolRunner;
use crate::{
    arguments::{Run, Runner, ScriptCommand},
    call_failure,
    failure::{Failure, OrExit, Outcome, exit_code},
    fleet::Fleet,
    print::{note, outln},
    render,
    settings::Settings,
};

/// The caller name of the command on the bus.
const CALLER: &str = "cli";
/// The prefix of text files by some Windows editors. Python ignores it in files, but not in source
/// text.
const BYTE_ORDER_MARK: char = '\u{feff}';
/// The time limit of a runner in addition to the script's, such as for pulling an image.
const START_TIMEOUT: Duration = Duration::from_secs(90);

pub(crate) async fn run(settings: &Settings, command: ScriptCommand, json: bool) -> Outcome {
    let ScriptCommand::Run(options) = command;
    let script = read_script(&options)?;
    let runner = match options.runner {
        Some(Runner::Local) => RunnerName::Local,
        Some(Runner::Docker) => RunnerName::Docker,
        Some(Runner::Bus) => RunnerName::Bus,
        None if settings.embeds() => settings.scripts.runner,
        None => RunnerName::Bus,
    };
    match runner {
        RunnerName::Bus => {
            if settings.embeds() {
                return Err(Failure::usage(
                    "--runner bus needs a running fleet; name its broker with --bus",
                ));
            }
            let fleet = Fleet::open(settings).await?;
            let managers_only = options.runner.is_some();
            let outcome = run_on_fleet(&fleet, &script, managers_only, json).await;
            fleet.close().await;
            outcome
        }
        RunnerName::Off | RunnerName::Local | RunnerName::Docker => {
            run_locally(settings, runner, &script, json).await
        }
    }
}

/// Runs the script in a scripts manager. Without one, and unless `managers_only`, runs it in a tool handler
/// that offers scripts.
async fn run_on_fleet(fleet: &Fleet, script: &Script, managers_only: bool, json: bool) -> Outcome {
    // Not to know is no reason to refuse: without a manager the broker returns the request.
    let has_manager = fleet.consumers(&script_invoke()).await?.is_none_or(|number| number > 0);
    if has_manager || managers_only {
        if !has_manager {
            return Err(Failure::unavailable(
                "no scripts manager is available; start rockbot-scripts-manager on this bus, or omit \
                 --runner to use a tool handler that runs scripts",
            ));
        }
        let name = AgentName::new(CALLER).or_exit(exit::USAGE)?;
        let address = ReplyAddress::new(name, fleet.instance.clone());
        let runner = Arc::new(BusRunner::new(fleet.bus.clone(), address));
        return execute(runner, script, json).await;
    }
    let discovered = fleet.discover_tool(CALLER, EXECUTE_PYTHON_SCRIPT).await?;
    if discovered.registry.get(EXECUTE_PYTHON_SCRIPT).is_none() {
        return Err(Failure::unavailable(format!(
            "no scripts manager and no tool handler with {EXECUTE_PYTHON_SCRIPT} is available; start \
             rockbot-scripts-manager on this bus, set scripts.runner of a tool handler, or run the script \
             here with --runner local"
        )));
    }
    fleet.require_caller(&discovered.directory.handlers())?;
    execute(Arc::new(ToolRunner::new(discovered.registry.clone())), script, json).await
}

/// Runs the script on this machine.
async fn run_locally(
    settings: &Settings,
    runner: RunnerName,
    script: &Script,
    json: bool,
) -> Outcome {
    let section = settings.scripts.clone().with_runner(runner);
    let Some(scripts) = section.start().await.or_exit(exit::UNAVAILABLE)? else {
        return Err(Failure::usage(
            "scripts are off (scripts.runner); choose a runner with --runner",
        ));
    };
    let outcome = execute(scripts.runner(), script, json).await;
    scripts.close().await;
    outcome
}

/// Reads and validates the script before anything starts.
fn read_script(options: &Run) -> Result<Script, Failure> {
    let from_stdin = |path: &Path| path == Path::new("-");
    if from_stdin(&options.file) && options.input.as_deref().is_some_and(from_stdin) {
        return Err(Failure::usage("script and --input cannot both be standard input"));
    }
    let code = read(&options.file, MAX_SCRIPT_BYTES)?;
    let code = code.strip_prefix(BYTE_ORDER_MARK).unwrap_or(&code);
    let script = Script::new(code).or_exit(exit::USAGE)?;
    let script = script.with_timeout(Duration::from_secs(options.timeout)).or_exit(exit::USAGE)?;
    let packages = Requirements::parse(&options.packages).or_exit(exit::USAGE)?;
    let script = script.with_packages(packages);
    match &options.input {
        Some(path) => script.with_input(read(path, MAX_INPUT_BYTES)?).or_exit(exit::USAGE),
        None => Ok(script),
    }
}

/// Reads a file or standard input of at most `limit` bytes.
fn read(path: &Path, limit: usize) -> Result<String, Failure> {
    // One byte above the limit shows that the text is too long.
    let max_bytes = u64::try_from(limit).unwrap_or(u64::MAX).saturating_add(1);
    let mut text = String::new();
    let read = if path == Path::new("-") {
        io::stdin().lock().take(max_bytes).read_to_string(&mut text)
    } else {
        std::fs::File::open(path).and_then(|file| file.take(max_bytes).read_to_string(&mut text))
    };
    read.with_context(|| format!("cannot read {}", path.display())).or_exit(exit::USAGE)?;
    if text.len() > limit {
        let message = format!("{} is larger than the limit of {limit} bytes", path.display());
        return Err(Failure::usage(message));
    }
    Ok(text)
}

async fn execute(runner: Arc<dyn ScriptRunner>, script: &Script, json: bool) -> Outcome {
    let caller = AgentName::new(CALLER).or_exit(exit::USAGE)?;
    let mut context = ToolContext::new(EXECUTE_PYTHON_SCRIPT, SessionId::generate(), caller);
    context.deadline = tokio::time::Instant::now() + START_TIMEOUT + script.timeout();
    if !json {
        context.updates = Some(Arc::new(|update| {
            if let ToolUpdate::Progress(output) = update {
                note!("{}", render::dim(&render::clean(&output)));
            }
        }));
    }
    let mut interrupts = Interrupts::listen().or_exit(exit::SOFTWARE)?;
    let running = runner.run(script, &context);
    tokio::pin!(running);
    let result = tokio::select! {
        result = &mut running => result,
        _ = interrupts.recv() => {
            context.cancellation.cancel();
            running.await
        }
    };
    let code = match &result {
        Ok(outcome) if outcome.exit_code == 0 && outcome.ended_by.is_none() => exit::OK,
        Ok(_) => exit::ANSWERED_WITH_ERROR,
        Err(failure) => exit_code(&failure.code()),
    };
    let printed = match &result {
        _ if json => outln!("{}", render::json(&to_json(&context, &result))),
        Ok(outcome) => print(script, outcome),
        Err(failure) => return Err(call_failure::failed(failure)),
    };
    match printed {
        // A reader that closed the output early, such as `head`, does not change the outcome.
        Err(error) if exit::unwritten(&error) != exit::OK => Err(error.into()),
        _ => Ok(code),
    }
}

/// Passes the script's output through, and prints a summary to standard error whether or not the output
/// could be written.
fn print(script: &Script, outcome: &ScriptOutcome) -> io::Result<()> {
    let mut stdout = io::stdout().lock();
    // Control characters are removed only for a terminal.
    let shown = |text: &str, terminal| if terminal { render::clean(text) } else { text.to_owned() };
    let text = shown(&outcome.stdout, stdout.is_terminal());
    let printed = stdout.write_all(text.as_bytes()).and_then(|()| stdout.flush());
    summarize(script, outcome);
    printed
}

/// Prints the script's stderr, and how it ended.
fn summarize(script: &Script, outcome: &ScriptOutcome) {
    if !outcome.stderr.is_empty() {
        let stderr = render::clean(&outcome.stderr);
        note!("{}", stderr.strip_suffix('\n').unwrap_or(&stderr));
    }
    let status = match outcome.ended_by {
        Some(limit) => format!("limit exceeded ({})", json!(limit).as_str().unwrap_or("other")),
        None => format!("exit code {}", outcome.exit_code),
    };
    let elapsed = render::duration(outcome.elapsed);
    let isolation = render::clean(&outcome.isolation.mechanism);
    note!("{}", render::dim(&format!("{status}, {elapsed}, isolated by: {isolation}")));
    if !outcome.isolation.is_complete() {
        let missing = render::clean(&outcome.isolation.gaps.join(", "));
        note!("{} not isolated from: {missing}", render::bad("warning:"));
    }
    if outcome.exit_code != 0
        && let Some(hint) = input_hint(script)
    {
        note!("{} {hint}", render::bad("hint:"));
    }
}

fn to_json(
    context: &ToolContext,
    result: &Result<ScriptOutcome, ToolFailure>,
) -> serde_json::Value {
    let id = context.tool_call_id.as_str();
    match result {
        Ok(outcome) => json!({
            "toolCallId": id, "ok": outcome.exit_code == 0 && outcome.ended_by.is_none(),
            "stdout": outcome.stdout, "stderr": outcome.stderr, "exitCode": outcome.exit_code,
            "endedBy": outcome.ended_by, "elapsedMs": outcome.elapsed.as_millis(),
            "isolation": {"by": outcome.isolation.mechanism, "missing": outcome.isolation.gaps},
            "executed": "yes",
        }),
        Err(failure) => json!({
            "toolCallId": id, "ok": false, "code": failure.code(),
            "message": failure.to_string(), "executed": failure.executed(),
            "isRetryable": failure.is_retryable(),
        }),
    }
}
