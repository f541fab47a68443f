//! Scripts stopped from outside, which must leave no container.

use std::{process::Stdio, sync::Arc, time::Duration};

use futures_util::FutureExt;
use rockbot_contracts::{Executed, ToolCallId, ToolErrorCode};
use rockbot_scripts::{DockerOptions, ScriptRunner};
use rockbot_testkit::fixture::{assert_never, within_timeout};
use rockbot_tools::{ToolContext, ToolUpdate};
use tokio::{process::Command, time::Instant};

use super::fixture::{Fixture, brief, context, options, script};

const FOREVER: &str = "import time; time.sleep(600)";

#[tokio::test]
async fn timeout_stops_script() {
    let (fixture, context) = (Fixture::new(), context());
    let script = script(FOREVER).with_timeout(Duration::from_secs(1)).unwrap();
    let failure =
        within_timeout("the end", fixture.runner.run(&script, &context)).await.unwrap_err();
    assert_eq!(failure.code(), ToolErrorCode::Timeout);
    assert_eq!(failure.executed(), Executed::Yes);
    fixture.assert_removed(&context).await;
}

#[tokio::test]
async fn output_of_running_script_is_reported_and_kept_when_cancelled() {
    let (fixture, mut context) = (Fixture::new(), context());
    let (sender, mut updates) = tokio::sync::mpsc::channel(8);
    context.updates = Some(Arc::new(move |update| drop(sender.try_send(update))));
    let script = script("import time; print('one', flush=True); time.sleep(600)");
    let cancel = async {
        let update = within_timeout("the output", updates.recv()).await;
        assert_eq!(update, Some(ToolUpdate::Progress("one".to_owned())));
        context.cancellation.cancel();
    };
    let (result, ()) = tokio::join!(fixture.runner.run(&script, &context), cancel);
    let failure = result.unwrap_err();
    assert_eq!(failure.to_string(), "cancelled\nstdout until then:\none");
    fixture.assert_removed(&context).await;
}

#[tokio::test]
async fn call_deadline_stops_script_before_its_timeout() {
    let fixture = Fixture::new();
    let context = ToolContext { deadline: Instant::now() + Duration::from_secs(4), ..context() };
    let failure = within_timeout("the end", fixture.runner.run(&script(FOREVER), &context))
        .await
        .unwrap_err();
    assert_eq!(failure.code(), ToolErrorCode::Timeout);
    fixture.assert_removed(&context).await;
}

#[tokio::test]
async fn call_after_deadline_is_not_executed() {
    let fixture = Fixture::new();
    let context = ToolContext { deadline: Instant::now(), ..context() };
    let failure =
        within_timeout("the end", fixture.runner.run(&brief("1"), &context)).await.unwrap_err();
    assert_eq!(failure.code(), ToolErrorCode::Timeout);
    assert_eq!(failure.executed(), Executed::No);
    fixture.assert_removed(&context).await;
}

#[tokio::test]
async fn cancellation_stops_script() {
    let (fixture, context) = (Fixture::new(), context());
    let cancel = async {
        fixture.wait_running(&context).await;
        context.cancellation.cancel();
    };
    let script = script(FOREVER);
    let (result, ()) = tokio::join!(fixture.runner.run(&script, &context), cancel);
    let failure = result.unwrap_err();
    assert_eq!((failure.code(), failure.executed()), (ToolErrorCode::Cancelled, Executed::Yes));
    fixture.assert_removed(&context).await;
}

#[tokio::test]
async fn early_cancellation_leaves_no_container() {
    let fixture = Fixture::new();
    fixture.runner.isolation().await.unwrap();
    for delays in [0, 1, 2] {
        let (context, script) = (context(), script(FOREVER));
        let mut run = fixture.runner.run(&script, &context);
        assert!((&mut run).now_or_never().is_none());
        for _ in 0..delays {
            fixture.docker(&["version"]).await;
        }
        drop(run);
        fixture.assert_removed(&context).await;
        assert_never("a container", async { while !fixture.has_container(&context).await {} })
            .await;
    }
}

#[tokio::test]
async fn dropped_run_leaves_no_container() {
    let (fixture, context) = (Fixture::new(), context());
    let script = script(FOREVER);
    {
        let mut run = fixture.runner.run(&script, &context);
        tokio::select! {
            _ = &mut run => panic!("the run finished"),
            () = fixture.wait_running(&context) => {}
        }
    }
    fixture.assert_removed(&context).await;
}

#[tokio::test]
async fn container_stops_when_runner_is_killed() {
    const CALL: &str = "ROCKBOT_TEST_CALL_TO_LOSE";
    const NAME: &str = "docker::termination::container_stops_when_runner_is_killed";
    let fixture = Fixture::new();
    // The test starts itself as the process to kill.
    if let Ok(id) = std::env::var(CALL) {
        let context = ToolContext { tool_call_id: ToolCallId::new(id).unwrap(), ..context() };
        let result = fixture.runner.run(&script(FOREVER), &context).await;
        panic!("the process was not killed: {result:?}");
    }
    let context = context();
    let mut process = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", NAME])
        .env(CALL, context.tool_call_id.as_str())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .kill_on_drop(true)
        .spawn()
        .unwrap();
    fixture.wait_running(&context).await;
    process.kill().await.unwrap();
    fixture.wait_removed(&context).await;
}

#[tokio::test]
async fn expired_containers_are_removed_at_start() {
    let fixture = Fixture::new();
    let image = options().image;
    let start = async |expiry: &str| {
        let label = format!("rockbot.script.expires={expiry}");
        let arguments = ["run", "--detach", "--network", "none", "--label", &label, "--entrypoint"];
        let sleeper = ["python3", &image, "-c", FOREVER];
        fixture.docker(&[&arguments[..], &sleeper].concat()).await.trim().to_owned()
    };
    let (expired, current) = (start("1000").await, start("99999999999").await);
    let _other = Fixture::new();
    let listed = async || fixture.docker(&["ps", "--all", "--quiet", "--no-trunc"]).await;
    let removed = async { while listed().await.contains(&expired) {} };
    within_timeout("the removal of the expired container", removed).await;
    assert!(listed().await.contains(&current));
    fixture.docker(&["rm", "--force", &current]).await;
}

#[tokio::test]
async fn missing_image_error_says_what_to_do() {
    let fixture =
        Fixture::with_options(DockerOptions { image: "no-such-image:1".to_owned(), ..options() });
    let failure = fixture.try_run(&brief("1")).await.unwrap_err();
    assert_eq!((failure.code(), failure.executed()), (ToolErrorCode::Unavailable, Executed::No));
    assert!(failure.to_string().contains("docker pull"), "{failure}");
}

#[tokio::test]
async fn unknown_runtime_is_unavailable() {
    let fixture =
        Fixture::with_options(DockerOptions { runtime: Some("nope".to_owned()), ..options() });
    let failure = fixture.try_run(&brief("1")).await.unwrap_err();
    assert_eq!((failure.code(), failure.executed()), (ToolErrorCode::Unavailable, Executed::No));
}

#[tokio::test]
async fn missing_daemon_or_client_is_unavailable() {
    let nowhere = Some("unix:///nowhere/docker.sock".to_owned());
    let no_daemon = DockerOptions { host: nowhere.clone(), ..DockerOptions::default() };
    let program = "/nowhere/docker".into();
    let no_docker = DockerOptions { program, host: nowhere, ..DockerOptions::default() };
    for (options, expected) in [(no_daemon, "not running"), (no_docker, "not installed")] {
        let failure = Fixture::with_options(options).try_run(&brief("1")).await.unwrap_err();
        assert_eq!(failure.code(), ToolErrorCode::Unavailable);
        assert_eq!(failure.executed(), Executed::No);
        assert!(failure.to_string().contains(expected), "{failure}");
    }
}
