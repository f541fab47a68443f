//! Redelivered requests and lost managers.

use std::{
    sync::atomic::{AtomicU32, Ordering},
    time::Duration,
};

use futures_util::{StreamExt, stream};
use rockbot_contracts::ToolErrorCode;
use rockbot_scripts::ScriptRunner;
use rockbot_tools::ToolContext;
use tokio::time::timeout;

use crate::fixture::{PATIENCE, call, held_script, in_cluster, is_running, script};

#[tokio::test]
async fn duplicate_request_runs_once() {
    in_cluster(async |cluster| {
        let (first, (second, follows)) = (cluster.runner(), cluster.observed_runner());
        let (script, context) = (held_script(), call());
        let (one, other, ()) = tokio::join!(
            first.run(&script, &context),
            async {
                cluster.wait_for("the first script runs", 1, is_running).await;
                second.run(&script, &context).await
            },
            async {
                timeout(PATIENCE, follows.notified()).await.expect("the second runner adopts it");
                assert_eq!(cluster.names().await.len(), 1);
                cluster.release().await;
            }
        );
        // The first runner to finish deletes the pod: the other has the same outcome or a failure.
        let one = one.map(|outcome| outcome.stdout);
        let other = other.map(|outcome| outcome.stdout);
        match (one, other) {
            (Ok(one), Ok(other)) => assert_eq!(one, other),
            (Ok(output), Err(failure)) | (Err(failure), Ok(output)) => {
                assert!(output.ends_with("done\n"), "{output}");
                let code = failure.code();
                let lost = [ToolErrorCode::OutcomeUnknown, ToolErrorCode::Unavailable];
                assert!(lost.contains(&code), "{failure}");
            }
            failures => panic!("{failures:?}"),
        }
        cluster.wait_for_none().await;
    })
    .await;
}

#[tokio::test]
async fn script_outlives_its_manager() {
    in_cluster(async |cluster| {
        for is_stopped in [false, true] {
            let (script, context) = (held_script(), call());
            let first = cluster.runner();
            let mut lost = first.run(&script, &context);
            tokio::select! {
                result = &mut lost => panic!("too soon: {result:?}"),
                () = cluster.wait_for("the script runs", 1, is_running) => {}
            }
            if is_stopped {
                // Stopped, with the script running beyond the grace period.
                first.detach();
                drop(lost);
                first.stop(Duration::from_secs(5)).await;
            } else {
                // Killed: no destructor runs.
                std::mem::forget(lost);
            }
            let (second, follows) = cluster.observed_runner();
            let (outcome, ()) = tokio::join!(second.run(&script, &context), async {
                timeout(PATIENCE, follows.notified()).await.expect("the second runner adopts it");
                cluster.release().await;
            });
            let outcome = outcome.unwrap();
            assert!(outcome.stdout.ends_with("\ndone\n"), "{}", outcome.stdout);
            assert_eq!(outcome.stdout.lines().count(), 2, "it ran more than once");
            cluster.wait_for_none().await;
        }
    })
    .await;
}

#[tokio::test]
async fn resent_request_succeeds_despite_full_quota() {
    in_cluster(async |cluster| {
        cluster.set_pod_quota("1").await;
        let (held, context) = (held_script(), call());
        let first = cluster.runner();
        let mut lost = first.run(&held, &context);
        tokio::select! {
            result = &mut lost => panic!("too soon: {result:?}"),
            () = cluster.wait_for("the script runs", 1, is_running) => {}
        }
        std::mem::forget(lost);
        let second = cluster.runner();
        let failure = second.run(&held, &call()).await.unwrap_err();
        assert_eq!(failure.code(), ToolErrorCode::Overloaded, "{failure}");
        cluster.release().await;
        let outcome = second.run(&held, &context).await.unwrap();
        assert!(outcome.stdout.ends_with("\ndone\n"), "{}", outcome.stdout);
        assert_eq!(outcome.stdout.lines().count(), 2, "it ran more than once");
        cluster.wait_for_none().await;
    })
    .await;
}

#[tokio::test]
async fn unobserved_exit_is_read_from_pod() {
    in_cluster(async |cluster| {
        let (script, context) = (held_script(), call());
        let first = cluster.runner();
        let mut lost = first.run(&script, &context);
        tokio::select! {
            result = &mut lost => panic!("too soon: {result:?}"),
            () = cluster.wait_for("the script runs", 1, is_running) => {}
        }
        std::mem::forget(lost);
        cluster.release().await;
        let has_exited = |pod: &k8s_openapi::api::core::v1::Pod| {
            let phase = pod.status.as_ref().and_then(|status| status.phase.as_deref());
            phase == Some("Succeeded")
        };
        cluster.wait_for("the script exited", 1, has_exited).await;
        let outcome = cluster.runner().run(&script, &context).await.unwrap();
        assert!(outcome.stdout.ends_with("\ndone\n"), "{}", outcome.stdout);
        assert_eq!((outcome.stdout.lines().count(), outcome.exit_code), (2, 0));
        cluster.wait_for_none().await;
    })
    .await;
}

#[tokio::test]
async fn call_id_is_bound_to_script_and_agent() {
    in_cluster(async |cluster| {
        let (runner, context) = (cluster.runner(), call());
        let (held, other) = (held_script(), script("print('mine')"));
        let (first, ()) = tokio::join!(runner.run(&held, &context), async {
            cluster.wait_for("the script runs", 1, is_running).await;
            let failure = runner.run(&other, &context).await.unwrap_err();
            assert_eq!(failure.code(), ToolErrorCode::NotPermitted, "{failure}");
            let agent = rockbot_contracts::AgentName::new("other").unwrap();
            let other_agent = ToolContext { agent, ..context.clone() };
            assert_eq!(runner.run(&other, &other_agent).await.unwrap().stdout, "mine\n");
            cluster.release().await;
        });
        assert!(first.unwrap().stdout.ends_with("done\n"), "the first script was affected");
    })
    .await;
}

#[tokio::test]
async fn cancelled_scripts_leave_no_pods() {
    in_cluster(async |cluster| {
        let runner = &cluster.runner();
        let (finished, stopped) = (AtomicU32::new(0), AtomicU32::new(0));
        stream::iter(0..200_u64)
            .for_each_concurrent(12, |number| {
                let counts = (&finished, &stopped);
                stop_early(runner, number, counts)
            })
            .await;
        let (finished, stopped) = (finished.into_inner(), stopped.into_inner());
        println!("{finished} finished, {stopped} stopped");
        assert!(finished > 0 && stopped > 100, "{finished} finished, {stopped} stopped");
        cluster.wait_for_none().await;
        // The last deletions may still be queued.
        runner.stop(Duration::from_secs(30)).await;
        cluster.wait_for_none().await;
    })
    .await;
}

/// Drops or cancels a script after a pseudo-random time.
async fn stop_early(
    runner: &rockbot_scripts_manager::KubernetesRunner,
    number: u64,
    (finished, stopped): (&AtomicU32, &AtomicU32),
) {
    let (code, context) = (script("import time; time.sleep(0.2); print(1)"), call());
    let after = match number % 10 {
        // Some may finish.
        0 | 1 => Duration::from_secs(30),
        _ => Duration::from_millis(number.wrapping_mul(2_654_435_761) % 3000),
    };
    let run = runner.run(&code, &context);
    let result = match number % 2 {
        // The caller drops the future.
        0 => timeout(after, run).await.ok(),
        // The caller cancels.
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
        Some(Ok(_)) => finished.fetch_add(1, Ordering::Relaxed),
        _ => stopped.fetch_add(1, Ordering::Relaxed),
    };
}
