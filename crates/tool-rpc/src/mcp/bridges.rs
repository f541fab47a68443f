//! Servers of each bridge, from its announcements.

use std::{collections::BTreeMap, time::Duration};

use rockbot_contracts::{
    InstanceId,
    mcp::{
        McpPrompt, McpPromptArgument, McpRejectedTool, McpRenamedTool, McpServerState,
        McpServerSummary, McpServersIndexed,
    },
    outside_text::{is_name, plain},
};
use tokio::time::Instant;
use tracing::{info, warn};

use super::{McpIndex, McpServerReport};

/// Maximum number of bridge processes.
const MAX_BRIDGES: usize = 64;

/// Maximum number of servers of one bridge.
const MAX_SERVERS: usize = 256;

/// Maximum number of states of one bridge: of its servers, and of those that it cannot connect.
const MAX_STATES: usize = 2 * MAX_SERVERS;

/// Maximum number of tool names of one server.
const MAX_TOOL_NAMES: usize = 2048;

/// Longest display name of a server, in characters.
const MAX_NAME_CHARS: usize = 128;
/// Longest summary of a server, in characters.
const MAX_SUMMARY_CHARS: usize = 1000;
/// Longest description of a prompt or of its argument, in characters.
const MAX_PROMPT_CHARS: usize = 400;
/// Longest reason of a state, in characters.
const MAX_REASON_CHARS: usize = 1000;

/// Live bridges.
#[derive(Debug, Default)]
pub(super) struct Bridges(BTreeMap<InstanceId, Bridge>);

#[derive(Debug)]
struct Bridge {
    servers: McpIndex,
    states: Vec<McpServerState>,
    fingerprint: String,
    last_seen: Instant,
}

/// Result of an announcement.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum IndexUpdate {
    /// Applied.
    Applied,
    /// Not applied: it is relative to an announcement that was not received.
    Gap,
}

impl Bridges {
    pub(super) fn apply(&mut self, announcement: McpServersIndexed) -> IndexUpdate {
        let McpServersIndexed {
            instance,
            servers,
            removed,
            states,
            is_complete,
            since,
            fingerprint,
        } = announcement;
        let states = states.map(sanitize_states);
        let last_seen = Instant::now();
        if is_complete {
            if self.0.len() >= MAX_BRIDGES && !self.0.contains_key(&instance) {
                warn!(%instance, limit = MAX_BRIDGES, "bridge ignored: too many bridges");
                return IndexUpdate::Applied;
            }
            let states = states.unwrap_or_default();
            let mut bridge =
                Bridge { servers: McpIndex::default(), states, fingerprint, last_seen };
            bridge.insert_servers(servers);
            if self.0.insert(instance.clone(), bridge).is_none() {
                info!(%instance, "bridge announced its servers");
            }
            return IndexUpdate::Applied;
        }
        let Some(bridge) = self.0.get_mut(&instance) else { return IndexUpdate::Gap };
        bridge.last_seen = last_seen;
        if since.as_deref() != Some(&bridge.fingerprint) {
            return IndexUpdate::Gap;
        }
        for name in removed {
            bridge.servers.remove(&name);
        }
        bridge.insert_servers(servers);
        if let Some(states) = states {
            bridge.states = states;
        }
        bridge.fingerprint = fingerprint;
        IndexUpdate::Applied
    }

    /// Removes bridges without an announcement for `timeout`.
    pub(super) fn remove_expired(&mut self, timeout: Duration) {
        self.0.retain(|instance, bridge| {
            let is_alive = bridge.last_seen.elapsed() < timeout;
            if !is_alive {
                warn!(%instance, "bridge removed: no heartbeat");
            }
            is_alive
        });
    }

    /// Returns the servers of all bridges. If bridges announce different summaries of a server, the lowest
    /// instance id wins.
    pub(super) fn index(&self) -> McpIndex {
        self.0.values().rev().flat_map(|bridge| bridge.servers.servers()).cloned().collect()
    }

    /// Returns the states of all servers at all bridges, by bridge.
    pub(super) fn states(&self) -> Vec<McpServerReport> {
        let reports = self.0.iter().flat_map(|(instance, bridge)| {
            let report = |state: &McpServerState| McpServerReport {
                bridge: Some(instance.clone()),
                state: state.clone(),
            };
            bridge.states.iter().map(report)
        });
        reports.collect()
    }

    /// Returns the bridges that have the server.
    pub(super) fn owners(&self, server: &str) -> Vec<InstanceId> {
        let has_server = |(_, bridge): &(_, &Bridge)| bridge.servers.get(server).is_some();
        self.0.iter().filter(has_server).map(|(instance, _)| instance.clone()).collect()
    }

    /// Returns the number of bridges.
    pub(super) fn len(&self) -> usize {
        self.0.len()
    }
}

impl Bridge {
    fn insert_servers(&mut self, servers: Vec<McpServerSummary>) {
        for server in servers {
            if !is_name(&server.name) {
                warn!("server ignored: its name is not valid");
                continue;
            }
            if self.servers.len() >= MAX_SERVERS && self.servers.get(&server.name).is_none() {
                warn!(limit = MAX_SERVERS, "servers ignored: too many of one bridge");
                return;
            }
            self.servers.insert(sanitize(server));
        }
    }
}

fn sanitize(mut server: McpServerSummary) -> McpServerSummary {
    server.display_name = plain(&server.display_name, MAX_NAME_CHARS);
    server.summary = plain(&server.summary, MAX_SUMMARY_CHARS);
    server.fingerprint = plain(&server.fingerprint, MAX_NAME_CHARS);
    server.tool_names.retain(|name| is_name(name));
    server.tool_names.truncate(MAX_TOOL_NAMES);
    server.rejected_tools.truncate(McpRejectedTool::MAX_LISTED);
    for tool in &mut server.rejected_tools {
        tool.name = plain(&tool.name, MAX_NAME_CHARS);
        tool.reason = plain(&tool.reason, MAX_SUMMARY_CHARS);
    }
    server.renamed_tools.retain(|tool| is_name(&tool.name) && is_name(&tool.model_name));
    server.renamed_tools.truncate(McpRenamedTool::MAX_LISTED);
    let announced = server.prompts.len();
    server.prompts.retain(|prompt| is_name(&prompt.name));
    server.prompts.truncate(McpPrompt::MAX_LISTED);
    let removed = u32::try_from(announced - server.prompts.len()).unwrap_or(u32::MAX);
    server.prompts_left_out = server.prompts_left_out.saturating_add(removed);
    server.prompts.iter_mut().for_each(sanitize_prompt);
    server
}

fn sanitize_prompt(prompt: &mut McpPrompt) {
    let line = |text: &str| plain(text, MAX_PROMPT_CHARS).replace(['\n', '\t'], " ");
    prompt.description = line(&prompt.description);
    prompt.arguments.retain(|argument| is_name(&argument.name));
    prompt.arguments.truncate(McpPrompt::MAX_ARGUMENTS);
    for McpPromptArgument { description, .. } in &mut prompt.arguments {
        *description = line(description);
    }
}

fn sanitize_states(mut states: Vec<McpServerState>) -> Vec<McpServerState> {
    states.retain(|state| is_name(&state.name));
    states.truncate(MAX_STATES);
    for state in &mut states {
        let line = |text: &str| plain(text, MAX_REASON_CHARS);
        state.reason = state.reason.as_deref().map(line);
        state.transport = plain(&state.transport, MAX_NAME_CHARS);
        let version = |version: &str| plain(version, MAX_NAME_CHARS);
        state.protocol_version = state.protocol_version.as_deref().map(version);
    }
    states
}

#[cfg(test)]
mod tests {
    use super::*;

    fn server(name: &str) -> McpServerSummary {
        McpServerSummary {
            name: name.to_owned(),
            display_name: name.to_owned(),
            fingerprint: "f".to_owned(),
            ..McpServerSummary::default()
        }
    }

    fn announcement(instance: &str, since: Option<&str>, fingerprint: &str) -> McpServersIndexed {
        McpServersIndexed {
            instance: InstanceId::new(instance).unwrap(),
            servers: Vec::new(),
            removed: Vec::new(),
            states: None,
            is_complete: since.is_none(),
            since: since.map(ToOwned::to_owned),
            fingerprint: fingerprint.to_owned(),
        }
    }

    fn names(bridges: &Bridges) -> Vec<String> {
        bridges.index().servers().map(|server| server.name.clone()).collect()
    }

    #[tokio::test]
    async fn lost_delta_is_detected_by_the_next_announcement() {
        let mut bridges = Bridges::default();
        let delta =
            McpServersIndexed { servers: vec![server("b")], ..announcement("x", Some("1"), "2") };
        assert_eq!(bridges.apply(delta.clone()), IndexUpdate::Gap, "the bridge is unknown");
        let complete =
            McpServersIndexed { servers: vec![server("a")], ..announcement("x", None, "1") };
        assert_eq!(bridges.apply(complete), IndexUpdate::Applied);
        assert_eq!(bridges.apply(delta), IndexUpdate::Applied);
        assert_eq!(names(&bridges), ["a", "b"]);
        assert_eq!(
            bridges.apply(announcement("x", Some("2"), "2")),
            IndexUpdate::Applied,
            "a heartbeat"
        );
        let removed = vec!["A".to_owned()];
        assert_eq!(
            bridges.apply(McpServersIndexed { removed, ..announcement("x", Some("3"), "4") }),
            IndexUpdate::Gap
        );
        assert_eq!(names(&bridges), ["a", "b"], "a delta after a gap is not applied");
    }

    #[tokio::test]
    async fn states_are_kept_until_they_change() {
        let state = |name: &str, reason: &str| McpServerState {
            name: name.to_owned(),
            reason: Some(reason.to_owned()),
            ..McpServerState::default()
        };
        let reasons = |bridges: &Bridges| -> Vec<_> {
            bridges.states().into_iter().map(|report| report.state.reason.unwrap()).collect()
        };
        let mut bridges = Bridges::default();
        let long = "x".repeat(MAX_REASON_CHARS + 1);
        let states =
            vec![state("a", "down\u{1b}[2J"), state("b\u{202e}", "hidden"), state("c", &long)];
        let complete = McpServersIndexed { states: Some(states), ..announcement("x", None, "1") };
        bridges.apply(complete);
        let before = reasons(&bridges);
        assert_eq!((before.len(), before[0].as_str()), (2, "down"));
        assert_eq!(before[1].chars().count(), MAX_REASON_CHARS);
        bridges.apply(announcement("x", Some("1"), "2"));
        assert_eq!(reasons(&bridges), before, "a delta without states leaves them");
        let delta = McpServersIndexed {
            states: Some(vec![state("a", "up")]),
            ..announcement("x", Some("2"), "3")
        };
        bridges.apply(delta);
        assert_eq!(reasons(&bridges), ["up"]);
        assert_eq!(bridges.states()[0].bridge, InstanceId::new("x").ok());
        let many = (0..2 * MAX_STATES).map(|number| state(&format!("s{number}"), "r")).collect();
        bridges.apply(McpServersIndexed { states: Some(many), ..announcement("x", None, "4") });
        assert_eq!(bridges.states().len(), MAX_STATES);
    }

    #[tokio::test]
    async fn server_stays_while_one_bridge_has_it() {
        let mut bridges = Bridges::default();
        for instance in ["x", "y"] {
            let servers = vec![server("Both"), server(instance)];
            bridges.apply(McpServersIndexed { servers, ..announcement(instance, None, "1") });
        }
        assert_eq!(names(&bridges), ["Both", "x", "y"]);
        assert_eq!(bridges.owners("both").len(), 2);
        assert_eq!(bridges.owners("y"), [InstanceId::new("y").unwrap()]);
        bridges.apply(announcement("x", None, "2"));
        assert_eq!(names(&bridges), ["Both", "y"]);
    }

    #[tokio::test]
    async fn announcements_are_truncated_and_sanitized() {
        let mut bridges = Bridges::default();
        let oversized = McpServerSummary {
            display_name: "\u{1b}[31mred\u{202e}".to_owned(),
            summary: "x".repeat(1_000_000),
            tool_names: vec!["ok".to_owned(), "bad\u{1b}name".to_owned()],
            ..server("a")
        };
        let hidden = server("b\u{202e}");
        let mut servers = vec![oversized, hidden];
        servers.extend((0..1000).map(|number| server(&format!("s{number}"))));
        bridges.apply(McpServersIndexed { servers, ..announcement("x", None, "1") });
        let index = bridges.index();
        let server = index.get("a").unwrap();
        assert_eq!((server.display_name.as_str(), server.summary.chars().count()), ("red", 1000));
        assert_eq!(server.tool_names, ["ok"]);
        assert_eq!(index.len(), MAX_SERVERS);
        for number in 0..1000 {
            bridges.apply(announcement(&format!("bridge-{number}"), None, "1"));
        }
        assert_eq!(bridges.len(), MAX_BRIDGES);
    }
}
