//! `rockbot doctor`: checks the health of a fleet.

mod diagnosis;
mod findings;
mod message_limit;
#[cfg(test)]
mod remedies;
mod repetition;
mod round_trip;

use std::{collections::BTreeMap, io, time::Duration};

use rockbot_bus::report::QueueDepth;
use rockbot_contracts::{HandlerLoad, HandlerPool};
use rockbot_monitor::Finding;
use rockbot_service::exit;
use rockbot_tool_rpc::catalog::KnownHandler;
use serde_json::json;

use self::{
    diagnosis::{Diagnosis, Preparation},
    findings::{findings, verdict},
    message_limit::{MessageLimit, MessageLimitProbe},
    round_trip::PINGS,
};
use crate::{
    dlq,
    failure::Outcome,
    fleet::{Fleet, agent_client},
    print::outln,
    render,
    settings::Settings,
};

/// Checks a fleet once, or every `watch` until Ctrl-C.
pub(crate) async fn run(settings: &Settings, watch: Option<Duration>, json: bool) -> Outcome {
    let fleet = Fleet::open(settings).await?;
    let mut preparation = if settings.embeds() {
        Preparation::default()
    } else {
        Preparation {
            agents: agent_client(fleet.bus.clone()).await.ok(),
            message_limit: Some(MessageLimitProbe::default()),
        }
    };
    let outcome = match watch {
        Some(pause) => repetition::run(settings, &fleet, &mut preparation, pause, json).await,
        None => Diagnosis::check(settings, &fleet, &mut preparation)
            .await
            .and_then(|diagnosis| report(&diagnosis, json.then_some(render::json))?),
    };
    fleet.close().await;
    outcome
}

/// Prints a check, in the JSON format `json` if there is one, and returns its outcome. Fails only when it cannot be
/// printed.
fn report(
    diagnosis: &Diagnosis,
    json: Option<fn(&serde_json::Value) -> String>,
) -> io::Result<Outcome> {
    let findings = findings(diagnosis);
    match json {
        Some(format) => outln!("{}", format(&to_json(diagnosis, &findings)))?,
        None => print(diagnosis, &findings)?,
    }
    Ok(verdict(&findings).map_or(Ok(exit::OK), Err))
}

fn print(diagnosis: &Diagnosis, findings: &[Finding]) -> io::Result<()> {
    let Diagnosis { queues, handlers, servers, message_limit, .. } = diagnosis;
    let lines = summary(diagnosis);
    let width = lines.iter().map(|(label, _)| label.len()).max().unwrap_or_default();
    for (label, text) in &lines {
        outln!("{label:width$}  {text}")?;
    }
    outln!()?;
    outln!("{}\n", render::table(&dlq::HEADINGS, queues.iter().map(dlq::row)))?;
    let headings = ["handler", "pool", "version", "tools", "running", "waiting", "oldest call"];
    let rows = handlers.iter().map(handler_row);
    outln!("{}\n", render::table(&headings, rows))?;
    let tools = handlers_by_tool(handlers);
    let rows = tools
        .iter()
        .map(|(tool, handlers)| vec![render::clean(tool), render::clean(&handlers.join(", "))]);
    outln!("{}", render::table(&["tool", "handlers"], rows))?;
    if !servers.index.is_empty() {
        let rows = servers
            .index
            .servers()
            .map(|server| vec![render::clean(&server.name), server.tool_count.to_string()]);
        outln!("\n{}", render::table(&["mcp server", "tools"], rows))?;
    }
    if let Some(line) = message_limit.as_ref().and_then(MessageLimit::line) {
        outln!("\n{line}")?;
    }
    for finding in findings.iter().filter(|finding| finding.is_warning()) {
        outln!("\n{}", render::dim(&format!("warning: {}", finding.message)))?;
    }
    if findings.is_empty() {
        outln!("\n{}", render::good("no problem found"))?;
    }
    Ok(())
}

/// Returns the first lines of the report, each with its label.
fn summary(diagnosis: &Diagnosis) -> Vec<(&'static str, String)> {
    let Diagnosis { bus, handlers, round_trip, scripts, .. } = diagnosis;
    let address = bus.address.as_deref().map_or_else(String::new, |at| format!(" at {at}"));
    let median = render::duration(round_trip.median);
    let readers = consumers(round_trip.reply_depth);
    let mut lines = vec![
        ("bus", render::clean(&format!("{}{address}", bus.product))),
        ("round trip", format!("{median} (median of {PINGS} messages to this process)")),
        ("replies", format!("{}, {readers}", round_trip.reply_queue)),
    ];
    if let Some(isolation) = scripts {
        let by = isolation.as_ref().map_or("unavailable", |isolation| &isolation.mechanism);
        lines.push(("scripts here", render::clean(by)));
    }
    for (mechanism, handlers) in handlers_by_isolation(handlers) {
        let by = format!("{mechanism} ({})", handlers.join(", "));
        lines.push(("scripts of handlers", render::clean(&by)));
    }
    lines
}

fn consumers(depth: Option<QueueDepth>) -> String {
    depth.map_or_else(
        || "missing".to_owned(),
        |depth| render::count(depth.consumers as usize, "consumer"),
    )
}

fn handler_row(handler: &KnownHandler) -> Vec<String> {
    let unknown = || "–".to_owned();
    let number = |pick: fn(HandlerLoad) -> u64| {
        handler.load.map_or_else(unknown, |load| pick(load).to_string())
    };
    let oldest = handler.load.and_then(|load| load.oldest_ms);
    vec![
        render::clean(&handler.name()),
        pool_name(&handler.pool).unwrap_or("–").to_owned(),
        render::clean(handler.version.as_deref().unwrap_or("–")),
        handler.tools.len().to_string(),
        number(|load| load.running),
        number(|load| load.waiting),
        oldest.map_or_else(unknown, |ms| render::duration(Duration::from_millis(ms))),
    ]
}

/// Returns the name of a pool; `None` for the unnamed one.
fn pool_name(pool: &HandlerPool) -> Option<&str> {
    match pool {
        HandlerPool::Unnamed => None,
        HandlerPool::Named(name) => Some(name.as_str()),
    }
}

/// Returns the names of the handlers of each tool.
fn handlers_by_tool(handlers: &[KnownHandler]) -> BTreeMap<String, Vec<String>> {
    let mut tools: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for handler in handlers {
        for tool in handler.tools.iter() {
            tools.entry(tool.name.clone()).or_default().push(handler.name());
        }
    }
    tools
}

/// Returns the names of the handlers that run scripts, by the mechanism of their isolation.
fn handlers_by_isolation(handlers: &[KnownHandler]) -> BTreeMap<&str, Vec<String>> {
    let mut mechanisms: BTreeMap<_, Vec<_>> = BTreeMap::new();
    for handler in handlers {
        if let Some(isolation) = &handler.script_isolation {
            mechanisms.entry(isolation.mechanism.as_str()).or_default().push(handler.name());
        }
    }
    mechanisms
}

fn to_json(diagnosis: &Diagnosis, findings: &[Finding]) -> serde_json::Value {
    let Diagnosis { bus, queues, handlers, servers, round_trip, scripts, .. } = diagnosis;
    let message_limit = diagnosis.message_limit.as_ref().map(MessageLimit::to_json);
    let handler_reports: Vec<_> = handlers
        .iter()
        .map(|handler| {
            let tools: Vec<_> = handler.tools.iter().map(|tool| &tool.name).collect();
            let scripts = handler.script_isolation.as_ref().map(
                |isolation| json!({"isolatedBy": isolation.mechanism, "missing": isolation.gaps}),
            );
            json!({"handler": handler.handler, "instance": handler.instance.as_str(),
                "pool": pool_name(&handler.pool), "version": handler.version, "tools": tools, "load": handler.load,
                "scripts": scripts})
        })
        .collect();
    let findings: Vec<_> = findings
        .iter()
        .map(|finding| json!({"severity": finding.severity.as_str(), "message": finding.message}))
        .collect();
    json!({
        "bus": bus.product,
        "address": bus.address,
        "queues": queues.iter().map(dlq::to_json).collect::<Vec<_>>(),
        "handlers": handler_reports,
        "tools": handlers_by_tool(handlers),
        "mcpServers": servers.index.servers()
            .map(|server| json!({"name": server.name, "tools": server.tool_count}))
            .collect::<Vec<_>>(),
        "mcpStates": servers.states.iter()
            .map(|report| json!({"bridge": report.bridge, "state": report.state}))
            .collect::<Vec<_>>(),
        "replyQueue": {"name": round_trip.reply_queue,
            "consumers": round_trip.reply_depth.map(|depth| depth.consumers)},
        "roundTripMicros": round_trip.median.as_micros(),
        "messageLimit": message_limit,
        "scripts": scripts.as_ref().map(|isolation| match isolation {
            Ok(isolation) => json!({"isolatedBy": isolation.mechanism, "missing": isolation.gaps}),
            Err(error) => json!({"problem": error}),
        }),
        "findings": findings,
    })
}
