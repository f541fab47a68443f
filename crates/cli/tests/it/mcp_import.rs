//! `rockbot mcp import`: servers of other clients' files in the servers file.

use std::fs;

use crate::sandbox::{Sandbox, assert_contains};

const CODEX: &str = "[mcp_servers.figures]\nurl = \"https://figures.example.com/mcp\"\n\
                     bearer_token_env_var = \"FIGURES_TOKEN\"\n";
const CURSOR: &str = r#"{"mcpServers": {"notes": {"command": "notes-mcp", "args": ["--port", 8080]},
    "broken": {"command": "x", "url": "https://a"}}}"#;

/// A project with files of two clients.
fn project() -> Sandbox {
    let sandbox = Sandbox::new();
    for folder in [".codex", ".cursor"] {
        fs::create_dir(sandbox.root().join(folder)).expect("a folder");
    }
    sandbox.write(".codex/config.toml", CODEX);
    sandbox.write(".cursor/mcp.json", CURSOR);
    sandbox
}

#[test]
fn servers_of_all_clients_are_added_once() {
    let sandbox = project();
    let existing = r#"{"note": "kept", "mcpServers": {"mine": {"command": "mine-mcp"}}}"#;
    sandbox.write("mcp.json", existing);
    let shown = sandbox.check(&["mcp", "import", "--dry-run"], 0);
    let parts =
        ["figures", "added; set FIGURES_TOKEN", "notes", "broken", "keep one", "is unchanged"];
    assert_contains(&shown.out, &parts);
    assert_eq!(fs::read_to_string(sandbox.root().join("mcp.json")).expect("read"), existing);

    let report = sandbox.check(&["mcp", "import", "--json"], 0).json();
    assert_eq!(report["written"], true);
    let states: Vec<_> = report["servers"].as_array().expect("a list").iter().collect();
    let states = states.iter().map(|server| (&server["name"], &server["state"]));
    let states: Vec<_> = states.map(|(name, state)| format!("{name}={state}")).collect();
    // The order is that of the keys in the clients' files.
    assert_eq!(states.len(), 3);
    for expected in ["\"notes\"=\"added\"", "\"broken\"=\"unusable\"", "\"figures\"=\"added\""] {
        assert!(states.iter().any(|state| state == expected), "{states:?}");
    }
    let file = fs::read_to_string(sandbox.root().join("mcp.json")).expect("read");
    assert_contains(&file, &["kept", "mine-mcp", "\"8080\"", "Bearer ${FIGURES_TOKEN}"]);

    let again = sandbox.check(&["mcp", "import"], 0);
    assert_contains(&again.out, &["already there", "is unchanged"]);
    assert_eq!(fs::read_to_string(sandbox.root().join("mcp.json")).expect("read"), file);
}

#[test]
fn taken_name_keeps_its_server() {
    let sandbox = project();
    sandbox.write("fleet.json", r#"{"mcpServers": {"Notes": {"command": "other"}}}"#);
    let arguments = ["mcp", "import", ".cursor/mcp.json", "--into", "fleet.json"];
    assert_contains(
        &sandbox.check(&arguments, 0).out,
        &["another server of that name", "unchanged"],
    );
    assert!(fs::read_to_string(sandbox.root().join("fleet.json")).expect("read").contains("other"));
}

#[test]
fn unusable_files_are_named() {
    let sandbox = Sandbox::new();
    assert_contains(&sandbox.check(&["mcp", "import"], 69).err, &["rockbot mcp import FILE"]);
    assert_contains(&sandbox.check(&["mcp", "import", "none.json"], 64).err, &["none.json"]);
    sandbox.write("settings.json", "{\"theme\": 1}");
    assert_contains(&sandbox.check(&["mcp", "import", "settings.json"], 64).err, &["no servers"]);
    sandbox.write("client.json", CURSOR);
    for other in [r#"{"Mcp": {"Servers": []}}"#, r#"{"servers": {}}"#] {
        sandbox.write("mcp.json", other);
        let refused = sandbox.check(&["mcp", "import", "client.json"], 64);
        assert_contains(&refused.err, &["another key", "--into"]);
    }
    sandbox.write("mcp.json", "{ // mine\n}");
    assert_contains(
        &sandbox.check(&["mcp", "import", "client.json"], 64).err,
        &["comments", "--into"],
    );
}
