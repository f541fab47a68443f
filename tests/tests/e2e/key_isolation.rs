//! Keys of web and REST tools, which commands and scripts of models cannot read.
#![cfg(target_os = "linux")]

use std::os::unix::fs::chown;

use rockbot_bus::Subscription;
use rockbot_contracts::{HandlerPool, PoolName, QueueSpec};
use rockbot_testkit::fixture::within_timeout;
use rustix::process::geteuid;
use serde_json::json;
use tokio::process::Command;

use crate::{
    fleet::{Fleet, assert_contains},
    identity::SecuredFleet,
    process::Running,
    rest,
};

/// A user without rights. Commands of root can read everything.
const UNPRIVILEGED: u32 = 65534;

/// Variables with keys.
const VARIABLES: [&str; 4] = ["BRAVE_API_KEY", "TAVILY_API_KEY", "MY_GITHUB_TOKEN", "ORDERS_TOKEN"];

/// Prints all values with the marker in the environments that can be read. The marker is changed, so that no
/// redaction hides a key.
const READ_ENVIRONMENTS: &str = "{ env; cat /proc/[0-9]*/environ | tr '\\0' '\\n'; } 2>/dev/null \
                                 | grep -a marked- | sed s/marked-/found-/";

/// A script that does the same.
const READ_FROM_SCRIPT: &str = r#"
import glob, os
texts = [str(dict(os.environ))]
for path in glob.glob("/proc/[0-9]*/environ"):
    try:
        texts.append(open(path, errors="replace").read())
    except OSError:
        pass
print("environments:", len(texts), "\n".join(texts).replace("marked-", "found-"))
"#;

/// Runs a program as a user that is not root.
fn run_unprivileged(fleet: &Fleet, command: &mut Command) {
    if geteuid().is_root() {
        chown(fleet.path(""), Some(UNPRIVILEGED), Some(UNPRIVILEGED)).expect("a folder of root");
        command.uid(UNPRIVILEGED).gid(UNPRIVILEGED);
    }
}

/// Starts a process of the same user whose environment is not protected: it shows that the commands can
/// read environments.
fn unprotected_process(fleet: &Fleet) -> Running {
    let mut command = Command::new("sleep");
    command.arg("1000").env("UNPROTECTED", "marked-process");
    run_unprivileged(fleet, &mut command);
    Running::start(command)
}

/// Returns the key in a variable, without its marker. Other tests have other keys.
fn key(fleet: &Fleet, variable: &str) -> String {
    format!("key-{variable}-{}", fleet.namespace)
}

/// Fails if a text contains a key.
#[track_caller]
fn assert_no_key(fleet: &Fleet, text: &str) {
    for variable in VARIABLES {
        assert!(!text.contains(&key(fleet, variable)), "{variable} was read:\n{text}");
    }
}

/// Configures all keys of web and REST tools.
fn set_keys(fleet: &Fleet, command: &mut Command) {
    let mut tool = rest::get("https://orders.example.com/");
    tool["headers"] = json!({"Authorization": "Bearer ${ORDERS_TOKEN}"});
    rest::write_tools(fleet, "rest.json", &json!({"orders": tool}));
    command
        .envs(VARIABLES.map(|variable| (variable, format!("marked-{}", key(fleet, variable)))))
        .env("ROCKBOT_WEB__GITHUB__TOKEN_ENV", "MY_GITHUB_TOKEN")
        .env("ROCKBOT_REST__CONFIG", fleet.path("rest.json"));
}

#[tokio::test]
async fn command_in_one_process_cannot_read_keys() {
    let fleet = Fleet::new();
    let hooks = "[[hooks]]\nbefore = [\"sh\", \"-c\", \"env > hook.env\"]\n";
    let config = fleet.write("rockbot.toml", hooks).display().to_string();
    let _process = unprotected_process(&fleet);
    let run = async |tool: &str, arguments: serde_json::Value| {
        let mut command = fleet.program_without_bus("rockbot");
        set_keys(&fleet, &mut command);
        command.env("ROCKBOT_SCRIPTS__RUNNER", "local").args([
            "--config",
            &config,
            "tools",
            "call",
            tool,
            &arguments.to_string(),
        ]);
        run_unprivileged(&fleet, &mut command);
        let exit = Running::start(command).wait().await;
        exit.assert_code(0);
        exit.stdout
    };
    let found = run("bash", json!({"command": READ_ENVIRONMENTS})).await;
    assert_contains(&found, &["UNPROTECTED=found-process"]);
    assert_no_key(&fleet, &found);
    let found = run("execute_python_script", json!({"script": READ_FROM_SCRIPT})).await;
    assert_contains(&found, &["environments:"]);
    assert_no_key(&fleet, &found);
    let hook = std::fs::read_to_string(fleet.path("hook.env")).expect("the hook ran");
    assert_contains(&hook, &["PATH="]);
    assert_no_key(&fleet, &hook);
}

#[tokio::test]
async fn command_of_another_pool_cannot_read_keys() {
    let secured = SecuredFleet::start().await;
    let fleet = &secured.fleet;
    let start = async |pool: &str, families: &str| {
        let user = format!("tool-handler.{pool}");
        let mut command = secured.program("rockbot-tool-handler", &user);
        command
            .env("ROCKBOT_HANDLER__POOL", pool)
            .env("ROCKBOT_HANDLER__FAMILIES", families)
            .env("ROCKBOT_STORE__URL", format!("sqlite:{}", fleet.path(pool).display()));
        if pool == "web" {
            set_keys(fleet, &mut command);
        }
        run_unprivileged(fleet, &mut command);
        let mut handler = Running::start(command);
        handler.expect_log("ready").await;
        handler
    };
    let _web = start("web", r#"["web", "rest"]"#).await;
    let _files = start("files", r#"["files"]"#).await;
    let _process = unprotected_process(fleet);
    let arguments = json!({"command": READ_ENVIRONMENTS}).to_string();
    let found = secured.cli(&["tools", "call", "bash", &arguments]).await;
    found.assert_code(0);
    assert_contains(&found.stdout, &["UNPROTECTED=found-process"]);
    assert_no_key(fleet, &found.stdout);

    // Calls of the web tools, whose arguments can be private, are out of reach as well.
    let bus = secured.bus("tool-handler.files").await;
    let pool = HandlerPool::Named(PoolName::new("web").expect("a name"));
    let work = Subscription::new(QueueSpec::work(&pool.invoke_key()), 1);
    let refused = within_timeout("a refusal", bus.consume(work)).await;
    let refused = refused.expect_err("no permission to consume").to_string();
    assert_contains(&refused, &["ACCESS_REFUSED"]);
}
