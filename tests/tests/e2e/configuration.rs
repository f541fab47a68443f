//! Invalid configurations: a process does not start and reports all errors.

use crate::{
    fleet::{Fleet, assert_says},
    process::{Ended, Running},
};

async fn run(program: &str, arguments: &[&str], variables: &[(&str, &str)]) -> Ended {
    let fleet = Fleet::new();
    let mut command = fleet.bare_program(program);
    command.args(arguments).envs(variables.iter().copied());
    Running::start(command).ended().await
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
        let ended = run("rockbot-tool-handler", arguments, &variables).await;
        ended.assert_code(64);
        let words = [
            "handler.concurrency",
            "handler.max_result_bytes",
            "no/such/folder",
            "log.format",
            "ROCKBOT_BUS__URL_FILE",
            "service.drain",
            "such as \"30s\"",
        ];
        assert_says(&ended.err, &words);
        assert!(!ended.err.contains("hunter2"), "a value is shown:\n{}", ended.err);
    }
}

#[tokio::test]
async fn agent_reports_all_configuration_errors() {
    let variables = [
        ("ROCKBOT_AGENT__CONCURRENCY", "0"),
        ("ROCKBOT_AGENT__NAME", "nobody"),
        ("ROCKBOT_LLM__MAX_ATTEMPTS", "99"),
        ("ROCKBOT_LOG__LEVEL", "=:="),
    ];
    let ended = run("rockbot-agent", &[], &variables).await;
    ended.assert_code(64);
    let words = ["agent.concurrency", "\"nobody\"", "max_attempts", "log.level"];
    assert_says(&ended.err, &words);
}

#[tokio::test]
async fn invalid_broker_url_is_rejected_and_not_logged() {
    for program in ["rockbot-tool-handler", "rockbot-agent"] {
        let model = ("OPENAI_BASE_URL", "http://127.0.0.1:9/v1");
        let url = ("ROCKBOT_BUS__URL", "http://user:hunter2@broker");
        let ended = run(program, &[], &[url, model]).await;
        ended.assert_code(64);
        assert_says(&ended.err, &["amqp://"]);
        assert!(!ended.err.contains("hunter2"), "a password is shown:\n{}", ended.err);
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
        let ended = run(program, arguments, &variables).await;
        ended.assert_code(64);
        assert_says(&ended.err, &["amqps://", "guest", "cargo xtask broker-users"]);
        assert!(!ended.err.contains("hunter2"), "a password is shown:\n{}", ended.err);
    }
    let missing = ("ROCKBOT_BUS__TLS__CA_FILE", "/nowhere/at/all.pem");
    let url = ("ROCKBOT_BUS__URL", "amqps://user:hunter2@broker.example.org");
    for (program, arguments) in
        [("rockbot-tool-handler", &[][..]), ("rockbot-agent", &[]), ("rockbot", &["doctor"])]
    {
        let ended = run(program, arguments, &[missing, url, variables[2]]).await;
        ended.assert_code(64);
        assert_says(&ended.err, &["tls.ca_file", "/nowhere/at/all.pem"]);
    }
}

#[tokio::test]
async fn agent_without_model_explains_setup() {
    let ended = run("rockbot-agent", &[], &[]).await;
    ended.assert_code(64);
    assert_says(&ended.err, &["OPENAI_API_KEY", "OPENROUTER_API_KEY", "[llm]"]);
}

#[tokio::test]
async fn default_configuration_is_valid_and_printed_with_comments() {
    for program in ["rockbot-tool-handler", "rockbot-agent"] {
        // A model is the one thing that an agent can't do without and has no default for.
        let model = ("OPENAI_BASE_URL", "http://127.0.0.1:1/v1");
        let ended = run(program, &["--check-config"], &[model]).await;
        ended.assert_code(0);
        assert_says(&ended.out, &["the configuration is valid"]);
        let printed = run(program, &["--print-config"], &[]).await;
        printed.assert_code(0);
        assert_says(&printed.out, &["# ", "[bus]", "[log]"]);
        let helped = run(program, &["--help"], &[]).await;
        helped.assert_code(0);
        assert_says(&helped.out, &["Examples:", "Exit codes:"]);
        run(program, &["--no-such-option"], &[]).await.assert_code(64);
    }
}
