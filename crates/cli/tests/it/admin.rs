//! `rockbot admin`: broker users and secrets.

use crate::sandbox::{Sandbox, assert_contains};

/// The committed files.
const REPOSITORY: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../deploy/rabbitmq");

#[test]
fn committed_broker_users_are_up_to_date() {
    let sandbox = Sandbox::new();
    sandbox.check(&["admin", "check", REPOSITORY], 0);
    sandbox.check(&["admin", "broker-users", "--out", "."], 0);
    for name in ["definitions.json", "users.md"] {
        let committed = std::fs::read_to_string(format!("{REPOSITORY}/{name}")).unwrap();
        let written = std::fs::read_to_string(sandbox.root().join(name)).unwrap();
        assert!(
            written == committed,
            "deploy/rabbitmq/{name} is out of date: run `cargo run -- admin broker-users --out \
             deploy/rabbitmq`"
        );
    }
}

#[test]
fn secrets_of_other_agents_fail_the_check() {
    let sandbox = Sandbox::new();
    let broker = ["--broker", "amqps://broker.example.org/%2f"];
    let secrets = ["admin", "secrets", "--agent", "writer", "--out", "secrets"];
    let output = sandbox.check(&[&secrets[..], &broker].concat(), 0);
    assert_contains(&output.out, &["wrote secrets/passwords", "wrote secrets/broker"]);
    let url = std::fs::read_to_string(sandbox.root().join("secrets/broker/rockbot.agent.writer"));
    let url = url.unwrap();
    assert!(url.starts_with("amqps://rockbot.agent.writer:") && url.ends_with("/%2f"), "{url}");
    sandbox.check(&["admin", "check", "secrets/broker", "--agent", "writer"], 0);
    let output = sandbox.check(&["admin", "check", "secrets/broker"], 1);
    assert_contains(&output.err, &["definitions.json", "rockbot admin secrets"]);
    let user = ["--broker", "amqps://guest@broker.example.org/%2f"];
    sandbox.check(&[&secrets[..], &user].concat(), 64);
    sandbox.check(&["admin", "broker-users", "--agent", "cli", "--out", "."], 64);
}

#[test]
fn pool_has_its_own_user_and_secret() {
    let sandbox = Sandbox::new();
    let broker = ["--broker", "amqps://broker.example.org/%2f"];
    let secrets = ["admin", "secrets", "--pool", "web", "--pool", "files", "--out", "secrets"];
    sandbox.check(&[&secrets[..], &broker].concat(), 0);
    let read = |file: &str| std::fs::read_to_string(sandbox.root().join(file)).unwrap();
    let url = read("secrets/broker/rockbot.tool-handler.web");
    assert!(url.starts_with("amqps://rockbot.tool-handler.web:"), "{url}");
    let definitions = read("secrets/broker/definitions.json");
    assert!(definitions.contains("rockbot.tool.invoke.pool.files.dlq"), "{definitions}");
    let check = ["admin", "check", "secrets/broker", "--pool", "files", "--pool", "web"];
    sandbox.check(&check, 0);
    sandbox.check(&check[..3], 1);
    let compose = ["admin", "secrets", "--layout", "compose", "--pool", "web", "--out", "compose"];
    sandbox.check(&compose, 0);
    let url = read("compose/web-handler-broker-url");
    assert!(url.starts_with("amqp://rockbot.tool-handler.web:"), "{url}");
    let handler = read("compose/tool-handler-broker-url");
    assert!(handler.starts_with("amqp://rockbot.tool-handler:"), "{handler}");
    sandbox.check(&["admin", "broker-users", "--pool", "Web", "--out", "."], 64);
}
