//! `rockbot mcp check`: connects to every server in a file and reports the results.

use std::{io, path::Path, time::Duration};

use rockbot_mcp_bridge::{Bridge, BridgeOptions, ServerStatus, ServersFile};
use rockbot_service::{Interrupts, exit};
use serde_json::json;

use crate::{
    failure::{Failure, OrExit, Outcome},
    print::{note, outln},
    render,
    settings::Settings,
};

/// The time limit for connecting to all servers. Many are downloaded at their first start.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(100);

pub(super) async fn run(settings: &Settings, file: &Path, json: bool) -> Outcome {
    let read = ServersFile::read(file, |name| std::env::var(name).ok());
    let servers =
        read.map_err(|problem| Failure::usage(format!("{}: {problem}", render::path(file))))?;
    let warnings = servers.warnings.clone();
    let queues = settings.handler.queues();
    let queue_problems = servers.queue_problems(|name| queues.contains_key(name));
    let problems = servers.errors.iter().chain(&queue_problems);
    let problems: Vec<_> =
        problems.map(|problem| format!("{}: {problem}", file.display())).collect();
    let mut interrupts = Interrupts::listen().or_exit(exit::SOFTWARE)?;
    let bridge = Bridge::new(BridgeOptions { queues, ..settings.mcp.options() });
    if !json {
        note!("{}", render::dim(&format!("connecting to {} servers…", servers.servers.len())));
    }
    bridge.apply(servers).await;
    tokio::select! {
        () = bridge.wait_until_settled(CONNECT_TIMEOUT) => {}
        _ = interrupts.recv() => {}
    }
    let servers = bridge.servers();
    bridge.stop().await;
    print_report(&servers, &problems, &warnings, json)?;
    Ok(if !problems.is_empty() {
        exit::USAGE
    } else if servers.iter().all(|server| server.ready) {
        exit::OK
    } else {
        exit::ANSWERED_WITH_ERROR
    })
}

fn print_report(
    servers: &[ServerStatus],
    problems: &[String],
    warnings: &[String],
    json: bool,
) -> io::Result<()> {
    if json {
        let servers = servers.iter().map(|server| {
            json!({
                "name": server.name, "ready": server.ready, "tools": server.tools,
                "transport": server.transport, "required": server.required,
                "protocolVersion": server.protocol_version,
                "why": server.reason, "rejectedTools": server.rejected_tools,
                "renamedTools": server.renamed_tools, "renamedLeftOut": server.renamed_left_out,
            })
        });
        let servers: Vec<_> = servers.collect();
        let report = json!({"servers": servers, "problems": problems, "warnings": warnings});
        return outln!("{}", render::json(&report));
    }
    let rows = servers.iter().map(|server| {
        let state = if server.ready { render::good("ready") } else { render::bad("failed") };
        let why = server.reason.clone().unwrap_or_else(|| {
            if server.ready { String::new() } else { "connection timed out".to_owned() }
        });
        let version = server.protocol_version.clone().unwrap_or_default();
        vec![
            render::clean(&server.name),
            state,
            server.transport.to_owned(),
            server.tools.to_string(),
            render::clean(&version),
            render::clean(&why),
        ]
    });
    outln!("{}", render::table(&["server", "state", "transport", "tools", "protocol", ""], rows))?;
    for server in servers {
        super::print_rejected(&server.name, &server.rejected_tools)?;
        super::print_renamed(&server.name, &server.renamed_tools, server.renamed_left_out)?;
    }
    for warning in warnings {
        outln!("{}", render::dim(&render::clean(warning)))?;
    }
    for problem in problems {
        outln!("{} {}", render::bad("!"), render::clean(problem))?;
    }
    Ok(())
}
