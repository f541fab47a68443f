//! `rockbot mcp login` at an MCP server that requires tokens with scopes.

use std::collections::BTreeMap;

use serde_json::json;
use url::Url;

use crate::{
    fleet::{Fleet, assert_contains},
    http,
    mcp_remote::{ENDPOINT, session_reply, text},
    process::{Exit, Running},
    site::{Reply, Request, Site},
};

/// The scope that every request needs, and the one that calls need.
const SCOPES: [&str; 2] = ["tools", "files:write"];

/// Replies as an MCP server and its authorization server on one address. A code and a token are the scopes that
/// they stand for.
fn reply(request: &Request) -> Reply {
    let url = format!("http://{}", request.header("host").expect("a host"));
    let resource = format!("{url}/.well-known/oauth-protected-resource{ENDPOINT}");
    match request.path.as_str() {
        ENDPOINT => {
            let token = request.header("authorization").and_then(|it| it.strip_prefix("Bearer "));
            let has =
                |scope: &str| token.is_some_and(|token| token.split('+').any(|it| it == scope));
            if !has(SCOPES[0]) {
                let scope = SCOPES[0];
                let challenge =
                    format!("Bearer resource_metadata=\"{resource}\", scope=\"{scope}\"");
                return Reply::status("401 Unauthorized")
                    .with_header("WWW-Authenticate", &challenge);
            }
            if request.method() != "POST" {
                return Reply::status("405 Method Not Allowed");
            }
            let message = request.json();
            if message["method"] != "tools/call" {
                return session_reply(&message, &["write"]);
            }
            if !has(SCOPES[1]) {
                let scope = SCOPES[1];
                let challenge = format!("Bearer error=\"insufficient_scope\", scope=\"{scope}\"");
                return Reply::status("403 Forbidden").with_header("WWW-Authenticate", &challenge);
            }
            text(&message, "written")
        }
        "/register" => {
            let mut client = request.json();
            client["client_id"] = json!("registered");
            Reply::json(&client)
        }
        "/token" => {
            let form = request.form();
            assert_eq!(form["grant_type"], "authorization_code");
            Reply::json(&json!({"access_token": form["code"], "token_type": "Bearer",
                "expires_in": 3600, "scope": form["code"].replace('+', " ")}))
        }
        "/.well-known/oauth-authorization-server" => Reply::json(&json!({
            "issuer": url, "authorization_endpoint": format!("{url}/authorize"),
            "token_endpoint": format!("{url}/token"), "registration_endpoint": format!("{url}/register"),
            "response_types_supported": ["code"], "grant_types_supported": ["authorization_code"],
            "code_challenge_methods_supported": ["S256"],
            "token_endpoint_auth_methods_supported": ["none"]})),
        path if resource.ends_with(path) => Reply::json(
            &json!({"resource": format!("{url}{ENDPOINT}"), "authorization_servers": [url]}),
        ),
        _ => Reply::status("404 Not Found"),
    }
}

fn command(fleet: &Fleet, arguments: &[&str]) -> Running {
    let mut command = fleet.program_without_bus("rockbot");
    command
        .args(["--json", "--mcp", "mcp.json", "mcp"])
        .args(arguments)
        .env("ROCKBOT_MCP__TOKENS", fleet.path("tokens"));
    Running::start(command)
}

/// Logs in as a user who consents to all requested scopes, and returns these.
async fn log_in(fleet: &Fleet, arguments: &[&str]) -> String {
    let mut login = command(fleet, arguments);
    login.expect_output("open").await;
    let shown: serde_json::Value = serde_json::from_str(&login.output()).expect("JSON");
    let url = Url::parse(shown["open"].as_str().expect("a URL")).expect("a URL");
    let query: BTreeMap<_, _> = url.query_pairs().into_owned().collect();
    // The page of the authorization server sends the browser back.
    let mut back = Url::parse(&query["redirect_uri"]).expect("a URL");
    let code = query["scope"].replace(' ', "+");
    back.query_pairs_mut().append_pair("code", &code).append_pair("state", &query["state"]);
    let host = format!("{}:{}", back.host_str().expect("a host"), back.port().expect("a port"));
    let path = format!("{}?{}", back.path(), back.query().unwrap_or_default());
    let (status, page) = http::request(&host, &path).await;
    assert_eq!(status, 200, "{page}");
    let exit = login.wait().await;
    exit.assert_code(0);
    assert_contains(&exit.stdout, &[r#"{"login":"done"}"#]);
    query["scope"].clone()
}

async fn call(fleet: &Fleet) -> Exit {
    command(fleet, &["call", "remote", "write"]).wait().await
}

#[tokio::test]
async fn login_for_another_scope_permits_the_call() {
    let site = Site::with_replies(|request, _| reply(request)).await;
    let fleet = Fleet::new();
    let servers = json!({"mcpServers": {"remote": {"url": site.url(ENDPOINT)}}});
    fleet.write("mcp.json", &servers.to_string());
    assert_eq!(log_in(&fleet, &["login", "remote"]).await, SCOPES[0]);

    let refused = call(&fleet).await;
    let result = refused.json();
    assert_eq!((&result["code"], &result["executed"]), (&json!("not_permitted"), &json!("no")));
    let remedy = format!("`rockbot mcp login SERVER --scope \"{}\"`", SCOPES[1]);
    assert_contains(result["message"].as_str().expect("a message"), &[&remedy]);

    let more = ["login", "remote", "--scope", SCOPES[1]];
    let granted = log_in(&fleet, &more).await;
    let mut granted: Vec<_> = granted.split(' ').collect();
    granted.sort_unstable();
    assert_eq!(granted, [SCOPES[1], SCOPES[0]], "granted scopes are kept");
    let called = call(&fleet).await;
    called.assert_code(0);
    assert_eq!(called.json()["content"], "written");

    let repeated = command(&fleet, &more).wait().await;
    repeated.assert_code(69);
    assert_contains(&repeated.stderr, &["granted"]);
}
