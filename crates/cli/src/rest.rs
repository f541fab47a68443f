//! `rockbot rest`: checks a file of REST tools, lists the configured ones and calls one in this process.

use std::{collections::BTreeMap, io, path::Path, sync::Arc, time::Duration};

use rockbot_contracts::AgentName;
use rockbot_rest::{EntryStatus, RestProvider, RestStatus};
use rockbot_service::exit;
use rockbot_tools::{
    ToolProvider,
    limits::queue::{Queue, QueueRules},
};
use serde_json::json;

use crate::{
    arguments::Rest,
    failure::{Failure, OrExit, Outcome},
    print::{note, outln},
    render,
    settings::Settings,
    tools,
};

/// The caller name of the command.
const CALLER: &str = "cli";

pub(crate) async fn run(settings: &Settings, command: Rest, json: bool) -> Outcome {
    match command {
        Rest::Check { file } => {
            let status = open(settings, &file).await?.status();
            print_report(&status, json)?;
            Ok(if status.is_ok() { exit::OK } else { exit::ANSWERED_WITH_ERROR })
        }
        Rest::List => list(&*open(settings, configured(settings)?).await?, json),
        Rest::Call { name, arguments, timeout } => {
            // Validated before anything is read.
            let arguments = tools::read_arguments(arguments.as_deref())?;
            let provider = open(settings, configured(settings)?).await?;
            call(&provider, &name, arguments, Duration::from_secs(timeout), json).await
        }
    }
}

fn configured(settings: &Settings) -> Result<&Path, Failure> {
    settings.rest.config.as_deref().ok_or_else(|| {
        Failure::usage(
            "no file of REST tools is configured; set rest.config or ROCKBOT_REST__CONFIG",
        )
    })
}

/// Reads a file and the documents that it names.
async fn open(settings: &Settings, file: &Path) -> Result<Arc<RestProvider>, Failure> {
    let queue = |name: &String| (name.clone(), Queue::new(name, QueueRules::default()));
    let queues: BTreeMap<_, _> = settings.handler.queues.keys().map(queue).collect();
    let options = settings.rest.options(file, queues);
    let provider = RestProvider::new(options).or_exit(exit::SOFTWARE)?;
    // The status has the problems one by one.
    let warmed_up = provider.warm_up().await;
    let status = provider.status();
    if let Err(error) = warmed_up
        && status.is_ok()
    {
        return Err(Failure::unavailable(error));
    }
    if let [problem, ..] = status.problems.as_slice() {
        let file = render::path(file);
        return Err(Failure::usage(format!("{file}: {}", render::clean(problem))));
    }
    Ok(provider)
}

fn print_report(status: &RestStatus, json: bool) -> io::Result<()> {
    if json {
        let entries: Vec<_> = status.entries.iter().map(entry_json).collect();
        return outln!(
            "{}",
            render::json(&json!({"entries": entries, "warnings": status.warnings}))
        );
    }
    let rows = status.entries.iter().map(|entry| {
        let is_ok = entry.problems.is_empty();
        vec![
            render::clean(&entry.name),
            if entry.is_api { "openApi" } else { "restTools" }.to_owned(),
            if is_ok { render::good("ready") } else { render::bad("failed") },
            entry.tools.len().to_string(),
            entry.skipped.len().to_string(),
            render::clean(&entry.problems.join("; ")),
        ]
    });
    outln!("{}", render::table(&["entry", "kind", "state", "tools", "skipped", ""], rows))?;
    for entry in &status.entries {
        let name = render::clean(&entry.name);
        for tool in entry.tools.iter().filter(|_| entry.is_api) {
            outln!("{} {name}: {}", render::good("+"), render::clean(&tool.name))?;
        }
        for skipped in &entry.skipped {
            let (operation, reason) = (&skipped.operation, &skipped.reason);
            let line = format!("{name}: {operation} is not offered: {reason}");
            outln!("{} {}", render::bad("!"), render::clean(&line))?;
        }
        for warning in &entry.warnings {
            outln!("{}", render::dim(&render::clean(&format!("{name}: {warning}"))))?;
        }
    }
    for warning in &status.warnings {
        outln!("{}", render::dim(&render::clean(warning)))?;
    }
    Ok(())
}

fn entry_json(entry: &EntryStatus) -> serde_json::Value {
    let skipped: Vec<_> = entry
        .skipped
        .iter()
        .map(|one| json!({"operation": one.operation, "reason": one.reason}))
        .collect();
    let tools: Vec<_> = entry.tools.iter().map(|tool| &tool.name).collect();
    json!({
        "name": entry.name, "kind": if entry.is_api { "openApi" } else { "restTools" },
        "ready": entry.problems.is_empty(), "tools": tools, "skipped": skipped,
        "problems": entry.problems, "warnings": entry.warnings,
    })
}

fn list(provider: &RestProvider, json: bool) -> Outcome {
    let status = provider.status();
    let tools: Vec<_> = status.entries.iter().flat_map(|entry| &entry.tools).collect();
    if json {
        outln!("{}", render::json(&json!(tools)))?;
        return Ok(exit::OK);
    }
    let rows = tools.iter().map(|tool| {
        let first = tool.description.lines().next().unwrap_or_default();
        vec![
            render::clean(&tool.name),
            tools::hints(tool.hints).to_owned(),
            render::clean(first.split_inclusive(". ").next().unwrap_or_default().trim_end()),
        ]
    });
    outln!("{}", render::table(&["tool", "effect", "description"], rows))?;
    let failed = status.entries.iter().filter(|entry| !entry.problems.is_empty()).count();
    if failed > 0 {
        note!("{} not valid; see `rockbot rest check`", render::count(failed, "entry"));
    }
    Ok(exit::OK)
}

async fn call(
    provider: &RestProvider,
    name: &str,
    arguments: String,
    timeout: Duration,
    json: bool,
) -> Outcome {
    let Some(tool) = provider.get(name) else {
        let shown = render::clean(name);
        return Err(Failure::unavailable(format!(
            "no REST tool is called {shown}; see `rockbot rest list`"
        )));
    };
    let caller = AgentName::new(CALLER).or_exit(exit::SOFTWARE)?;
    tools::invoke_provided(tool, caller, arguments, timeout, json).await
}
