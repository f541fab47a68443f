//! The quickest MCP servers of `xtask/mcp-servers.toml`, compared with the official Python client.

use std::{path::Path, time::Duration};

use rockbot_testkit::{
    mcp_comparison::{ComparedServer, Programs, compare},
    mcp_servers::{McpPeer, quick_servers},
};

/// Time limit of a program, long enough for a busy machine.
const LIMIT: Duration = Duration::from_secs(60);

fn differences(servers: &[ComparedServer], reference: &Path) -> Vec<String> {
    let rockbot = Path::new(env!("CARGO_BIN_EXE_rockbot"));
    let programs = Programs { rockbot, reference };
    let of_server = |server: &ComparedServer| match compare(programs, server, LIMIT) {
        Ok(comparison) => comparison.differences(),
        Err(error) => vec![format!("{error:#}")],
    };
    let named = servers.iter().map(|server| (&server.name, of_server(server)));
    let named = named.flat_map(|(name, differences)| {
        differences.into_iter().map(move |difference| format!("{name}: {difference}"))
    });
    named.collect()
}

#[test]
fn quick_servers_behave_as_with_the_reference_client() {
    let servers = quick_servers();
    assert_eq!(servers.len(), 10);
    let (reference, _) = McpPeer::ClientPython.command();
    let (first, second) = servers.split_at(servers.len() / 2);
    let differences = std::thread::scope(|scope| {
        let other = scope.spawn(|| differences(second, &reference));
        let mut all = differences(first, &reference);
        all.extend(other.join().expect("no panic"));
        all
    });
    assert!(differences.is_empty(), "{differences:#?}");
}
