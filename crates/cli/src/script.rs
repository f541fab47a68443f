//! `rockbot script`: runs a script as a model would.

use std::{
    io::{IsTerminal, Read, Write},
    path::Path,
    sync::Arc,
    time::Duration,
};

use anyhow::Context;
use rockbot_contracts::{AgentName, SessionId, topology::ReplyAddress};
use rockbot_scripts::{
    BusRunner, EXECUTE_PYTHON_SCRIPT, Requirements, RunnerName, Script, ScriptOutcome,
    ScriptRunner, input_hint,
    runner::{MAX_INPUT_BYTES, MAX_SCRIPT_BYTES},
};
use rockbot_service::{exit, interrupted};
use rockbot_tools::{ToolContext, ToolFailure};
use serde_json::json;

use crate::{
    arguments::{Run, Runner, ScriptCommand},
    ending::{Exits, Failure, Outcome, code_of},
    fleet::Fleet,
    print::note,
    settings::Settings,
    show,
};

/// The name that the command has on the bus.
const CALLER: &str = "cli";
/// What editors of Windows begin a text with; Python drops it from files, and not from text.
const BYTE_ORDER_MARK: char = '\u{feff}';
/// What a runner may take beside the script's own time, such as to fetch an image.
const START_WITHIN: Duration = Duration::from_secs(90);

pub(crate) async fn run(settings: &Settings, command: ScriptCommand, json: bool) -> Outcome {
    let ScriptCommand::Run(asked) = command;
    let script = script(&asked)?;
    let runner = match asked.runner {
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
                    "a script on the bus needs a fleet: name its broker with --bus",
                ));
            }
            let fleet = Fleet::reach(settings).await?;
            let name = AgentName::new(CALLER).exits(exit::USAGE)?;
            let address = ReplyAddress::new(name, fleet.instance.clone());
            let runner = Arc::new(BusRunner::new(fleet.bus.clone(), address));
            let outcome = execute(runner, &script, json).await;
            fleet.leave().await;
            outcome
        }
        RunnerName::Off | RunnerName::Local | RunnerName::Docker => {
            here(settings, runner, &script, json).await
        }
    }
}

/// Runs it in this process's charge.
async fn here(settings: &Settings, runner: RunnerName, script: &Script, json: bool) -> Outcome {
    let section = settings.scripts.clone().on(runner);
    let Some(scripts) = section.start().await.exits(exit::UNAVAILABLE)? else {
        return Err(Failure::usage(
            "scripts are off (scripts.runner); name who runs it with --runner",
        ));
    };
    let outcome = execute(scripts.runner(), script, json).await;
    scripts.close().await;
    outcome
}

/// What is to run, checked before anything starts.
fn script(asked: &Run) -> Result<Script, Failure> {
    let from_stdin = |path: &Path| path == Path::new("-");
    if from_stdin(&asked.file) && asked.input.as_deref().is_some_and(from_stdin) {
        return Err(Failure::usage("only one of script and input can come from standard input"));
    }
    let code = read(&asked.file, MAX_SCRIPT_BYTES)?;
    let code = code.strip_prefix(BYTE_ORDER_MARK).unwrap_or(&code);
    let script = Script::new(code).exits(exit::USAGE)?;
    let script = script.within(Duration::from_secs(asked.timeout)).exits(exit::USAGE)?;
    let packages = Requirements::parse(&asked.packages).exits(exit::USAGE)?;
    let script = script.with_packages(packages);
    match &asked.input {
        Some(path) => script.with_input(read(path, MAX_INPUT_BYTES)?).exits(exit::USAGE),
        None => Ok(script),
    }
}

/// A file or standard input, and one byte more than it may have, so that too much is noticed.
fn read(path: &Path, limit: usize) -> Result<String, Failure> {
    let most = u64::try_from(limit).unwrap_or(u64::MAX).saturating_add(1);
    let mut text = String::new();
    let read = if path == Path::new("-") {
        std::io::stdin().lock().take(most).read_to_string(&mut text)
    } else {
        std::fs::File::open(path).and_then(|file| file.take(most).read_to_string(&mut text))
    };
    read.with_context(|| format!("cannot read {}", path.display())).exits(exit::USAGE)?;
    if text.len() > limit {
        let problem = format!("{}: larger than {limit} bytes, which is the limit", path.display());
        return Err(Failure::usage(problem));
    }
    Ok(text)
}

async fn execute(runner: Arc<dyn ScriptRunner>, script: &Script, json: bool) -> Outcome {
    let caller = AgentName::new(CALLER).exits(exit::USAGE)?;
    let mut context = ToolContext::new(EXECUTE_PYTHON_SCRIPT, SessionId::generate(), caller);
    context.deadline = tokio::time::Instant::now() + START_WITHIN + script.timeout();
    let running = runner.run(script, &context);
    tokio::pin!(running);
    let ended = tokio::select! {
        ended = &mut running => ended,
        _ = interrupted() => {
            context.cancellation.cancel();
            running.await
        }
    };
    if json {
        writeln!(anstream::stdout(), "{}", show::json(&to_json(&context, &ended)))?;
    }
    match ended {
        Ok(outcome) => {
            if !json {
                print(&outcome)?;
                if outcome.exit_code != 0
                    && let Some(hint) = input_hint(script)
                {
                    note!("{} {hint}", show::bad("hint:"));
                }
            }
            let well = outcome.exit_code == 0 && outcome.ended_by.is_none();
            Ok(if well { exit::OK } else { exit::ANSWERED_WITH_ERROR })
        }
        Err(failure) if json => Ok(code_of(&failure.code())),
        Err(failure) => {
            let (code, executed) = (failure.code(), failure.executed());
            let words = show::clean(&failure.to_string());
            let cause = anyhow::anyhow!("{words} ({code}, executed: {executed})");
            Err(Failure { code: code_of(&code), cause })
        }
    }
}

/// What it printed goes where it printed it, and how it ended to stderr.
fn print(outcome: &ScriptOutcome) -> Result<(), Failure> {
    let mut stdout = std::io::stdout().lock();
    // A file or a pipe gets it byte for byte; a terminal is protected.
    let shown = |text: &str, terminal| if terminal { show::clean(text) } else { text.to_owned() };
    stdout.write_all(shown(&outcome.stdout, stdout.is_terminal()).as_bytes())?;
    stdout.flush()?;
    let mut stderr = anstream::stderr().lock();
    write!(stderr, "{}", show::clean(&outcome.stderr))?;
    if !outcome.stderr.is_empty() && !outcome.stderr.ends_with('\n') {
        writeln!(stderr)?;
    }
    let ended = match outcome.ended_by {
        Some(limit) => format!("ended by a limit ({})", json!(limit).as_str().unwrap_or("other")),
        None => format!("exit code {}", outcome.exit_code),
    };
    let elapsed = show::duration(outcome.elapsed);
    let isolation = show::clean(&outcome.isolation.by);
    writeln!(stderr, "{}", show::dim(&format!("{ended}, {elapsed}, isolated by: {isolation}")))?;
    if !outcome.isolation.is_complete() {
        let missing = show::clean(&outcome.isolation.missing.join(", "));
        writeln!(stderr, "{} not kept from: {missing}", show::bad("warning:"))?;
    }
    Ok(())
}

fn to_json(context: &ToolContext, ended: &Result<ScriptOutcome, ToolFailure>) -> serde_json::Value {
    let id = context.tool_call_id.as_str();
    match ended {
        Ok(outcome) => json!({
            "toolCallId": id, "ok": outcome.exit_code == 0 && outcome.ended_by.is_none(),
            "stdout": outcome.stdout, "stderr": outcome.stderr, "exitCode": outcome.exit_code,
            "endedBy": outcome.ended_by, "elapsedMs": outcome.elapsed.as_millis(),
            "isolation": {"by": outcome.isolation.by, "missing": outcome.isolation.missing},
            "executed": "yes",
        }),
        Err(failure) => json!({
            "toolCallId": id, "ok": false, "code": failure.code(),
            "message": failure.to_string(), "executed": failure.executed(),
            "isRetryable": failure.is_retryable(),
        }),
    }
}
