//! Invalid configurations: a process does not start and reports all errors.

use crate::{
    fleet::{Fleet, assert_contains},
    process::{Exit, Running},
};

async fn run(program: &str, arguments: &[&str], variables: &[(&str, &str)]) -> Exit {
    let fleet = Fleet::new();
    let mut command = fleet.program_without_bus(program);
    command.args(arguments).envs(variables.iter().copied());
    Running::start(command).wait().await
}

#[tokio::test]
async fn handler_reports_all_configuration_errors() {
    let variables = [
        ("ROCKBOT_HANDLER__CONCURRENCY", "0"),
        ("ROCKBOT_HANDLER__MAX_RESULT_BYTES", "7"),
        ("ROCKBOT_FILES__ROOT", "no/such/folder"),
        ("ROCKBOT_LOG__FORMAT", "hunter2"),
        ("ROCKBOT_BUS__URL_FILE", "no/such/secret"),
        ("ROCKBOT_SERVICE__DRAIN", "25"),
    ];
    for arguments in [&[][..], &["--check-config"]] {
        let exit = run("rockbot-tool-handler", arguments, &variables).await;
        exit.assert_code(64);
        let expected = [
            "handler.concurrency",
            "handler.max_result_bytes",
            "no/such/folder",
            "log.format",
            "ROCKBOT_BUS__URL_FILE",
            "service.drain",
            "such as \"30s\"",
        ];
        assert_contains(&exit.stderr, &expected);
        assert!(!exit.stderr.contains("hunter2"), "a value is shown:\n{}", exit.stderr);
    }
}

#[tokio::test]
async fn agent_reports_all_configuration_errors() {
    let variables = [
        ("ROCKBOT_AGENT__CONCURRENCY", "0"),
        ("ROCKBOT_AGENT__NAME", "unknown"),
        ("ROCKBOT_LLM__MAX_ATTEMPTS", "99"),
        ("ROCKBOT_LOG__LEVEL", "=:="),
    ];
    let exit = run("rockbot-agent", &[], &variables).await;
    exit.assert_code(64);
    let expected = ["agent.concurrency", "\"unknown\"", "max_attempts", "log.level"];
    assert_contains(&exit.stderr, &expected);
}

#[tokio::test]
async fn invalid_broker_url_is_rejected_and_not_logged() {
    for program in ["rockbot-tool-handler", "rockbot-agent"] {
        let model = ("OPENAI_BASE_URL", "http://127.0.0.1:9/v1");
        let url = ("ROCKBOT_BUS__URL", "http://user:hunter2@broker");
        let exit = run(program, &[], &[url, model]).await;
        exit.assert_code(64);
        assert_contains(&exit.stderr, &["amqp://"]);
        assert!(!exit.stderr.contains("hunter2"), "a password is shown:\n{}", exit.stderr);
    }
}

#[tokio::test]
async fn production_profile_rejects_plain_amqp_and_guest() {
    let variables = [
        ("ROCKBOT_SERVICE__PROFILE", "production"),
        ("ROCKBOT_BUS__URL", "amqp://guest:hunter2@broker.example.org"),
        ("OPENAI_BASE_URL", "http://127.0.0.1:9/v1"),
    ];
    for (program, arguments) in
        [("rockbot-tool-handler", &[][..]), ("rockbot-agent", &[]), ("rockbot", &["doctor"])]
    {
        let exit = run(program, arguments, &variables).await;
        exit.assert_code(64);
        assert_contains(&exit.stderr, &["amqps://", "guest", "rockbot admin broker-users"]);
        assert!(!exit.stderr.contains("hunter2"), "a password is shown:\n{}", exit.stderr);
    }
    for (program, key) in [
        ("rockbot-tool-handler", "ROCKBOT_STORE__URL"),
        ("rockbot-mcp-bridge", "ROCKBOT_STORE__URL"),
        ("rockbot-agent", "ROCKBOT_MEMORY__STORE"),
        ("rockbot", "ROCKBOT_PINS__STORE"),
    ] {
        let store = (key, "postgres://rockbot:hunter2@db.example.org/rockbot");
        let exit = run(program, &["--check-config"], &[variables[0], store]).await;
        exit.assert_code(64);
        assert_contains(&exit.stderr, &["PostgreSQL on another host without TLS", "sslmode"]);
        assert!(!exit.stderr.contains("hunter2"), "a password is shown:\n{}", exit.stderr);
    }
    let missing = ("ROCKBOT_BUS__TLS__CA_FILE", "/nowhere/at/all.pem");
    let url = ("ROCKBOT_BUS__URL", "amqps://user:hunter2@broker.example.org");
    for (program, arguments) in
        [("rockbot-tool-handler", &[][..]), ("rockbot-agent", &[]), ("rockbot", &["doctor"])]
    {
        let exit = run(program, arguments, &[missing, url, variables[2]]).await;
        exit.assert_code(64);
        assert_contains(&exit.stderr, &["tls.ca_file", "/nowhere/at/all.pem"]);
    }
}

#[tokio::test]
async fn agent_without_model_explains_setup() {
    let exit = run("rockbot-agent", &[], &[]).await;
    exit.assert_code(64);
    assert_contains(&exit.stderr, &["OPENAI_API_KEY", "OPENROUTER_API_KEY", "[llm]"]);
}

#[tokio::test]
async fn default_configuration_is_valid_and_printed_with_comments() {
    for program in ["rockbot-tool-handler", "rockbot-agent"] {
        // The model is the only required setting without a default.
        let model = ("OPENAI_BASE_URL", "http://127.0.0.1:1/v1");
        let exit = run(program, &["--check-config"], &[model]).await;
        exit.assert_code(0);
        assert_contains(&exit.stdout, &["the configuration is valid"]);
        let printed = run(program, &["--print-config"], &[]).await;
        printed.assert_code(0);
        assert_contains(&printed.stdout, &["# ", "[bus]", "[log]"]);
        let helped = run(program, &["--help"], &[]).await;
        helped.assert_code(0);
        assert_contains(&helped.stdout, &["Examples:", "Exit codes:"]);
        run(program, &["--no-such-option"], &[]).await.assert_code(64);
    }
}

/// The objects that the chart creates from settings as values.
const CHART_SETTINGS: &str = include_str!("../../../helm/tests/snapshots/settings.yaml");

#[tokio::test]
async fn programs_accept_settings_of_the_chart() {
    let mut checked = Vec::new();
    for object in CHART_SETTINGS.split("\n---\n") {
        let Some((head, file)) = object.split_once("  config.toml: |\n") else { continue };
        let component = head.split("app.kubernetes.io/component: ").nth(1).expect("a component");
        let component = component.lines().next().expect("a name");
        let fleet = Fleet::new();
        let lines: Vec<_> = file.lines().map_while(|line| line.strip_prefix("    ")).collect();
        let config = fleet.write("config.toml", &lines.join("\n"));
        let mut command = fleet.program_without_bus(&format!("rockbot-{component}"));
        command
            .args(["--check-config", "--config"])
            .arg(config)
            .env("OPENAI_BASE_URL", "http://127.0.0.1:9/v1")
            .env("ROCKBOT_FILES__ROOT", fleet.path(""));
        let exit = Running::start(command).wait().await;
        assert_eq!(exit.code, Some(0), "{component}: {}\n{}", exit.stderr, lines.join("\n"));
        checked.push(component.to_owned());
    }
    assert_eq!(checked, ["agent", "agent", "mcp-bridge", "tool-handler"]);
}
