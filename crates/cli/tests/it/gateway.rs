//! `rockbot gateway token`.

use std::os::unix::fs::PermissionsExt;

use crate::sandbox::{Sandbox, assert_contains};

#[test]
fn token_is_shown_once_and_listed_without_its_secret() {
    let sandbox = Sandbox::new();
    let file = ["--file", "tokens.toml"];
    let new = ["gateway", "token", "new", "claude", "--face", "mcp", "--tool", "github__*"];
    let created = sandbox.check(&[&new[..], &file].concat(), 0);
    let secret = created.out.trim();
    assert!(secret.starts_with("rbgw_") && !secret.contains('\n'), "{secret}");
    let path = sandbox.root().join("tokens.toml");
    let text = std::fs::read_to_string(&path).unwrap();
    assert!(!text.contains(secret), "{text}");
    assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
    let listed = sandbox.check(&[&["gateway", "token", "list"][..], &file].concat(), 0);
    assert_contains(&listed.out, &["claude", "mcp", "talk", "github__*"]);
    assert!(!listed.out.contains(secret), "{}", listed.out);
    sandbox.check(&[&new[..], &file].concat(), 64);
}

#[test]
fn revoked_token_is_gone() {
    let sandbox = Sandbox::new();
    sandbox.write("config.toml", "[gateway]\ntokens = \"tokens.toml\"\n");
    let config = ["--config", "config.toml", "--json"];
    let token =
        |arguments: &[&'static str]| [&config[..], &["gateway", "token"], arguments].concat();
    let created = sandbox.check(&token(&["new", "a", "--requests-per-minute", "60"]), 0);
    assert_contains(&created.out, &["\"name\": \"a\"", "\"token\": \"rbgw_"]);
    let listed = sandbox.check(&token(&["list"]), 0);
    assert_contains(&listed.out, &["\"requestsPerMinute\": 60"]);
    sandbox.check(&token(&["revoke", "a"]), 0);
    assert_eq!(sandbox.check(&token(&["list"]), 0).out.trim(), "[]");
    sandbox.check(&token(&["revoke", "a"]), 1);
}

#[test]
fn invalid_tokens_are_refused() {
    let sandbox = Sandbox::new();
    let output = sandbox.check(&["gateway", "token", "new", "a"], 64);
    assert_contains(&output.err, &["--file", "gateway.tokens"]);
    let named = ["gateway", "token", "new", "a b", "--file", "tokens.toml"];
    assert_contains(&sandbox.check(&named, 64).err, &["no name of a token"]);
    sandbox.check(&["gateway", "token", "list", "--file", "absent.toml"], 64);
    sandbox.write("broken.toml", "tokens = 1");
    let broken = sandbox.check(&["gateway", "token", "list", "--file", "broken.toml"], 64);
    assert_contains(&broken.err, &["broken.toml"]);
    assert!(!sandbox.root().join("tokens.toml").exists());
}
