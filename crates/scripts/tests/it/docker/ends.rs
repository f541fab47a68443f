//! What ends a script from outside, and that nothing of it is left.

use std::{process::Stdio, time::Duration};

use futures_util::FutureExt;
use rockbot_contracts::{Executed, ToolCallId, ToolErrorCode};
use rockbot_scripts::{DockerOptions, ScriptRunner};
use rockbot_testkit::fixture::{assert_never, within_timeout};
use rockbot_tools::ToolContext;
use tokio::{process::Command, time::Instant};

use super::bed::{Stage, brief, context, options, script};

const FOREVER: &str = "import time; time.sleep(600)";

#[tokio::test]
async fn a_time_out_ends_a_script() {
    let (stage, context) = (Stage::set(), context());
    let script = script(FOREVER).within(Duration::from_secs(1)).unwrap();
    let failure = within_timeout("the end", stage.runner.run(&script, &context)).await.unwrap_err();
    assert_eq!(failure.code(), ToolErrorCode::Timeout);
    assert_eq!(failure.executed(), Executed::Yes);
    stage.clear_of(&context).await;
}

#[tokio::test]
async fn the_deadline_of_the_call_ends_a_script_before_its_own_time_out() {
    let stage = Stage::set();
    let context = ToolContext { deadline: Instant::now() + Duration::from_secs(4), ..context() };
    let failure =
        within_timeout("the end", stage.runner.run(&script(FOREVER), &context)).await.unwrap_err();
    assert_eq!(failure.code(), ToolErrorCode::Timeout);
    stage.clear_of(&context).await;
}

#[tokio::test]
async fn a_deadline_that_has_passed_runs_nothing() {
    let stage = Stage::set();
    let context = ToolContext { deadline: Instant::now(), ..context() };
    let failure =
        within_timeout("the end", stage.runner.run(&brief("1"), &context)).await.unwrap_err();
    assert_eq!(failure.code(), ToolErrorCode::Timeout);
    assert_eq!(failure.executed(), Executed::No);
    stage.clear_of(&context).await;
}

#[tokio::test]
async fn a_cancel_ends_a_script() {
    let (stage, context) = (Stage::set(), context());
    let cancel = async {
        stage.running(&context).await;
        context.cancellation.cancel();
    };
    let script = script(FOREVER);
    let (ended, ()) = tokio::join!(stage.runner.run(&script, &context), cancel);
    let failure = ended.unwrap_err();
    assert_eq!((failure.code(), failure.executed()), (ToolErrorCode::Cancelled, Executed::Yes));
    stage.clear_of(&context).await;
}

#[tokio::test]
async fn a_cancel_before_the_container_is_there_leaves_none() {
    let stage = Stage::set();
    stage.runner.isolation().await.unwrap();
    for looks in [0, 1, 2] {
        let (context, script) = (context(), script(FOREVER));
        let mut run = stage.runner.run(&script, &context);
        assert!((&mut run).now_or_never().is_none());
        for _ in 0..looks {
            stage.docker(&["version"]).await;
        }
        drop(run);
        stage.clear_of(&context).await;
        assert_never("a container", async { while !stage.has_container(&context).await {} }).await;
    }
}

#[tokio::test]
async fn a_dropped_run_leaves_no_container() {
    let (stage, context) = (Stage::set(), context());
    let script = script(FOREVER);
    {
        let mut run = stage.runner.run(&script, &context);
        tokio::select! {
            _ = &mut run => panic!("it ended"),
            () = stage.running(&context) => {}
        }
    }
    stage.clear_of(&context).await;
}

#[tokio::test]
async fn a_container_ends_when_the_process_that_wants_it_is_killed() {
    const CALL: &str = "ROCKBOT_TEST_CALL_TO_LOSE";
    const NAME: &str = "docker::ends::a_container_ends_when_the_process_that_wants_it_is_killed";
    let stage = Stage::set();
    // This test is that process, too.
    if let Ok(id) = std::env::var(CALL) {
        let context = ToolContext { tool_call_id: ToolCallId::new(id).unwrap(), ..context() };
        let ended = stage.runner.run(&script(FOREVER), &context).await;
        panic!("nobody killed it: {ended:?}");
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
    stage.running(&context).await;
    process.kill().await.unwrap();
    stage.gone(&context).await;
}

#[tokio::test]
async fn containers_that_should_have_ended_are_swept_at_the_start() {
    let stage = Stage::set();
    let image = options().image;
    let leave = async |ends: &str| {
        let label = format!("rockbot.script.ends={ends}");
        let words = ["run", "--detach", "--network", "none", "--label", &label, "--entrypoint"];
        let sleeper = ["python3", &image, "-c", FOREVER];
        stage.docker(&[&words[..], &sleeper].concat()).await.trim().to_owned()
    };
    let (late, early) = (leave("1000").await, leave("99999999999").await);
    let _again = Stage::set();
    let listed = async || stage.docker(&["ps", "--all", "--quiet", "--no-trunc"]).await;
    within_timeout("the late one is gone", async { while listed().await.contains(&late) {} }).await;
    assert!(listed().await.contains(&early));
    stage.docker(&["rm", "--force", &early]).await;
}

#[tokio::test]
async fn a_missing_image_is_told_with_what_to_do() {
    let stage = Stage::with(DockerOptions { image: "no-such-image:1".to_owned(), ..options() });
    let failure = stage.try_run(&brief("1")).await.unwrap_err();
    assert_eq!((failure.code(), failure.executed()), (ToolErrorCode::Unavailable, Executed::No));
    assert!(failure.to_string().contains("docker pull"), "{failure}");
}

#[tokio::test]
async fn a_runtime_that_docker_does_not_have_runs_nothing() {
    let stage = Stage::with(DockerOptions { runtime: Some("nope".to_owned()), ..options() });
    let failure = stage.try_run(&brief("1")).await.unwrap_err();
    assert_eq!((failure.code(), failure.executed()), (ToolErrorCode::Unavailable, Executed::No));
}

#[tokio::test]
async fn without_a_daemon_or_docker_itself_nothing_runs() {
    let nowhere = Some("unix:///nowhere/docker.sock".to_owned());
    let no_daemon = DockerOptions { host: nowhere.clone(), ..DockerOptions::default() };
    let program = "/nowhere/docker".into();
    let no_docker = DockerOptions { program, host: nowhere, ..DockerOptions::default() };
    for (options, words) in [(no_daemon, "not running"), (no_docker, "not installed")] {
        let failure = Stage::with(options).try_run(&brief("1")).await.unwrap_err();
        assert_eq!(failure.code(), ToolErrorCode::Unavailable);
        assert_eq!(failure.executed(), Executed::No);
        assert!(failure.to_string().contains(words), "{failure}");
    }
}
