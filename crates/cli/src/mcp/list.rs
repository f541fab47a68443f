//! `rockbot mcp list`: the MCP servers of a fleet and their states.

use std::{collections::BTreeMap, time::SystemTime};

use rockbot_contracts::{
    envelope::unix_ms,
    mcp::{McpConnection, McpServerState, McpServerSummary},
};
use rockbot_service::exit;
use rockbot_tool_rpc::mcp::{McpIndex, McpServerReport};
use serde_json::{Value, json};

use crate::{
    failure::{Failure, Outcome},
    fleet::McpServers,
    print::outln,
    render,
};

const HEADINGS: [&str; 9] =
    ["server", "bridge", "state", "since", "restarts", "protocol", "tools", "left out", ""];
/// The position of the heading `bridge`.
const BRIDGE: usize = 1;

pub(super) fn run(servers: &McpServers, json: bool) -> Outcome {
    let index = servers.gateway.index().borrow().clone();
    let reports = servers.gateway.states().borrow().clone();
    if json {
        outln!("{}", render::json(&to_json(&index, &reports)))?;
        return Ok(exit::OK);
    }
    if index.is_empty() && reports.is_empty() {
        return Err(Failure::unavailable(
            "no MCP server is configured; set mcp.config to a server file, or start rockbot-mcp-bridge \
             on this bus",
        ));
    }
    outln!("{}", table(&index, &reports))?;
    for server in index.servers() {
        super::print_rejected(&server.name, &server.rejected_tools)?;
        super::print_renamed(&server.name, &server.renamed_tools, server.renamed_left_out)?;
    }
    Ok(exit::OK)
}

/// Returns each server with its states at all bridges, ordered by name. Its index entry is missing while no
/// bridge has connected it.
fn by_server<'a>(
    index: &'a McpIndex,
    reports: &'a [McpServerReport],
) -> BTreeMap<String, (Option<&'a McpServerSummary>, Vec<&'a McpServerReport>)> {
    let mut servers: BTreeMap<_, (_, Vec<_>)> = BTreeMap::new();
    for server in index.servers() {
        servers.insert(server.name.to_lowercase(), (Some(server), Vec::new()));
    }
    for report in reports {
        servers.entry(report.state.name.to_lowercase()).or_default().1.push(report);
    }
    servers
}

fn to_json(index: &McpIndex, reports: &[McpServerReport]) -> Value {
    let servers = by_server(index, reports).into_values().map(|(summary, reports)| {
        let states = reports.iter().map(|McpServerReport { bridge, state }| {
            let mut shown = json!(state);
            shown["bridge"] = json!(bridge);
            shown
        });
        let mut server = summary.map_or_else(|| json!({}), |summary| json!(summary));
        if summary.is_none() {
            server["name"] = json!(reports.first().map(|report| &report.state.name));
        }
        server["states"] = states.collect();
        server
    });
    servers.collect()
}

fn table(index: &McpIndex, reports: &[McpServerReport]) -> String {
    let now = unix_ms(SystemTime::now()) / 1000;
    let mut rows = Vec::new();
    for (summary, reports) in by_server(index, reports).into_values() {
        let description = summary.map_or_else(String::new, |server| render::clean(&server.summary));
        if let (Some(server), []) = (summary, reports.as_slice()) {
            // Its bridge announces no states.
            let (name, tools) = (render::clean(&server.name), server.tool_count.to_string());
            let unknown = || "–".to_owned();
            let (state, left_out) = (unknown(), server.rejected_tools.len().to_string());
            rows.push(vec![
                name,
                unknown(),
                state,
                unknown(),
                unknown(),
                unknown(),
                tools,
                left_out,
                description.clone(),
            ]);
        }
        rows.extend(reports.into_iter().map(|report| row(report, &description, now)));
    }
    // A single process has one bridge, which has no name.
    if reports.iter().any(|report| report.bridge.is_some()) || reports.is_empty() {
        return render::table(&HEADINGS, rows);
    }
    for row in &mut rows {
        row.remove(BRIDGE);
    }
    let headings: Vec<_> = HEADINGS.into_iter().filter(|heading| *heading != "bridge").collect();
    render::table(&headings, rows)
}

fn row(report: &McpServerReport, description: &str, now: u64) -> Vec<String> {
    let McpServerReport { bridge, state } = report;
    let McpServerState { name, reason, since_ms, restarts, protocol_version, .. } = state;
    let since = match since_ms {
        0 => "–".to_owned(),
        since_ms => render::ago(since_ms / 1000, now),
    };
    let reason = reason.as_deref().map(render::clean);
    vec![
        render::clean(name),
        bridge.as_ref().map_or_else(String::new, ToString::to_string),
        connection(state.connection),
        since,
        restarts.to_string(),
        protocol_version.as_deref().map_or_else(|| "–".to_owned(), render::clean),
        state.tools_offered.to_string(),
        state.tools_left_out.to_string(),
        reason.unwrap_or_else(|| description.to_owned()),
    ]
}

fn connection(connection: McpConnection) -> String {
    match connection {
        McpConnection::Connecting => render::dim("connecting"),
        McpConnection::Connected => render::good("connected"),
        McpConnection::Failed => render::bad("failed"),
        McpConnection::OwnedElsewhere => render::dim("elsewhere"),
        McpConnection::Invalid => render::bad("invalid"),
        McpConnection::Unknown => render::dim("unknown"),
    }
}

#[cfg(test)]
mod tests {
    use rockbot_contracts::InstanceId;

    use super::*;

    fn report(name: &str, bridge: Option<&str>, connection: McpConnection) -> McpServerReport {
        let bridge = bridge.map(|bridge| InstanceId::new(bridge).unwrap());
        let name = name.to_owned();
        McpServerReport {
            bridge,
            state: McpServerState { name, connection, ..McpServerState::default() },
        }
    }

    fn index() -> McpIndex {
        let server = json!({"name": "Git", "summary": "Repositories.", "toolCount": 2,
            "fingerprint": "f"});
        [serde_json::from_value(server).unwrap()].into_iter().collect()
    }

    #[test]
    fn unconnected_servers_are_listed_with_their_reason() {
        let mut failed = report("time", Some("b-2"), McpConnection::Failed);
        failed.state.reason = Some("no such program\u{1b}[2J".to_owned());
        let reports = [report("git", Some("b-1"), McpConnection::Connected), failed];
        let text = anstream::adapter::strip_str(&table(&index(), &reports)).to_string();
        let lines: Vec<_> = text.lines().collect();
        assert_eq!(lines.len(), 3, "{text}");
        assert!(lines[1].contains("b-1") && lines[1].contains("Repositories."), "{text}");
        assert!(lines[2].contains("failed") && lines[2].ends_with("no such program"), "{text}");
        let json = to_json(&index(), &reports);
        assert_eq!(json[0]["name"], "Git");
        assert_eq!(json[0]["states"][0]["bridge"], "b-1");
        assert_eq!(json[1]["name"], "time");
        assert_eq!(json[1]["states"][0]["connection"], "failed");
        assert!(json[1].get("toolCount").is_none(), "{json}");
    }

    #[test]
    fn bridges_are_named_in_a_fleet_only() {
        let heading = |reports: &[McpServerReport]| {
            let text = anstream::adapter::strip_str(&table(&index(), reports)).to_string();
            text.lines().next().unwrap_or_default().contains("BRIDGE")
        };
        assert!(!heading(&[report("Git", None, McpConnection::Connecting)]));
        assert!(heading(&[report("Git", Some("b"), McpConnection::Connecting)]));
        assert!(heading(&[]), "a bridge without states");
    }
}
