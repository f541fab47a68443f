//! Scripts that are asked for again, and managers that are lost.

use std::{
    sync::atomic::{AtomicU32, Ordering},
    time::Duration,
};

use futures_util::{StreamExt, stream};
use rockbot_contracts::ToolErrorCode;
use rockbot_scripts::ScriptRunner;
use rockbot_tools::ToolContext;
use tokio::time::timeout;

use crate::fixture::{call, in_cluster, is_running, script};

/// Says once where it ran and when.
const SLOW: &str = "
import time, os
print(open('/proc/sys/kernel/random/uuid').read().strip(), flush=True)
time.sleep(3)
print('done')
";

#[tokio::test]
async fn duplicate_request_runs_once() {
    in_cluster(async |cluster| {
        let (here, there) = (cluster.runner(), cluster.runner());
        let (script, context) = (script(SLOW), call());
        let (one, other, ()) = tokio::join!(
            here.run(&script, &context),
            async {
                cluster.wait_for("the first one runs", 1, is_running).await;
                there.run(&script, &context).await
            },
            async {
                cluster.wait_for("the first one runs", 1, is_running).await;
                assert_eq!(cluster.names().await.len(), 1);
            }
        );
        // Whoever is first deletes the pod: the other one has the same answer or none.
        let one = one.map(|outcome| outcome.stdout);
        let other = other.map(|outcome| outcome.stdout);
        match (one, other) {
            (Ok(one), Ok(other)) => assert_eq!(one, other),
            (Ok(answer), Err(failure)) | (Err(failure), Ok(answer)) => {
                assert!(answer.ends_with("done\n"), "{answer}");
                let code = failure.code();
                let lost = [ToolErrorCode::OutcomeUnknown, ToolErrorCode::Unavailable];
                assert!(lost.contains(&code), "{failure}");
            }
            neither => panic!("{neither:?}"),
        }
        cluster.wait_for_none().await;
    })
    .await;
}

#[tokio::test]
async fn script_outlives_its_manager() {
    in_cluster(async |cluster| {
        for leaves in [false, true] {
            let (script, context) = (script(SLOW), call());
            let first = cluster.runner();
            let mut lost = first.run(&script, &context);
            tokio::select! {
                ended = &mut lost => panic!("too soon: {ended:?}"),
                () = cluster.wait_for("it runs", 1, is_running) => {}
            }
            if leaves {
                // Stopped in good order, and the script was not done within the grace.
                first.detach();
                drop(lost);
                first.stop(Duration::from_secs(5)).await;
            } else {
                // Killed: not even a destructor runs.
                std::mem::forget(lost);
            }
            let second = cluster.runner();
            let outcome = second.run(&script, &context).await.unwrap();
            assert!(outcome.stdout.ends_with("\ndone\n"), "{}", outcome.stdout);
            assert_eq!(outcome.stdout.lines().count(), 2, "it ran once");
            cluster.wait_for_none().await;
        }
    })
    .await;
}

#[tokio::test]
async fn resent_request_succeeds_despite_full_quota() {
    in_cluster(async |cluster| {
        cluster.quota_of_pods("1").await;
        let (slow, context) = (script(SLOW), call());
        let first = cluster.runner();
        let mut lost = first.run(&slow, &context);
        tokio::select! {
            ended = &mut lost => panic!("too soon: {ended:?}"),
            () = cluster.wait_for("it runs", 1, is_running) => {}
        }
        std::mem::forget(lost);
        let second = cluster.runner();
        let failure = second.run(&slow, &call()).await.unwrap_err();
        assert_eq!(failure.code(), ToolErrorCode::Overloaded, "{failure}");
        let outcome = second.run(&slow, &context).await.unwrap();
        assert!(outcome.stdout.ends_with("\ndone\n"), "{}", outcome.stdout);
        assert_eq!(outcome.stdout.lines().count(), 2, "it ran once");
        cluster.wait_for_none().await;
    })
    .await;
}

#[tokio::test]
async fn unobserved_exit_is_read_from_pod() {
    in_cluster(async |cluster| {
        let (quick, context) = (script("print('once')"), call());
        let first = cluster.runner();
        let lost = first.run(&quick, &context);
        let mut lost = Box::pin(timeout(Duration::from_millis(300), lost));
        let _ = (&mut lost).await;
        std::mem::forget(lost);
        let has_ended = |pod: &k8s_openapi::api::core::v1::Pod| {
            let phase = pod.status.as_ref().and_then(|status| status.phase.as_deref());
            phase == Some("Succeeded")
        };
        cluster.wait_for("it ended", 1, has_ended).await;
        let outcome = cluster.runner().run(&quick, &context).await.unwrap();
        assert_eq!((outcome.stdout.as_str(), outcome.exit_code), ("once\n", 0));
        cluster.wait_for_none().await;
    })
    .await;
}

#[tokio::test]
async fn call_id_is_bound_to_script_and_agent() {
    in_cluster(async |cluster| {
        let (runner, context) = (cluster.runner(), call());
        let (slow, other) = (script(SLOW), script("print('mine')"));
        let (first, ()) = tokio::join!(runner.run(&slow, &context), async {
            cluster.wait_for("it runs", 1, is_running).await;
            let failure = runner.run(&other, &context).await.unwrap_err();
            assert_eq!(failure.code(), ToolErrorCode::NotPermitted, "{failure}");
            let agent = rockbot_contracts::AgentName::new("somebody").unwrap();
            let theirs = ToolContext { agent, ..context.clone() };
            assert_eq!(runner.run(&other, &theirs).await.unwrap().stdout, "mine\n");
        });
        assert!(first.unwrap().stdout.ends_with("done\n"), "it was not disturbed");
    })
    .await;
}

#[tokio::test]
async fn cancelled_scripts_leave_no_pods() {
    in_cluster(async |cluster| {
        let runner = &cluster.runner();
        let (ended, given_up) = (AtomicU32::new(0), AtomicU32::new(0));
        stream::iter(0..200_u64)
            .for_each_concurrent(12, |number| {
                let counts = (&ended, &given_up);
                give_up(runner, number, counts)
            })
            .await;
        let (ended, given_up) = (ended.into_inner(), given_up.into_inner());
        println!("{ended} ended, {given_up} were given up");
        assert!(ended > 0 && given_up > 100, "{ended} ended, {given_up} were given up");
        cluster.wait_for_none().await;
        // The last ones may still have been on their way.
        runner.stop(Duration::from_secs(30)).await;
        cluster.wait_for_none().await;
    })
    .await;
}

/// Drops or cancels a script at a time that looks like chance and is not.
async fn give_up(
    runner: &rockbot_scripts_manager::KubernetesRunner,
    number: u64,
    (ended, given_up): (&AtomicU32, &AtomicU32),
) {
    let (code, context) = (script("import time; time.sleep(0.2); print(1)"), call());
    let after = match number % 10 {
        // Some may end.
        0 | 1 => Duration::from_secs(30),
        _ => Duration::from_millis(number.wrapping_mul(2_654_435_761) % 3000),
    };
    let run = runner.run(&code, &context);
    let result = match number % 2 {
        // The asker is gone.
        0 => timeout(after, run).await.ok(),
        // The asker says so.
        _ => {
            let cancel = async {
                let _ = timeout(after, std::future::pending::<()>()).await;
                context.cancellation.cancel();
                std::future::pending::<()>().await;
            };
            tokio::select! {
                result = run => Some(result),
                () = cancel => None,
            }
        }
    };
    match result {
        Some(Ok(_)) => ended.fetch_add(1, Ordering::Relaxed),
        _ => given_up.fetch_add(1, Ordering::Relaxed),
    };
}
