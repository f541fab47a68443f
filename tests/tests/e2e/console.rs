//! The web console in Chromium, against `rockbot up --web` on the broker.
//!
//! Each test runs one file of `web/tests/program` with a fleet of its own. The output of a failed test has the name of
//! the failed test in that file.

mod outages;

use std::{
    path::{Path, PathBuf},
    time::Duration,
};

use rustix::process::Signal;
use tokio::process::Command;

use crate::{
    dead_letters::{RawCaller, crash_on, wait_for_dead_letters},
    fleet::Fleet,
    process::{Exit, Running},
};

/// The script of the model.
const MODEL: &str = include_str!("../../../web/tests/program/model.toml");
/// The script of the model of pictures.
const PICTURES: &str = include_str!("../../../web/tests/program/pictures.toml");
/// The file that the tools of the script work on.
const NOTES: &str =
    "# Notes\n\nTool calls cross the bus.\nEvery call has a deadline.\nA fifth line.\n";
/// Time limit for the tests of one file. Half a minute is usual.
const LIMIT: Duration = Duration::from_secs(240);

/// A running `rockbot up --web` and the link that it printed.
struct Console<'a> {
    fleet: &'a Fleet,
    up: Running,
    link: String,
}

impl<'a> Console<'a> {
    async fn start(fleet: &'a Fleet) -> Self {
        Self::start_with(fleet, MODEL).await
    }

    /// Starts the program with another script of the model.
    async fn start_with(fleet: &'a Fleet, model: &str) -> Self {
        fleet.write("notes.md", NOTES);
        let mut up = fleet.program("rockbot");
        up.args(["up", "--web"])
            .env("ROCKBOT_LLM__PROVIDER", "scripted")
            .env("ROCKBOT_LLM__SCRIPT", fleet.write("model.toml", model))
            .env("ROCKBOT_MEMORY__STORE", "memory:")
            .env("ROCKBOT_AGENT__CONVERSATIONS__STORE", "memory:")
            .env("ROCKBOT_APPROVAL__RULES", r#"[{tool="edit_file", policy="ask"}]"#)
            .env("ROCKBOT_GATEWAY__ADDRESS", "127.0.0.1:0")
            .env("ROCKBOT_SCHEDULE__MIN_INTERVAL", "1s")
            .env("ROCKBOT_GATEWAY__CALL_TOOLS", "true");
        let mut up = Running::start(up);
        up.expect_log("ready; stop with Ctrl-C").await;
        let log = up.log();
        let link = log.split_whitespace().find(|word| word.contains("/#login="));
        let link = link.expect("a login link").to_owned();
        Self { fleet, up, link }
    }

    /// Runs the tests of a file in Chromium, and ends the program.
    async fn run(self, file: &str) {
        let exit = browse(self.fleet, &self.link, &[file]).await;
        let log = self.up.log();
        assert_eq!(exit.code, Some(0), "\n{}\n{}\n{log}", exit.stdout, exit.stderr);
        self.up.send(Signal::TERM);
        self.up.wait().await.assert_code(0);
    }
}

/// Runs browser tests against the gateway that printed `link`.
async fn browse(fleet: &Fleet, link: &str, tests: &[&str]) -> Exit {
    let mut playwright = playwright(&["--project=program"]);
    playwright
        .args(tests)
        .env("ROCKBOT_CONSOLE_LINK", link)
        .env("ROCKBOT_CONSOLE_FOLDER", fleet.path(""))
        .env("ROCKBOT_CONSOLE_OUTPUT", fleet.path("browser"));
    Running::start(playwright).wait_within(LIMIT).await
}

/// Returns the command that runs Playwright's tests with these arguments.
fn playwright(arguments: &[&str]) -> Command {
    let program = std::env::var_os("ROCKBOT_TEST_PLAYWRIGHT")
        .expect("ROCKBOT_TEST_PLAYWRIGHT is not set: run the tests with `cargo xtask test`");
    let mut command = Command::new(PathBuf::from(program));
    command
        .current_dir(Path::new(env!("CARGO_MANIFEST_DIR")).join("../web"))
        .env("NO_COLOR", "1")
        .arg("test")
        .args(arguments);
    command
}

#[tokio::test]
async fn conversations_stream_and_stop() {
    let fleet = Fleet::new();
    Console::start(&fleet).await.run("talk.spec.ts").await;
}

#[tokio::test]
async fn turn_survives_page_reload() {
    let fleet = Fleet::new();
    Console::start(&fleet).await.run("resume.spec.ts").await;
}

#[tokio::test]
async fn console_works_by_keyboard_and_on_phone() {
    let fleet = Fleet::new();
    Console::start(&fleet).await.run("keyboard.spec.ts").await;
}

#[tokio::test]
async fn content_policy_blocks_markup_scripts_and_styles() {
    let fleet = Fleet::new();
    Console::start(&fleet).await.run("content-policy.spec.ts").await;
}

#[tokio::test]
async fn approvals_are_granted_and_denied_with_a_reason() {
    let fleet = Fleet::new();
    Console::start(&fleet).await.run("approvals.spec.ts").await;
}

#[tokio::test]
async fn journeys_show_whether_calls_ran() {
    let fleet = Fleet::new();
    let caller = RawCaller::connect(&fleet).await;
    leave_poison(&caller).await;
    let console = Console::start(&fleet).await;
    let calls_from_outside = async {
        // The gateway observes calls from the first page on, which writes this file.
        fleet.wait_for_file("watching").await;
        caller.call("no_such_tool", "{}").await;
        fleet.run(&["dlq", "replay", "tool.invoke"]).await.assert_code(0);
        std::future::pending::<()>().await;
    };
    tokio::select! {
        () = console.run("calls.spec.ts") => {}
        () = calls_from_outside => {}
    }
}

#[tokio::test]
async fn tools_are_called_by_hand() {
    let fleet = Fleet::new();
    Console::start(&fleet).await.run("tools.spec.ts").await;
}

#[tokio::test]
async fn tasks_show_sub_agents() {
    let fleet = Fleet::new();
    Console::start(&fleet).await.run("tasks.spec.ts").await;
}

#[tokio::test]
async fn letters_are_replayed_and_purged() {
    let fleet = Fleet::new();
    let caller = RawCaller::connect(&fleet).await;
    leave_poison(&caller).await;
    let console = Console::start(&fleet).await;
    caller.send_nonsense("one").await;
    wait_for_dead_letters(&fleet, 2).await;
    console.run("letters.spec.ts").await;
}

#[tokio::test]
async fn schedules_show_results() {
    let fleet = Fleet::new();
    Console::start(&fleet).await.run("schedules.spec.ts").await;
}

/// `cargo xtask web --screenshots` runs this test to write the pictures of the documentation.
#[tokio::test]
async fn pictures_show_the_real_programs() {
    let fleet = Fleet::new();
    Console::start_with(&fleet, PICTURES).await.run("pictures.spec.ts").await;
}

#[tokio::test]
async fn screens_have_no_accessibility_violation() {
    let fleet = Fleet::new();
    let caller = RawCaller::connect(&fleet).await;
    leave_poison(&caller).await;
    Console::start(&fleet).await.run("accessibility.spec.ts").await;
}

/// Leaves a dead letter, as of a command whose handlers crashed before they recorded anything.
async fn leave_poison(caller: &RawCaller) {
    let work = caller.consume_calls().await;
    let poison = caller.call("bash", r#"{"command": "echo ran >> marker"}"#).await;
    crash_on(&poison, work, 0).await;
}
