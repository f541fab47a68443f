//! The program.

use std::{
    path::Path,
    process::{Command, Output, Stdio},
    sync::Arc,
};

use rockbot_bus_rabbitmq::{RabbitBus, RabbitConfig};
use rockbot_scripts::{BusRunner, ScriptRunner};
use rockbot_testkit::fixture::{fresh_namespace, reply_address, test_broker_url};
use tokio::{
    io::{AsyncBufReadExt, BufReader},
    process::Child,
    time::timeout,
};

use crate::fixture::{
    ClusterFixture, PATIENCE, call, held_script, in_cluster, is_running, kubeconfig,
};

pub(crate) fn program() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_rockbot-scripts-manager"));
    command.env_clear().env("ROCKBOT_LOG__FORMAT", "text");
    command
}

fn run(variables: &[(&str, &str)]) -> Output {
    let mut command = program();
    command.arg("--check-config").env("ROCKBOT_STORE__URL", "memory:");
    command.envs(variables.iter().copied());
    command.output().unwrap()
}

#[test]
fn defaults_are_valid() {
    let output = run(&[]);
    assert_eq!(output.status.code(), Some(0), "{}", String::from_utf8_lossy(&output.stderr));
}

#[test]
fn invalid_configuration_is_reported() {
    let output = run(&[("ROCKBOT_SCRIPTS__CPU", "fast"), ("ROCKBOT_SCRIPTS__DISK", "1Gi")]);
    assert_eq!(output.status.code(), Some(64));
    let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
    for error in ["scripts.cpu: \"fast\"", "scripts.disk: is in memory"] {
        assert!(stderr.contains(error), "{stderr}");
    }
}

#[tokio::test]
async fn check_names_policy_that_opens_network() {
    in_cluster(async |cluster| {
        let check = |kubeconfig: &Path| {
            let mut command = Command::new(env!("CARGO_BIN_EXE_rockbot-scripts-check"));
            command.env_clear().env("KUBECONFIG", kubeconfig);
            let output =
                command.env("ROCKBOT_SCRIPTS__NAMESPACE", &cluster.scripts).output().unwrap();
            let text = [output.stdout, output.stderr].concat();
            (output.status.code(), String::from_utf8(text).unwrap())
        };
        let operators = kubeconfig();
        let (code, output) = check(Path::new(&operators));
        assert_eq!(code, Some(0), "{output}");
        assert!(output.contains("close the network to scripts"), "{output}");

        cluster.allow_egress("monitoring").await;
        let (code, output) = check(Path::new(&operators));
        assert_eq!(code, Some(1), "{output}");
        assert!(output.contains("the policy \"monitoring\" selects all script pods"), "{output}");

        cluster.delete_policy().await;
        let (code, output) = check(Path::new(&operators));
        assert_eq!((code, output.lines().count()), (Some(1), 2), "{output}");
        assert!(output.contains("no policy denies Ingress"), "{output}");

        let (code, output) = check(cluster.kubeconfig().path());
        assert_eq!(code, Some(69), "{output}");
        assert!(output.contains("use credentials that may list networkpolicies"), "{output}");
    })
    .await;
}

/// Starts a manager on RabbitMQ and waits until it is ready.
async fn manager(
    cluster: &ClusterFixture,
    kubeconfig: &Path,
    namespace: &str,
    folder: &Path,
) -> Child {
    let mut command = program();
    command
        .env("KUBECONFIG", kubeconfig)
        .env("ROCKBOT_BUS__URL", test_broker_url())
        .env("ROCKBOT_BUS__NAMESPACE", namespace)
        .env("ROCKBOT_STORE__URL", format!("sqlite:{}", folder.join("calls.db").display()))
        .env("ROCKBOT_STORE__SHARED", "true")
        .env("ROCKBOT_SCRIPTS__NAMESPACE", &cluster.scripts)
        .env("ROCKBOT_SCRIPTS__CPU", "50m")
        .env("ROCKBOT_SCRIPTS__PROBE_NETWORK", cluster.enforces_policies().to_string())
        .stdin(Stdio::null())
        .stderr(Stdio::piped());
    let mut command = tokio::process::Command::from(command);
    let mut child = command.kill_on_drop(true).spawn().unwrap();
    let mut stderr = BufReader::new(child.stderr.take().unwrap()).lines();
    let ready = async {
        while let Some(line) = stderr.next_line().await.unwrap() {
            if line.contains("ready") {
                return;
            }
        }
        panic!("the manager exited before it was ready");
    };
    timeout(PATIENCE, ready).await.expect("ready in time");
    // Without a reader, the manager would block on a full pipe.
    tokio::spawn(async move { while let Ok(Some(_)) = stderr.next_line().await {} });
    child
}

#[tokio::test]
async fn next_manager_replies_for_killed_manager() {
    in_cluster(async |cluster| {
        let (kubeconfig, folder) = (cluster.kubeconfig(), tempfile::tempdir().unwrap());
        let namespace = fresh_namespace();
        let mut first = manager(&cluster, kubeconfig.path(), &namespace, folder.path()).await;
        let config = RabbitConfig::new(test_broker_url(), "test").with_namespace(&namespace);
        let bus = Arc::new(RabbitBus::start(&config).unwrap());
        bus.connected(PATIENCE).await.unwrap();
        let agent = BusRunner::new(bus, reply_address("agent", "a"));
        let context = call();
        let held = held_script();
        let (outcome, second) = tokio::join!(agent.run(&held, &context), async {
            cluster.wait_for("the script runs", 1, is_running).await;
            let pod = cluster.names().await;
            first.kill().await.unwrap();
            let second = manager(&cluster, kubeconfig.path(), &namespace, folder.path()).await;
            assert_eq!(cluster.names().await, pod, "the pod outlives its manager");
            cluster.release().await;
            second
        });
        // The second manager replies with the outcome of the pod. A repeated request gets the recorded result,
        // and nothing runs.
        let outcome = outcome.unwrap();
        assert!(outcome.stdout.ends_with("\ndone\n"), "{}", outcome.stdout);
        cluster.wait_for_none().await;
        let repeated = agent.run(&held, &context).await.unwrap();
        assert_eq!(repeated.stdout, outcome.stdout);
        assert!(cluster.names().await.is_empty());
        drop(second);
    })
    .await;
}
