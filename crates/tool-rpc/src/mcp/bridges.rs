//! What each bridge says that it serves.

use std::{collections::BTreeMap, time::Duration};

use rockbot_contracts::{
    InstanceId,
    mcp::{McpServerSummary, McpServersIndexed},
};
use tokio::time::Instant;
use tracing::{info, warn};

use super::{
    McpIndex,
    untrusted_text::{is_name, plain},
};

/// Most bridge processes that are kept track of.
const MOST_BRIDGES: usize = 64;

/// Most servers of one bridge.
const MOST_SERVERS: usize = 256;

/// Most names of tools of one server.
const MOST_TOOL_NAMES: usize = 1024;

/// The longest text that a server calls itself, and the longest that says what it is for, in
/// characters.
const MOST_NAME_CHARS: usize = 128;
const MOST_SUMMARY_CHARS: usize = 1000;

/// The bridges that are believed to live.
#[derive(Debug, Default)]
pub(super) struct Bridges(BTreeMap<InstanceId, Bridge>);

#[derive(Debug)]
struct Bridge {
    servers: McpIndex,
    fingerprint: String,
    heard: Instant,
}

/// What an announcement was worth.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Heard {
    /// It is in.
    Taken,
    /// It adds to something that was never heard.
    Gap,
}

impl Bridges {
    pub(super) fn hear(&mut self, said: McpServersIndexed) -> Heard {
        let McpServersIndexed { instance, servers, removed, is_complete, since, fingerprint } =
            said;
        let heard = Instant::now();
        if is_complete {
            if self.0.len() >= MOST_BRIDGES && !self.0.contains_key(&instance) {
                warn!(%instance, "too many bridges; ignoring one");
                return Heard::Taken;
            }
            let mut bridge = Bridge { servers: McpIndex::default(), fingerprint, heard };
            bridge.take_in(servers);
            if self.0.insert(instance.clone(), bridge).is_none() {
                info!(%instance, "heard of a bridge");
            }
            return Heard::Taken;
        }
        let Some(bridge) = self.0.get_mut(&instance) else { return Heard::Gap };
        bridge.heard = heard;
        if since.as_deref() != Some(&bridge.fingerprint) {
            return Heard::Gap;
        }
        for name in removed {
            bridge.servers.remove(&name);
        }
        bridge.take_in(servers);
        bridge.fingerprint = fingerprint;
        Heard::Taken
    }

    /// Forgets bridges that said nothing for `after`.
    pub(super) fn forget_silent(&mut self, after: Duration) {
        self.0.retain(|instance, bridge| {
            let lives = bridge.heard.elapsed() < after;
            if !lives {
                warn!(%instance, "a bridge fell silent; forgetting it");
            }
            lives
        });
    }

    /// All servers. Of two bridges that say different things about one, the first instance's word
    /// holds.
    pub(super) fn index(&self) -> McpIndex {
        self.0.values().rev().flat_map(|bridge| bridge.servers.servers()).cloned().collect()
    }

    /// The bridges that serve it.
    pub(super) fn owners(&self, server: &str) -> Vec<InstanceId> {
        let own = |(_, bridge): &(_, &Bridge)| bridge.servers.get(server).is_some();
        self.0.iter().filter(own).map(|(instance, _)| instance.clone()).collect()
    }

    /// How many there are.
    pub(super) fn len(&self) -> usize {
        self.0.len()
    }
}

impl Bridge {
    fn take_in(&mut self, servers: Vec<McpServerSummary>) {
        for server in servers {
            if !is_name(&server.name) {
                warn!("a bridge announced a server whose name can't be shown; ignoring it");
                continue;
            }
            if self.servers.len() >= MOST_SERVERS && self.servers.get(&server.name).is_none() {
                warn!(limit = MOST_SERVERS, "a bridge has too many servers; ignoring the rest");
                return;
            }
            self.servers.insert(bounded(server));
        }
    }
}

fn bounded(mut server: McpServerSummary) -> McpServerSummary {
    server.display_name = plain(&server.display_name, MOST_NAME_CHARS);
    server.summary = plain(&server.summary, MOST_SUMMARY_CHARS);
    server.fingerprint = plain(&server.fingerprint, MOST_NAME_CHARS);
    server.tool_names.retain(|name| is_name(name));
    server.tool_names.truncate(MOST_TOOL_NAMES);
    server
}

#[cfg(test)]
mod tests {
    use super::*;

    fn server(name: &str) -> McpServerSummary {
        McpServerSummary {
            name: name.to_owned(),
            display_name: name.to_owned(),
            summary: String::new(),
            tool_count: 0,
            tool_names: Vec::new(),
            fingerprint: "f".to_owned(),
        }
    }

    fn said(instance: &str, since: Option<&str>, fingerprint: &str) -> McpServersIndexed {
        McpServersIndexed {
            instance: InstanceId::new(instance).unwrap(),
            servers: Vec::new(),
            removed: Vec::new(),
            is_complete: since.is_none(),
            since: since.map(ToOwned::to_owned),
            fingerprint: fingerprint.to_owned(),
        }
    }

    fn names(bridges: &Bridges) -> Vec<String> {
        bridges.index().servers().map(|server| server.name.clone()).collect()
    }

    #[tokio::test]
    async fn a_lost_delta_is_noticed_by_the_next_word() {
        let mut bridges = Bridges::default();
        let delta = McpServersIndexed { servers: vec![server("b")], ..said("x", Some("1"), "2") };
        assert_eq!(bridges.hear(delta.clone()), Heard::Gap, "nothing is known of that bridge");
        let whole = McpServersIndexed { servers: vec![server("a")], ..said("x", None, "1") };
        assert_eq!(bridges.hear(whole), Heard::Taken);
        assert_eq!(bridges.hear(delta), Heard::Taken);
        assert_eq!(names(&bridges), ["a", "b"]);
        assert_eq!(bridges.hear(said("x", Some("2"), "2")), Heard::Taken, "a heartbeat");
        let removed = vec!["A".to_owned()];
        assert_eq!(
            bridges.hear(McpServersIndexed { removed, ..said("x", Some("3"), "4") }),
            Heard::Gap
        );
        assert_eq!(names(&bridges), ["a", "b"], "what does not fit is not taken in");
    }

    #[tokio::test]
    async fn a_server_is_there_as_long_as_one_bridge_has_it() {
        let mut bridges = Bridges::default();
        for instance in ["x", "y"] {
            let servers = vec![server("Both"), server(instance)];
            bridges.hear(McpServersIndexed { servers, ..said(instance, None, "1") });
        }
        assert_eq!(names(&bridges), ["Both", "x", "y"]);
        assert_eq!(bridges.owners("both").len(), 2);
        assert_eq!(bridges.owners("y"), [InstanceId::new("y").unwrap()]);
        bridges.hear(said("x", None, "2"));
        assert_eq!(names(&bridges), ["Both", "y"]);
    }

    #[tokio::test]
    async fn what_a_bridge_says_is_bounded_and_plain() {
        let mut bridges = Bridges::default();
        let wordy = McpServerSummary {
            display_name: "\u{1b}[31mred\u{202e}".to_owned(),
            summary: "x".repeat(1_000_000),
            tool_names: vec!["ok".to_owned(), "bad\u{1b}name".to_owned()],
            ..server("a")
        };
        let hidden = server("b\u{202e}");
        let mut servers = vec![wordy, hidden];
        servers.extend((0..1000).map(|number| server(&format!("s{number}"))));
        bridges.hear(McpServersIndexed { servers, ..said("x", None, "1") });
        let index = bridges.index();
        let kept = index.get("a").unwrap();
        assert_eq!((kept.display_name.as_str(), kept.summary.chars().count()), ("red", 1000));
        assert_eq!(kept.tool_names, ["ok"]);
        assert_eq!(index.len(), MOST_SERVERS);
        for number in 0..1000 {
            bridges.hear(said(&format!("bridge-{number}"), None, "1"));
        }
        assert_eq!(bridges.len(), MOST_BRIDGES);
    }
}
