//! `rockbot doctor`: is the fleet well?

mod findings;
mod round_trip;

use std::{collections::BTreeMap, io, time::Duration};

use rockbot_bus::{BusReport, report::QueueDepth};
use rockbot_contracts::HandlerLoad;
use rockbot_scripts::Isolation;
use rockbot_service::exit;
use rockbot_tool_rpc::catalog::KnownHandler;
use serde_json::json;

use self::{
    findings::{Finding, findings, verdict},
    round_trip::{PINGS, RoundTrip},
};
use crate::{
    dlq,
    ending::{Failure, Outcome},
    fleet::Fleet,
    print::say,
    settings::Settings,
    show,
    work_queues::{self, WorkQueue},
};

/// What the doctor saw.
#[derive(Debug)]
struct Examination {
    bus: BusReport,
    queues: Vec<WorkQueue>,
    handlers: Vec<KnownHandler>,
    round_trip: RoundTrip,
    scripts: Option<Isolated>,
}

/// By what scripts of this process would be isolated, or why there are none.
type Isolated = Result<Isolation, String>;

pub(crate) async fn run(settings: &Settings, json: bool) -> Outcome {
    let fleet = Fleet::reach(settings).await?;
    let outcome = examine(settings, &fleet).await;
    let outcome = outcome.and_then(|examination| report(&examination, json));
    fleet.leave().await;
    outcome
}

async fn examine(settings: &Settings, fleet: &Fleet) -> Result<Examination, Failure> {
    let names = work_queues::known(settings)?;
    let discovered = fleet.discover_all("doctor").await?;
    let round_trip = round_trip::measure(fleet).await?;
    let (bus, queues) = work_queues::look(fleet.bus.as_ref(), &names).await?;
    let handlers = discovered.directory.handlers();
    let scripts = if settings.embeds() { isolated(settings).await } else { None };
    Ok(Examination { bus, queues, handlers, round_trip, scripts })
}

/// Starts who runs scripts here, to see what there is.
async fn isolated(settings: &Settings) -> Option<Isolated> {
    match settings.scripts.start().await {
        Ok(None) => None,
        Ok(Some(scripts)) => {
            let isolation = scripts.isolation().clone();
            scripts.close().await;
            Some(Ok(isolation))
        }
        Err(error) => Some(Err(error.to_string())),
    }
}

fn report(examination: &Examination, json: bool) -> Outcome {
    let findings = findings(examination);
    if json {
        say!("{}", show::json(&to_json(examination, &findings)))?;
    } else {
        print(examination, &findings)?;
    }
    verdict(&findings).map_or(Ok(exit::OK), Err)
}

fn print(examination: &Examination, findings: &[Finding]) -> io::Result<()> {
    let Examination { bus, queues, handlers, round_trip, scripts } = examination;
    let address = bus.address.as_deref().map_or_else(String::new, |at| format!(" at {at}"));
    say!("bus         {}", show::clean(&format!("{}{address}", bus.product)))?;
    let median = show::duration(round_trip.median);
    say!("round trip  {median} (a message to itself, median of {PINGS})")?;
    say!("replies     {}, {}", round_trip.reply_queue, consumers(round_trip.reply_depth))?;
    if let Some(isolated) = scripts {
        let by = isolated.as_ref().map_or("can't be run here", |isolation| &isolation.by);
        say!("scripts     {}", show::clean(by))?;
    }
    say!()?;
    say!("{}\n", show::table(&dlq::HEADS, queues.iter().map(dlq::row)))?;
    let heads = ["handler", "version", "tools", "running", "waiting", "oldest call"];
    let rows = handlers.iter().map(handler_row);
    say!("{}\n", show::table(&heads, rows))?;
    let servers = servers(handlers);
    let rows =
        servers.iter().map(|(tool, by)| vec![show::clean(tool), show::clean(&by.join(", "))]);
    say!("{}", show::table(&["tool", "served by"], rows))?;
    for finding in findings.iter().filter(|finding| finding.is_warning()) {
        say!("\n{}", show::dim(&format!("warning: {}", finding.message)))?;
    }
    Ok(())
}

fn consumers(depth: Option<QueueDepth>) -> String {
    depth.map_or_else(
        || "which does not exist".to_owned(),
        |depth| show::count(depth.consumers as usize, "consumer"),
    )
}

fn handler_row(handler: &KnownHandler) -> Vec<String> {
    let unsaid = || "–".to_owned();
    let number = |pick: fn(HandlerLoad) -> u64| {
        handler.load.map_or_else(unsaid, |load| pick(load).to_string())
    };
    let oldest = handler.load.and_then(|load| load.oldest_ms);
    vec![
        show::clean(&name(handler)),
        show::clean(handler.version.as_deref().unwrap_or("–")),
        handler.tools.len().to_string(),
        number(|load| load.running),
        number(|load| load.waiting),
        oldest.map_or_else(unsaid, |ms| show::duration(Duration::from_millis(ms))),
    ]
}

fn name(handler: &KnownHandler) -> String {
    format!("{}/{}", handler.handler, handler.instance)
}

/// Which handlers serve a tool.
fn servers(handlers: &[KnownHandler]) -> BTreeMap<String, Vec<String>> {
    let mut servers: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for handler in handlers {
        for tool in &handler.tools {
            servers.entry(tool.name.clone()).or_default().push(name(handler));
        }
    }
    servers
}

fn to_json(examination: &Examination, findings: &[Finding]) -> serde_json::Value {
    let Examination { bus, queues, handlers, round_trip, scripts } = examination;
    let handlers_said: Vec<_> = handlers
        .iter()
        .map(|handler| {
            let tools: Vec<_> = handler.tools.iter().map(|tool| &tool.name).collect();
            json!({"handler": handler.handler, "instance": handler.instance.as_str(),
                "version": handler.version, "tools": tools, "load": handler.load})
        })
        .collect();
    let findings: Vec<_> = findings
        .iter()
        .map(|finding| json!({"severity": finding.severity.word(), "message": finding.message}))
        .collect();
    json!({
        "bus": bus.product,
        "address": bus.address,
        "queues": queues.iter().map(dlq::to_json).collect::<Vec<_>>(),
        "handlers": handlers_said,
        "tools": servers(handlers),
        "replyQueue": {"name": round_trip.reply_queue,
            "consumers": round_trip.reply_depth.map(|depth| depth.consumers)},
        "roundTripMicros": round_trip.median.as_micros(),
        "scripts": scripts.as_ref().map(|isolated| match isolated {
            Ok(isolation) => json!({"isolatedBy": isolation.by, "missing": isolation.missing}),
            Err(problem) => json!({"problem": problem}),
        }),
        "findings": findings,
    })
}
