//! Configuration files of MCP clients, read as servers files.

use std::path::{Path, PathBuf};

use rockbot_mcp_bridge::{ClientFile, Program, Remote, ServersFile, Transport, oauth::Grant};
use secrecy::ExposeSecret as _;

fn path(file: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/clients").join(file)
}

/// Reads a fixture with the variables `TOKEN` and `HOME`.
fn read(file: &str) -> ServersFile {
    let lookup = |name: &str| match name {
        "TOKEN" => Some("secret".to_owned()),
        "HOME" => Some("/home/me".to_owned()),
        _ => None,
    };
    ServersFile::read(&path(file), lookup).unwrap()
}

#[track_caller]
fn program<'f>(file: &'f ServersFile, name: &str) -> &'f Program {
    match &file.servers[name].transport {
        Transport::Stdio(program) => program,
        other => panic!("{name} is {}", other.name()),
    }
}

#[track_caller]
fn remote<'f>(file: &'f ServersFile, name: &str) -> &'f Remote {
    file.servers[name].transport.remote().unwrap()
}

fn variable<'f>(program: &'f Program, name: &str) -> Option<&'f str> {
    Some(program.env.get(name)?.expose_secret())
}

fn header<'f>(remote: &'f Remote, name: &str) -> &'f str {
    remote.headers[name].expose_secret()
}

fn names(file: &ServersFile) -> Vec<&str> {
    file.servers.keys().map(String::as_str).collect()
}

#[test]
fn claude_desktop_file_has_numbers_in_arguments() {
    let file = read("claude-desktop/claude_desktop_config.json");
    assert_eq!(names(&file), ["filesystem", "metrics"]);
    assert_eq!(program(&file, "filesystem").args[0], "-y");
    let metrics = program(&file, "metrics");
    assert_eq!(metrics.args, ["--port", "8080"]);
    assert_eq!((variable(metrics, "DEBUG"), variable(metrics, "EMPTY")), (Some("true"), None));
    assert_eq!((file.errors, file.warnings), (vec![], vec![]));
}

#[test]
fn claude_code_file_has_variables_with_defaults() {
    let file = read("claude-code/.mcp.json");
    let issues = remote(&file, "issues");
    assert_eq!(issues.url, "https://issues.example.com/mcp");
    assert_eq!(header(issues, "Authorization"), "Bearer secret");
    assert!(matches!(file.servers["issues"].transport, Transport::Http(_)));
    assert_eq!(file.servers["local"].request_timeout.unwrap().as_secs(), 120);
    assert_eq!(file.warnings, ["the servers of \"projects\" are not read"]);
}

#[test]
fn vs_code_file_has_comments_inputs_and_folders() {
    let file = read("vscode/.vscode/mcp.json");
    let [error] = &file.errors[..] else { panic!("{:?}", file.errors) };
    assert!(error.contains("\"api\"") && error.contains("API_KEY is not set"), "{error}");
    let build = program(&file, "build");
    assert_eq!(build.command, path("vscode/bin/build-mcp").to_str().unwrap());
    assert_eq!(build.args, ["--cache", "/home/me/.cache/build", "--token", "secret"]);
    let variables = ["REGION", "LEVEL", "QUOTED"].map(|name| variable(build, name));
    assert_eq!(variables, [Some("eu-1"), Some("info"), Some("a b")]);
    let with_key =
        ServersFile::read(&path("vscode/.vscode/mcp.json"), |name| Some(name.to_owned()));
    assert_eq!(header(remote(&with_key.unwrap(), "api"), "X-Api-Key"), "API_KEY");
}

#[test]
fn cursor_file_has_folders_and_an_oauth_client() {
    let file = read("cursor/.cursor/mcp.json");
    let search = program(&file, "search");
    assert_eq!(search.args, [path("cursor/search.js").to_str().unwrap(), "cursor"]);
    assert_eq!(variable(search, "KEY"), Some("secret"));
    let oauth = &remote(&file, "design").oauth;
    assert!(
        matches!(&oauth.grant, Grant::Machine { client_id, .. } if client_id == "design-client")
    );
    assert_eq!(oauth.scopes, ["read"]);
}

#[test]
fn windsurf_file_restricts_tools() {
    let file = read("windsurf/mcp_config.json");
    assert_eq!(names(&file), ["docs"]);
    let docs = &file.servers["docs"];
    assert!(docs.permits("read_page") && !docs.permits("delete_page"));
    assert_eq!(header(remote(&file, "docs"), "API_KEY"), "Bearer secret");
    assert_eq!(remote(&file, "docs").url, "https://docs.example.com/mcp");
}

#[test]
fn gemini_file_restricts_servers_and_tools() {
    let file = read("gemini/.gemini/settings.json");
    assert_eq!(names(&file), ["crm", "events"]);
    let crm = &file.servers["crm"];
    assert!(
        matches!(&crm.transport, Transport::Http(remote) if remote.url == "http://localhost:3000/mcp")
    );
    assert_eq!(header(remote(&file, "crm"), "Authorization"), "Bearer secret");
    assert_eq!(crm.request_timeout.unwrap().as_secs(), 5);
    let permitted = ["find", "read", "purge", "other"].map(|tool| crm.permits(tool));
    assert_eq!(permitted, [true, true, false, false]);
    assert_eq!(file.warnings, ["server \"crm\": unknown key \"trust\" has no effect"]);
}

#[test]
fn zed_file_has_commands_in_two_forms() {
    let file = read("zed/settings.json");
    assert_eq!(names(&file), ["older", "remote", "weather"]);
    assert_eq!(program(&file, "weather").args, ["--units", "metric"]);
    let older = program(&file, "older");
    assert_eq!((older.command.as_str(), variable(older, "A")), ("older-mcp", Some("b")));
    let [error] = &file.errors[..] else { panic!("{:?}", file.errors) };
    assert!(error.contains("\"extension\": it is an extension of its client"), "{error}");
}

#[test]
fn opencode_file_has_commands_as_lists() {
    let file = read("opencode/opencode.jsonc");
    assert_eq!(names(&file), ["everything", "tickets"]);
    let everything = program(&file, "everything");
    assert_eq!(everything.command, "npx");
    assert_eq!(everything.args, ["-y", "@modelcontextprotocol/server-everything"]);
    assert_eq!(variable(everything, "KEY"), Some("secret"));
    assert_eq!(header(remote(&file, "tickets"), "Authorization"), "Bearer secret");
    let everything = &file.servers["everything"];
    assert_eq!(everything.request_timeout, None);
    assert_eq!(["echo", "add"].map(|tool| everything.permits(tool)), [false, true]);
    assert!(!file.servers["tickets"].permits("create"));
    let warnings = [
        "the tools \"other_*\" are of no server of the file",
        "server \"everything\": timeout has no effect: it limits the start",
    ];
    assert_eq!(file.warnings, warnings);
}

#[test]
fn codex_file_is_toml_and_names_variables() {
    let file = read("codex/config.toml");
    let figures = remote(&file, "figures");
    let headers = ["Authorization", "X-Region", "X-Key"].map(|name| header(figures, name));
    assert_eq!(headers, ["Bearer secret", "eu", "secret"]);
    let server = &file.servers["figures"];
    assert_eq!(server.request_timeout.unwrap().as_secs(), 45);
    assert_eq!(["plot", "drop", "x"].map(|tool| server.permits(tool)), [true, false, false]);
    let shell = program(&file, "shell");
    let variables = ["TOKEN", "UNSET_HERE", "LEVEL"].map(|name| variable(shell, name));
    assert_eq!(variables, [Some("secret"), Some(""), Some("info")]);
    assert!(file.servers["shell"].required);
}

#[test]
fn unreadable_restriction_is_an_error() {
    for key in ["includeTools", "excludeTools", "disabledTools", "enabled_tools", "tools"] {
        for value in ["\"drop\"", "{}", "[1]", "true"] {
            let text = format!(
                "{{\"mcpServers\": {{\"a\": {{\"command\": \"x\", \"{key}\": {value}}}}}}}"
            );
            let file = ServersFile::parse(text.as_bytes(), |_| None).unwrap();
            assert!(file.servers.is_empty(), "{text}");
            assert!(file.errors[0].contains(key), "{:?}", file.errors);
        }
    }
}

#[test]
fn spelling_and_form_do_not_lift_restrictions() {
    for entry in [
        r#"{"command": "x", "toolsdenied": ["drop"]}"#,
        r#"{"command": "x", "DISABLEDTOOLS": ["drop"]}"#,
        r#"{"url": "https://a", "Disabled_Tools": ["drop"]}"#,
    ] {
        let text = format!("{{\"mcpServers\": {{\"a\": {entry}}}}}");
        let file = ServersFile::parse(text.as_bytes(), |_| None).unwrap();
        assert!(!file.servers["a"].permits("drop"), "{text}");
    }
    for mcp in [r#"{"excluded": "crm"}"#, r#"{"allowed": "docs"}"#, r#"{"allowed": [1]}"#] {
        let text =
            format!("{{\"mcp\": {mcp}, \"mcpServers\": {{\"crm\": {{\"command\": \"x\"}}}}}}");
        let error = ServersFile::parse(text.as_bytes(), |_| None).unwrap_err();
        assert!(error.to_string().contains("must be a list of names"), "{error}");
    }
}

#[test]
fn errors_do_not_quote_values() {
    for entry in [
        r#""headers": "Authorization: sk-1""#,
        r#""env": "KEY=sk-1""#,
        r#""args": "--token sk-1""#,
        r#""oauth": {"clientSecret": ["sk-1"]}"#,
    ] {
        let text = format!("{{\"mcpServers\": {{\"a\": {{\"url\": \"https://a\", {entry}}}}}}}");
        let file = ServersFile::parse(text.as_bytes(), |_| None).unwrap();
        assert!(!file.errors.is_empty() && !file.errors[0].contains("sk-1"), "{:?}", file.errors);
    }
    let text = "[mcp_servers.a]\nenv = { KEY = \"sk-1\"\n";
    let error = ServersFile::parse(text.as_bytes(), |_| None).unwrap_err().to_string();
    assert!(error.contains("line 2") && !error.contains("sk-1"), "{error}");
}

#[test]
fn all_restrictions_apply() {
    let text = r#"{"mcpServers": {"a": {"command": "x", "toolsAllowed": ["b", "c"], "includeTools": ["c", "d"],
        "tools": ["*"], "toolsDenied": ["e"], "disabledTools": ["f"]}}}"#;
    let file = ServersFile::parse(text.as_bytes(), |_| None).unwrap();
    assert_eq!(file.servers["a"].tools_allowed, Some(vec!["c".to_owned()]));
    assert_eq!(file.servers["a"].tools_denied, ["e", "f"]);
}

#[test]
fn errors_of_files_name_their_position() {
    let error = |text: &str| ServersFile::parse(text.as_bytes(), |_| None).unwrap_err().to_string();
    assert!(error("{\n// comment\n\"mcpServers\": {]}").contains("line 3 column 16"));
    assert!(error("[mcp_servers.a]\ncommand = ").contains("it is not TOML"));
    assert!(error("[]").contains("it is not TOML"));
    assert!(error("{/* never closed").contains("it is not JSON"));
    let deep = format!("{{\"mcpServers\": {}", "[".repeat(100_000));
    assert!(error(&deep).contains("recursion limit"));
}

#[test]
fn imported_entry_keeps_its_variables() {
    let file = ClientFile::read(&path("codex/config.toml")).unwrap();
    let server = file.servers.iter().find(|server| server.name == "figures").unwrap();
    let entry = serde_json::to_string(server.entry.as_ref().unwrap()).unwrap();
    assert!(entry.contains("Bearer ${TOKEN}") && !entry.contains("secret"), "{entry}");
}
