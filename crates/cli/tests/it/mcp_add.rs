//! `rockbot mcp add` and `search`, with a registry in a file.

use std::fs;

use serde_json::{Value, json};

use crate::sandbox::{Sandbox, assert_contains};

fn registry() -> Sandbox {
    let sandbox = Sandbox::new();
    let servers = json!({"servers": [
        {"server": {
            "name": "io.github.owner/weather", "version": "1.4.0",
            "description": "Forecasts\u{1b}[2J for places.",
            "packages": [{"registryType": "pypi", "identifier": "weather-mcp", "version": "1.4.0",
                "transport": {"type": "stdio"},
                "environmentVariables": [{"name": "WEATHER_KEY", "isRequired": true}]}],
        }},
        {"server": {"name": "com.example/moving", "version": "2.0.0", "description": "Moves.",
            "packages": [{"registryType": "npm", "identifier": "moving", "version": "latest"}]}},
    ]});
    sandbox.write("registry.json", &servers.to_string());
    sandbox.write("rockbot.toml", "[mcp]\nregistry = \"registry.json\"\n");
    sandbox
}

fn run(sandbox: &Sandbox, arguments: &[&str], code: i32) -> crate::sandbox::CommandOutput {
    sandbox.check(&[&["--config", "rockbot.toml", "mcp"], arguments].concat(), code)
}

fn written(sandbox: &Sandbox) -> Value {
    let text = fs::read_to_string(sandbox.root().join("mcp.json")).expect("read");
    serde_json::from_str(&text).expect("JSON")
}

#[test]
fn registry_is_searched_and_its_servers_are_added() {
    let sandbox = registry();
    let found = run(&sandbox, &["search", "forecasts", "places"], 0).out;
    assert_contains(&found, &["io.github.owner/weather", "1.4.0", "uvx weather-mcp@1.4.0"]);
    assert!(!found.contains('\u{1b}'), "{found}");
    let moving = run(&sandbox, &["--json", "search", "moves"], 0).json();
    assert_contains(moving[0]["problem"].as_str().expect("a problem"), &["name a version"]);
    run(&sandbox, &["search", "nothing"], 69);

    let shown = run(&sandbox, &["add", "weather", "--dry-run"], 0).out;
    assert_contains(&shown, &["uvx weather-mcp@1.4.0", "set WEATHER_KEY", "is unchanged"]);
    assert!(!sandbox.root().join("mcp.json").exists());
    let refused = run(&sandbox, &["add", "weather"], 64);
    assert_contains(&refused.err, &["--yes"]);
    run(&sandbox, &["add", "weather", "--yes"], 0);
    assert_eq!(
        written(&sandbox),
        json!({"mcpServers": {"weather": {"command": "uvx", "args": ["weather-mcp@1.4.0"],
            "env": {"WEATHER_KEY": "${WEATHER_KEY}"}}}})
    );
    let taken = run(&sandbox, &["add", "io.github.owner/weather", "--yes"], 64);
    assert_contains(&taken.err, &["--name"]);
    let unpinned = run(&sandbox, &["add", "moving", "--yes"], 64);
    assert_contains(&unpinned.err, &["name a version"]);
    run(&sandbox, &["add", "unknown", "--yes"], 69);
}

#[test]
fn urls_packages_and_commands_are_added() {
    let sandbox = registry();
    sandbox.write("mcp.json", r#"{"note": "kept", "mcpServers": {"mine": {"command": "mine"}}}"#);
    run(&sandbox, &["add", "https://docs.example.com/mcp", "--yes"], 0);
    run(&sandbox, &["add", "npm:@scope/notes@1.0.0", "--name", "Notes", "--yes"], 0);
    run(&sandbox, &["add", "docs", "--url", "https://b.example.com", "--yes"], 0);
    run(&sandbox, &["add", "own", "--yes", "--", "program", "--flag"], 0);
    let file = written(&sandbox);
    assert_eq!(file["note"], "kept");
    let servers = &file["mcpServers"];
    assert_eq!(servers["example"], json!({"url": "https://docs.example.com/mcp"}));
    assert_eq!(servers["Notes"], json!({"command": "npx", "args": ["-y", "@scope/notes@1.0.0"]}));
    assert_eq!(servers["docs"]["url"], "https://b.example.com");
    assert_eq!(servers["own"], json!({"command": "program", "args": ["--flag"]}));
    assert_eq!(servers["mine"]["command"], "mine");
    let invalid = run(&sandbox, &["add", "management", "--yes", "--", "x"], 64);
    assert_contains(&invalid.err, &["reserved"]);
}

#[test]
fn options_of_a_file_register_nothing_in_a_running_fleet() {
    let sandbox = registry();
    // A port without a broker: the command fails before it connects.
    let bus = "amqp://127.0.0.1:9/%2f";
    for option in [&["--dry-run"][..], &["--name", "other"]] {
        let arguments =
            [&["--bus", bus, "mcp", "add", "x", "--url", "http://127.0.0.1:9/mcp"], option];
        let failed = sandbox.check(&arguments.concat(), 64);
        assert_contains(&failed.err, &["name it with --into"]);
    }
}

#[test]
fn servers_that_are_added_at_once_are_all_written() {
    let sandbox = Sandbox::new();
    std::thread::scope(|scope| {
        for number in 0..12 {
            let sandbox = &sandbox;
            scope.spawn(move || {
                let name = format!("server-{number}");
                let added = ["mcp", "add", &name, "--into", "mcp.json", "--yes", "--", "program"];
                sandbox.check(&added, 0);
            });
        }
    });
    assert_eq!(written(&sandbox)["mcpServers"].as_object().expect("servers").len(), 12);
}
