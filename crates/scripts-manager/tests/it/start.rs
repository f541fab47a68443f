//! Failures to start a script, each with its error code and within its time limit.

use std::time::{Duration, Instant};

use rockbot_contracts::{Executed, ToolErrorCode};
use rockbot_scripts::PreparedImage;
use rockbot_scripts::{Requirements, ScriptRunner};
use rockbot_scripts_manager::{KubernetesRunner, PodsSection};
use rockbot_tools::ToolFailure;

use crate::fixture::{call, in_cluster, run, script};

/// Asserts that the script did not run, and the error code.
fn assert_not_run(failure: &ToolFailure, code: &ToolErrorCode) {
    assert_eq!(failure.code(), *code, "{failure}");
    assert_eq!(failure.executed(), Executed::No, "{failure}");
    let message = failure.to_string();
    assert!(message.len() < 120 && !message.contains("node"), "{message}");
}

#[tokio::test]
async fn unschedulable_script_is_overloaded_after_start_timeout() {
    in_cluster(async |cluster| {
        let elsewhere = PodsSection {
            node_selector: [("rockbot.dev/nowhere".to_owned(), "true".to_owned())].into(),
            start_timeout: Duration::from_secs(2),
            ..cluster.section()
        };
        let start = Instant::now();
        let failure = run(&cluster.runner_with(elsewhere), "print(1)").await.unwrap_err();
        assert_not_run(&failure, &ToolErrorCode::Overloaded);
        assert!(start.elapsed() < Duration::from_secs(10), "{:?}", start.elapsed());
        cluster.wait_for_none().await;
    })
    .await;
}

#[tokio::test]
async fn missing_image_fails_at_once() {
    in_cluster(async |cluster| {
        let missing = |image: &str, policy: &str| PodsSection {
            image: image.to_owned(),
            image_pull_policy: policy.to_owned(),
            ..cluster.section()
        };
        for section in [
            missing("localhost/none:1", "IfNotPresent"),
            missing("localhost/none:1", "Never"),
            missing("No such image", "IfNotPresent"),
            // An image without Python.
            missing("docker.io/library/busybox:latest", "IfNotPresent"),
        ] {
            let start = Instant::now();
            let failure = run(&cluster.runner_with(section), "print(1)").await.unwrap_err();
            assert_not_run(&failure, &ToolErrorCode::Unavailable);
            assert!(start.elapsed() < Duration::from_secs(45), "{:?}", start.elapsed());
        }
        cluster.wait_for_none().await;
    })
    .await;
}

#[tokio::test]
async fn full_quota_is_overloaded_and_rejection_unavailable() {
    in_cluster(async |cluster| {
        cluster.set_pod_quota("0").await;
        let failure = run(&cluster.runner(), "print(1)").await.unwrap_err();
        assert_not_run(&failure, &ToolErrorCode::Overloaded);

        let elsewhere = PodsSection { namespace: "default".to_owned(), ..cluster.section() };
        let failure = run(&cluster.runner_with(elsewhere), "print(1)").await.unwrap_err();
        // The manager may not get pods there either.
        assert_eq!(failure.code(), ToolErrorCode::Unavailable, "{failure}");
        assert_eq!(failure.executed(), Executed::Unknown, "{failure}");

        let huge = PodsSection { memory: "64Gi".to_owned(), ..cluster.section() };
        let failure = run(&cluster.runner_with(huge), "print(1)").await.unwrap_err();
        assert_eq!(failure.executed(), Executed::No, "{failure}");
    })
    .await;
}

#[tokio::test]
async fn missing_cluster_is_unavailable() {
    in_cluster(async |cluster| {
        // Port 1 has no listener.
        let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
        let nowhere = kube::Config::new("http://127.0.0.1:1".parse().unwrap());
        let client = kube::Client::try_from(nowhere).unwrap();
        let section = PodsSection { start_timeout: Duration::from_secs(1), ..cluster.section() };
        let runner = KubernetesRunner::start(client, section).unwrap();
        let failure = run(&runner, "print(1)").await.unwrap_err();
        assert_eq!(failure.code(), ToolErrorCode::Unavailable, "{failure}");
    })
    .await;
}

#[tokio::test]
async fn invalid_request_creates_no_pod() {
    in_cluster(async |cluster| {
        let large = script("pass").with_input("x".repeat(300_000)).unwrap();
        let failure = cluster.runner().run(&large, &call()).await.unwrap_err();
        assert_not_run(&failure, &ToolErrorCode::InvalidArguments);
        assert!(failure.to_string().contains("at most 245760"), "{failure}");

        for bad in ["x; curl", "--index-url=http://x", "git+https://x/y", "../x", "x\n-r y"] {
            Requirements::parse(&[bad]).expect_err("not a package");
        }
        let numpy = || script("pass").with_packages(Requirements::parse(&["numpy"]).unwrap());
        let failure = cluster.runner().run(&numpy(), &call()).await.unwrap_err();
        assert_not_run(&failure, &ToolErrorCode::NotPermitted);

        let prepared = |packages: &[&str]| {
            let packages = packages.iter().map(ToString::to_string).collect();
            let image = cluster.section().image;
            PodsSection { images: vec![PreparedImage { image, packages }], ..cluster.section() }
        };
        let failure =
            cluster.runner_with(prepared(&["pip"])).run(&numpy(), &call()).await.unwrap_err();
        assert_not_run(&failure, &ToolErrorCode::NotPermitted);
        assert!(failure.to_string().contains("[pip]"), "{failure}");
        assert_eq!(cluster.names().await, Vec::<String>::new());

        let pip = Requirements::parse(&["pip"]).unwrap();
        let pip = script("import pip; print(pip.__name__)").with_packages(pip);
        let outcome = cluster.runner_with(prepared(&["pip"])).run(&pip, &call()).await.unwrap();
        assert_eq!(outcome.stdout, "pip\n", "{}", outcome.stderr);
    })
    .await;
}
