//! What keeps a script from starting, each with an error of its own and within its bound.

use std::time::{Duration, Instant};

use rockbot_contracts::{Executed, ToolErrorCode};
use rockbot_scripts::PreparedImage;
use rockbot_scripts::{Requirements, ScriptRunner};
use rockbot_scripts_manager::{KubernetesRunner, PodsSection};
use rockbot_tools::ToolFailure;

use crate::bed::{call, in_cluster, run, script};

/// Nothing was run, and this is why.
fn assert_not_run(failure: &ToolFailure, code: &ToolErrorCode) {
    assert_eq!(failure.code(), *code, "{failure}");
    assert_eq!(failure.executed(), Executed::No, "{failure}");
    let words = failure.to_string();
    assert!(words.len() < 120 && !words.contains("node"), "{words}");
}

#[tokio::test]
async fn a_script_that_no_node_takes_is_overload_after_the_time_for_the_start() {
    in_cluster(async |bed| {
        let elsewhere = PodsSection {
            node_selector: [("rockbot.dev/nowhere".to_owned(), "true".to_owned())].into(),
            start_seconds: 2,
            ..bed.section()
        };
        let begun = Instant::now();
        let failure = run(&bed.runner_with(elsewhere), "print(1)").await.unwrap_err();
        assert_not_run(&failure, &ToolErrorCode::Overloaded);
        assert!(begun.elapsed() < Duration::from_secs(10), "{:?}", begun.elapsed());
        bed.wait_for_none().await;
    })
    .await;
}

#[tokio::test]
async fn an_image_that_is_not_there_is_told_at_once() {
    in_cluster(async |bed| {
        let missing = |image: &str, policy: &str| PodsSection {
            image: image.to_owned(),
            image_pull_policy: policy.to_owned(),
            ..bed.section()
        };
        for section in [
            missing("localhost/none:1", "IfNotPresent"),
            missing("localhost/none:1", "Never"),
            missing("No such image", "IfNotPresent"),
            // There is an image, and no Python in it.
            missing("docker.io/library/busybox:latest", "IfNotPresent"),
        ] {
            let begun = Instant::now();
            let failure = run(&bed.runner_with(section), "print(1)").await.unwrap_err();
            assert_not_run(&failure, &ToolErrorCode::Unavailable);
            assert!(begun.elapsed() < Duration::from_secs(45), "{:?}", begun.elapsed());
        }
        bed.wait_for_none().await;
    })
    .await;
}

#[tokio::test]
async fn a_full_quota_is_overload_and_what_is_not_allowed_is_unavailable() {
    in_cluster(async |bed| {
        bed.quota_of_pods("0").await;
        let failure = run(&bed.runner(), "print(1)").await.unwrap_err();
        assert_not_run(&failure, &ToolErrorCode::Overloaded);

        let elsewhere = PodsSection { namespace: "default".to_owned(), ..bed.section() };
        let failure = run(&bed.runner_with(elsewhere), "print(1)").await.unwrap_err();
        // It may not look there either.
        assert_eq!(failure.code(), ToolErrorCode::Unavailable, "{failure}");
        assert_eq!(failure.executed(), Executed::Unknown, "{failure}");

        let huge = PodsSection { memory: "64Gi".to_owned(), ..bed.section() };
        let failure = run(&bed.runner_with(huge), "print(1)").await.unwrap_err();
        assert_eq!(failure.executed(), Executed::No, "{failure}");
    })
    .await;
}

#[tokio::test]
async fn a_cluster_that_is_not_there_is_unavailable() {
    in_cluster(async |bed| {
        // Nobody listens on port 1.
        let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
        let nowhere = kube::Config::new("http://127.0.0.1:1".parse().unwrap());
        let client = kube::Client::try_from(nowhere).unwrap();
        let section = PodsSection { start_seconds: 1, ..bed.section() };
        let runner = KubernetesRunner::start(client, section).unwrap();
        let failure = run(&runner, "print(1)").await.unwrap_err();
        assert_eq!(failure.code(), ToolErrorCode::Unavailable, "{failure}");
    })
    .await;
}

#[tokio::test]
async fn what_can_not_run_is_refused_before_a_pod_is_made() {
    in_cluster(async |bed| {
        let large = script("pass").with_input("x".repeat(300_000)).unwrap();
        let failure = bed.runner().run(&large, &call()).await.unwrap_err();
        assert_not_run(&failure, &ToolErrorCode::InvalidArguments);
        assert!(failure.to_string().contains("at most 245760"), "{failure}");

        for bad in ["x; curl", "--index-url=http://x", "git+https://x/y", "../x", "x\n-r y"] {
            Requirements::parse(&[bad]).expect_err("it is no package");
        }
        let numpy = || script("pass").with_packages(Requirements::parse(&["numpy"]).unwrap());
        let failure = bed.runner().run(&numpy(), &call()).await.unwrap_err();
        assert_not_run(&failure, &ToolErrorCode::NotPermitted);

        let prepared = |packages: &[&str]| {
            let packages = packages.iter().map(ToString::to_string).collect();
            let image = bed.section().image;
            PodsSection { images: vec![PreparedImage { image, packages }], ..bed.section() }
        };
        let failure = bed.runner_with(prepared(&["pip"])).run(&numpy(), &call()).await.unwrap_err();
        assert_not_run(&failure, &ToolErrorCode::NotPermitted);
        assert!(failure.to_string().contains("[pip]"), "{failure}");
        assert_eq!(bed.names().await, Vec::<String>::new());

        let pip = Requirements::parse(&["pip"]).unwrap();
        let pip = script("import pip; print(pip.__name__)").with_packages(pip);
        let outcome = bed.runner_with(prepared(&["pip"])).run(&pip, &call()).await.unwrap();
        assert_eq!(outcome.stdout, "pip\n", "{}", outcome.stderr);
    })
    .await;
}
