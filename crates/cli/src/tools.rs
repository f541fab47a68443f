//! `rockbot tools`: lists, describes and calls the tools of the fleet.

mod approve;
mod call_arguments;

use std::{
    collections::BTreeMap,
    io::{IsTerminal, Write},
    sync::Arc,
    time::Duration,
};

use anyhow::Context;
use rockbot_contracts::{AgentName, SessionId, ToolRegistration};
use rockbot_service::{Interrupts, exit};
use rockbot_tool_rpc::catalog::{KnownHandler, MismatchedTool, PoolConflict, mismatched_tools};
use rockbot_tools::{
    ArgumentSchema, Tool, ToolCall, ToolContext, ToolExecutor, ToolFailure, ToolHints,
    ToolRegistry, ToolResult, ToolUpdate,
};
use serde_json::json;

pub(crate) use self::call_arguments::GivenArguments;
use crate::{
    arguments::Tools,
    call_failure,
    completion::names::Names,
    failure::{Failure, OrExit, Outcome, exit_code},
    fleet::{Discovered, Fleet},
    print::{note, outln},
    render,
    settings::Settings,
    similar_names, work_queues,
};

/// The caller name of the command on the bus.
pub(crate) const CALLER: &str = "cli";

/// The session of all calls of the command, so that a later call can page through a stored output.
const SESSION: &str = "command-line";

/// The largest arguments that are read from a file or standard input, in bytes.
const MAX_ARGUMENT_BYTES: u64 = 2 * 1024 * 1024;

pub(crate) async fn run(settings: &Settings, command: Tools, json: bool) -> Outcome {
    if let Tools::Approve { name, list, .. } = command {
        return approve::run(settings, name.as_deref(), list, json).await;
    }
    // Validated before anything starts.
    let call = match &command {
        Tools::Call { arguments, .. } => Some(GivenArguments::parse(arguments, read_arguments)?),
        _ => None,
    };
    let fleet = Fleet::open(settings).await?;
    let discovered = match command {
        Tools::Describe { .. } | Tools::List { .. } => {
            fleet.discover_all(CALLER, &work_queues::pools(settings, Vec::new())).await?
        }
        Tools::Call { ref name, .. } => fleet.discover_tool(CALLER, name).await?,
        Tools::Approve { .. } => fleet.discover(CALLER).await?,
    };
    keep_names(&discovered);
    let outcome = match command {
        Tools::List { .. } | Tools::Approve { .. } => list(&discovered, json),
        Tools::Describe { name } => describe(&discovered, &name, json),
        Tools::Call { name, timeout, .. } => {
            let timeout = Duration::from_secs(timeout);
            let tool = find(&discovered, &name)?;
            let arguments = match call {
                Some(call) => call.for_tool(&tool)?,
                None => "{}".to_owned(),
            };
            fleet.require_caller(&discovered.directory.handlers())?;
            let Discovered { registry, name: caller, .. } = &discovered;
            let (registry, caller) = (registry.clone(), caller.clone());
            invoke(registry, tool, caller, arguments, timeout, json).await
        }
    };
    fleet.close().await;
    outcome
}

/// Keeps the names of the tools for completion.
fn keep_names(discovered: &Discovered) {
    let tools = discovered.registry.list().into_iter().map(|tool| tool.name).collect();
    Names { tools, ..Names::default() }.keep();
}

fn list(discovered: &Discovered, json: bool) -> Outcome {
    let tools = discovered.registry.list();
    let catalog = discovered.directory.view().snapshot();
    let mismatched = mismatched_tools(catalog.handlers());
    let conflicts = catalog.conflicts();
    let mismatch_of = |tool: &ToolRegistration| mismatched.iter().find(|one| one.name == tool.name);
    let conflict_of = |tool: &ToolRegistration| conflicts.iter().find(|one| one.name == tool.name);
    if json {
        let tools: Result<Vec<_>, _> = tools
            .iter()
            .map(|tool| list_entry(tool, mismatch_of(tool), conflict_of(tool)))
            .collect();
        let tools = tools.or_exit(exit::SOFTWARE)?;
        outln!("{}", render::json(&json!(tools)))?;
        return Ok(exit::OK);
    }
    if tools.is_empty() {
        return Err(Failure::unavailable(
            "no tool handler is available; start one on this bus with `rockbot-tool-handler`",
        ));
    }
    let rows = tools.iter().map(|tool| {
        // The first sentence; `describe` shows the whole text.
        let first = tool.description.lines().next().unwrap_or_default();
        let first = first.split_inclusive(". ").next().unwrap_or_default().trim_end();
        let mismatch = if mismatch_of(tool).is_some() { " *" } else { "" };
        let conflict = if conflict_of(tool).is_some() { " !" } else { "" };
        vec![
            format!("{}{mismatch}{conflict}", tool.name),
            render::clean(&tool.source.to_string()),
            hints(tool.hints).to_owned(),
            render::clean(first),
        ]
    });
    outln!("{}", render::table(&["tool", "source", "effect", "description"], rows))?;
    if !mismatched.is_empty() {
        note!("* {}", rockbot_monitor::describe_mismatched(&mismatched));
    }
    if !conflicts.is_empty() {
        note!("! {}", rockbot_monitor::describe_conflicts(&conflicts));
    }
    for (name, reason) in rejected(discovered) {
        outln!("{} tool {name} is announced and cannot be called: {reason}", render::bad("!"))?;
    }
    Ok(exit::OK)
}

/// Returns the announced tools that the registry does not accept, with the reason.
fn rejected(discovered: &Discovered) -> BTreeMap<String, String> {
    let handlers = discovered.directory.handlers();
    let announced = handlers.iter().flat_map(|handler| handler.tools.iter());
    let missing = announced.filter(|tool| discovered.registry.get(&tool.name).is_none());
    let described = missing.map(|tool| {
        let reason = match ArgumentSchema::compile(&tool.parameters) {
            Err(error) => error.to_string(),
            Ok(_) => "its name is not valid, or its definition is too large".to_owned(),
        };
        (render::clean(&tool.name), render::clean(&reason))
    });
    described.collect()
}

/// Returns the definition of a tool as JSON, with the handlers that lack it and the refused tools of the
/// same name.
fn list_entry(
    tool: &ToolRegistration,
    mismatch: Option<&MismatchedTool>,
    conflict: Option<&PoolConflict>,
) -> serde_json::Result<serde_json::Value> {
    let mut entry = serde_json::to_value(tool)?;
    if let Some(mismatch) = mismatch {
        entry["missingFrom"] = json!(mismatch.missing_from);
        entry["definitionsDiffer"] = json!(mismatch.definitions_differ);
    }
    if let Some(conflict) = conflict {
        let refused: Vec<_> = conflict.refused.iter().map(ToString::to_string).collect();
        entry["refused"] = json!(refused);
    }
    Ok(entry)
}

/// Returns the effect of a tool in a word.
pub(crate) fn hints(hints: ToolHints) -> &'static str {
    match hints {
        ToolHints { read_only: true, .. } => "reads",
        ToolHints { destructive: true, .. } => "may destroy",
        _ => "writes",
    }
}

/// Returns the definition of a tool.
///
/// # Errors
/// When no handler announces it.
pub(crate) fn find(discovered: &Discovered, name: &str) -> Result<ToolRegistration, Failure> {
    discovered.registry.get(name).map(|tool| tool.registration().clone()).ok_or_else(|| {
        let known: Vec<_> = discovered.registry.list().into_iter().map(|tool| tool.name).collect();
        match known.as_slice() {
            [] => Failure::unavailable(format!(
                "no handler is available for tool {name}: no tool handler is connected to this bus"
            )),
            known => {
                let similar = similar_names::closest(name, known);
                let advice = similar.map(|similar| format!("did you mean {similar}? "));
                Failure::unavailable(format!(
                    "no handler is available for tool {name}; {}available tools: {}",
                    advice.unwrap_or_default(),
                    known.join(", ")
                ))
            }
        }
    })
}

fn describe(discovered: &Discovered, name: &str, json: bool) -> Outcome {
    let tool = find(discovered, name)?;
    if json {
        outln!("{}", render::json(&json!(tool)))?;
        return Ok(exit::OK);
    }
    let bold = anstyle::Style::new().bold();
    outln!("{bold}{}{bold:#} — {}", tool.name, render::clean(tool.display_label()))?;
    outln!("{}\n", render::clean(&tool.description))?;
    let catalog = discovered.directory.view().snapshot();
    let pool = catalog.owner(&tool.name).cloned().unwrap_or_default();
    let providers: Vec<String> = catalog
        .handlers()
        .filter(|handler| handler.pool == pool)
        .filter(|handler| handler.tools.iter().any(|one| one.name == tool.name))
        .map(KnownHandler::name)
        .collect();
    let timeout =
        tool.timeout_ms.map_or_else(|| "set by caller".to_owned(), |ms| format!("{ms} ms"));
    let yes_no = |value: bool| if value { "yes" } else { "no" }.to_owned();
    let rows = [
        ("source", render::clean(&tool.source.to_string())),
        ("pool", pool.to_string()),
        ("handlers", render::clean(&providers.join(", "))),
        ("read-only", yes_no(tool.hints.read_only)),
        ("destructive", yes_no(tool.hints.destructive)),
        ("idempotent", yes_no(tool.hints.idempotent)),
        ("open world", yes_no(tool.hints.open_world)),
        ("timeout", timeout),
        ("definition", tool.fingerprint()),
    ];
    let rows = rows.into_iter().map(|(name, value)| vec![name.to_owned(), value]);
    outln!("{}", render::table(&["", ""], rows))?;
    let schema = serde_json::to_string_pretty(&tool.parameters).or_exit(exit::SOFTWARE)?;
    outln!("\n{bold}arguments{bold:#}\n{}", render::clean(&schema))?;
    Ok(exit::OK)
}

/// Calls a tool of a provider in this process as `caller`, and prints its progress and result.
pub(crate) async fn invoke_provided(
    tool: Arc<dyn Tool>,
    caller: AgentName,
    arguments: String,
    timeout: Duration,
    json: bool,
) -> Outcome {
    let registration = tool.registration().clone();
    let registry = Arc::new(ToolRegistry::new());
    registry.register(tool).or_exit(exit::UNAVAILABLE)?;
    invoke(registry, registration, caller, arguments, timeout, json).await
}

/// Calls a tool of a registry as `caller`, and prints its progress and result.
pub(crate) async fn invoke(
    registry: Arc<ToolRegistry>,
    tool: ToolRegistration,
    caller: AgentName,
    arguments: String,
    timeout: Duration,
    json: bool,
) -> Outcome {
    let executor = ToolExecutor::new(registry);
    let mut context =
        ToolContext::new(&tool.name, SessionId::new(SESSION).or_exit(exit::SOFTWARE)?, caller);
    context.deadline = tokio::time::Instant::now() + timeout;
    if !json {
        context.updates = Some(Arc::new(|update| {
            if let ToolUpdate::Progress(line) = update {
                note!("{}", render::dim(&render::clean(&line)));
            }
        }));
    }
    let id = context.tool_call_id.clone();
    let cancellation = context.cancellation.clone();
    let mut interrupts = Interrupts::listen().or_exit(exit::SOFTWARE)?;
    let started = std::time::Instant::now();
    let call = executor.execute(ToolCall { context, arguments: arguments.into() });
    tokio::pin!(call);
    let result = tokio::select! {
        result = &mut call => result,
        _ = interrupts.recv() => {
            cancellation.cancel();
            call.await
        }
    };
    let elapsed_ms = u64::try_from(started.elapsed().as_millis()).unwrap_or(u64::MAX);
    if json {
        outln!("{}", render::json(&to_json(id.as_str(), &tool.name, elapsed_ms, &result)))?;
    }
    match result {
        Ok(result) => {
            if !json {
                let text = result.to_text();
                let mut stdout = std::io::stdout().lock();
                // Control characters are removed only for a terminal.
                let text = if stdout.is_terminal() { render::clean(&text).into() } else { text };
                stdout.write_all(text.as_bytes())?;
                if !text.ends_with('\n') {
                    stdout.write_all(b"\n")?;
                }
            }
            Ok(if result.is_error { exit::ANSWERED_WITH_ERROR } else { exit::OK })
        }
        Err(failure) => {
            let code = exit_code(&failure.code());
            if json { Ok(code) } else { Err(call_failure::failed(&failure)) }
        }
    }
}

fn to_json(
    id: &str,
    name: &str,
    elapsed_ms: u64,
    result: &Result<ToolResult, ToolFailure>,
) -> serde_json::Value {
    match result {
        Ok(result) => json!({
            "toolCallId": id, "toolName": name, "elapsedMs": elapsed_ms, "ok": !result.is_error,
            "content": result.to_text(), "blocks": result.content, "details": result.details,
            "executed": "yes", "ranOn": result.ran_on,
        }),
        Err(failure) => json!({
            "toolCallId": id, "toolName": name, "elapsedMs": elapsed_ms, "ok": false,
            "code": failure.code(), "message": failure.to_string(),
            "executed": failure.executed(), "isRetryable": failure.is_retryable(),
            "ranOn": failure.ran_on(),
        }),
    }
}

/// Reads the arguments from the command line, a file or standard input, and validates them.
pub(crate) fn read_arguments(given: Option<&str>) -> Result<String, Failure> {
    use std::io::Read;
    let read = |source: &mut dyn Read, name: &str| {
        let mut text = String::new();
        source
            .take(MAX_ARGUMENT_BYTES)
            .read_to_string(&mut text)
            .with_context(|| format!("cannot read the arguments from {name}"))
            .or_exit(exit::USAGE)?;
        Ok::<_, Failure>(text)
    };
    let text = match given {
        None => "{}".to_owned(),
        Some("-") => read(&mut std::io::stdin().lock(), "standard input")?,
        Some(given) => match given.strip_prefix('@') {
            Some(path) => {
                let file = std::fs::File::open(path).with_context(|| format!("cannot open {path}"));
                read(&mut file.or_exit(exit::USAGE)?, path)?
            }
            None => given.to_owned(),
        },
    };
    let read = rockbot_tools::arguments::parse(&text);
    read.map_err(|error| {
        Failure::usage(format!("{error}; expected for example '{{\"path\":\"a\"}}'"))
    })?;
    Ok(text)
}
