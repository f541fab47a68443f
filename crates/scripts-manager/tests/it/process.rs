//! The program itself.

use std::{
    path::Path,
    process::{Command, Output, Stdio},
    sync::Arc,
    time::Duration,
};

use rockbot_bus_rabbitmq::{RabbitBus, RabbitConfig};
use rockbot_scripts::{BusRunner, ScriptRunner};
use rockbot_testkit::fixture::{fresh_namespace, reply_address, test_broker_url};
use tokio::{
    io::{AsyncBufReadExt, BufReader},
    process::Child,
    time::timeout,
};

use crate::bed::{Bed, PATIENCE, call, in_cluster, is_running, kubeconfig, script};

fn program() -> Command {
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
fn its_defaults_can_be_used() {
    let output = run(&[]);
    assert_eq!(output.status.code(), Some(0), "{}", String::from_utf8_lossy(&output.stderr));
}

#[test]
fn an_operator_is_told_what_is_wrong() {
    let output = run(&[("ROCKBOT_SCRIPTS__CPU", "fast"), ("ROCKBOT_SCRIPTS__DISK", "1Gi")]);
    assert_eq!(output.status.code(), Some(64));
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    for words in ["scripts.cpu: \"fast\"", "scripts.disk: is in memory"] {
        assert!(said.contains(words), "{said}");
    }
}

#[tokio::test]
async fn an_operator_is_told_which_policy_opens_the_network_to_scripts() {
    in_cluster(async |bed| {
        let check = |kubeconfig: &Path| {
            let mut command = Command::new(env!("CARGO_BIN_EXE_rockbot-scripts-check"));
            command.env_clear().env("KUBECONFIG", kubeconfig);
            let output = command.env("ROCKBOT_SCRIPTS__NAMESPACE", &bed.scripts).output().unwrap();
            let said = [output.stdout, output.stderr].concat();
            (output.status.code(), String::from_utf8(said).unwrap())
        };
        let operators = kubeconfig();
        let (code, said) = check(Path::new(&operators));
        assert_eq!(code, Some(0), "{said}");
        assert!(said.contains("close the network to scripts"), "{said}");

        bed.allow_all_to_go_out("monitoring").await;
        let (code, said) = check(Path::new(&operators));
        assert_eq!(code, Some(1), "{said}");
        assert!(said.contains("the policy \"monitoring\" selects all pods"), "{said}");

        bed.without_policy().await;
        let (code, said) = check(Path::new(&operators));
        assert_eq!((code, said.lines().count()), (Some(1), 2), "{said}");
        assert!(said.contains("no policy denies Ingress"), "{said}");

        let (code, said) = check(bed.kubeconfig().path());
        assert_eq!(code, Some(69), "{said}");
        assert!(said.contains("use credentials that may list networkpolicies"), "{said}");
    })
    .await;
}

/// A manager on RabbitMQ that takes scripts.
async fn manager(bed: &Bed, kubeconfig: &Path, namespace: &str, folder: &Path) -> Child {
    let mut command = program();
    command
        .env("KUBECONFIG", kubeconfig)
        .env("ROCKBOT_BUS__URL", test_broker_url())
        .env("ROCKBOT_BUS__NAMESPACE", namespace)
        .env("ROCKBOT_STORE__URL", format!("sqlite:{}", folder.join("calls.db").display()))
        .env("ROCKBOT_STORE__SHARED", "true")
        .env("ROCKBOT_SCRIPTS__NAMESPACE", &bed.scripts)
        .env("ROCKBOT_SCRIPTS__CPU", "50m")
        .env("ROCKBOT_SCRIPTS__PROBE_NETWORK", bed.enforces_policies().to_string())
        .stdin(Stdio::null())
        .stderr(Stdio::piped());
    let mut command = tokio::process::Command::from(command);
    let mut child = command.kill_on_drop(true).spawn().unwrap();
    let mut said = BufReader::new(child.stderr.take().unwrap()).lines();
    let ready = async {
        while let Some(line) = said.next_line().await.unwrap() {
            if line.contains("ready") {
                return;
            }
        }
        panic!("it ended before it was ready");
    };
    timeout(PATIENCE, ready).await.expect("it becomes ready");
    // Somebody has to read the rest, or it could not go on.
    tokio::spawn(async move { while let Ok(Some(_)) = said.next_line().await {} });
    child
}

#[tokio::test]
async fn a_script_whose_manager_is_killed_is_answered_by_the_next_one_and_never_runs_twice() {
    in_cluster(async |bed| {
        let (kubeconfig, folder) = (bed.kubeconfig(), tempfile::tempdir().unwrap());
        let namespace = fresh_namespace();
        let mut first = manager(&bed, kubeconfig.path(), &namespace, folder.path()).await;
        let config = RabbitConfig::new(test_broker_url(), "a test").in_namespace(&namespace);
        let bus = Arc::new(RabbitBus::start(&config).unwrap());
        bus.connected(PATIENCE).await.unwrap();
        let agent = BusRunner::new(bus, reply_address("agent", "a"));
        let context = call();
        let slow = script("import time; time.sleep(8); print('done')");
        let slow = slow.within(Duration::from_secs(60)).unwrap();
        let (outcome, second) = tokio::join!(agent.run(&slow, &context), async {
            bed.wait_for("it runs", 1, is_running).await;
            let pod = bed.names().await;
            first.kill().await.unwrap();
            let second = manager(&bed, kubeconfig.path(), &namespace, folder.path()).await;
            assert_eq!(bed.names().await, pod, "the pod outlives its manager");
            second
        });
        // It is answered from its pod. Asked again, it is known, and nothing runs.
        assert_eq!(outcome.unwrap().stdout, "done\n");
        bed.wait_for_none().await;
        let again = agent.run(&slow, &context).await.unwrap();
        assert_eq!(again.stdout, "done\n");
        assert!(bed.names().await.is_empty());
        drop(second);
    })
    .await;
}
