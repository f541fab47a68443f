//! The manager as a service on the bus.

use std::{
    net::{Ipv4Addr, SocketAddr},
    sync::Arc,
    time::Duration,
};

use rockbot_bus::{Bus, MemoryBus};
use rockbot_contracts::{InstanceId, ToolErrorCode};
use rockbot_scripts::{BusRunner, ScriptOutcome, ScriptRunner};
use rockbot_scripts_manager::ScriptsManager;
use rockbot_store::{Clock, MemoryStore};
use rockbot_testkit::fixture::reply_address;
use rockbot_tool_rpc::{CallJournal, HandlerSection, JournalOptions};
use rockbot_tools::{LayerOptions, Outputs, OutputsSection, Redactor, ToolFailure};

use crate::fixture::{ClusterFixture, call, held_script, in_cluster, is_running, script};

/// An address without a listener, with which every probe succeeds.
const UNREACHABLE: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::LOCALHOST), 1);

/// Starts a manager that shares the journal with others and probes the addresses in `probed`.
async fn manager(
    cluster: &ClusterFixture,
    bus: &MemoryBus,
    store: &Arc<MemoryStore>,
    name: &str,
    probed: &[SocketAddr],
) -> ScriptsManager {
    let instance = InstanceId::new(name).unwrap();
    let options = JournalOptions { shared: true, ..JournalOptions::default() };
    let journal = CallJournal::start(store.clone(), &instance, options);
    let (bus, runner): (Arc<dyn Bus>, _) = (Arc::new(bus.clone()), Arc::new(cluster.runner()));
    let section = HandlerSection { concurrency: 4, ..HandlerSection::default() };
    let outputs = Outputs::new(store.clone(), OutputsSection::default());
    let layers = LayerOptions {
        outputs: Some(outputs),
        ..section.layers(None, Redactor::from_environment([]))
    };
    let probed = probed.to_vec();
    let started = ScriptsManager::start(bus, runner, &section, layers, journal, instance, probed);
    started.await.unwrap()
}

#[tokio::test]
async fn bus_request_returns_pod_output() {
    in_cluster(async |cluster| {
        let (bus, store) = (MemoryBus::new(), Arc::new(MemoryStore::new(Clock::System)));
        let manager = manager(&cluster, &bus, &store, "scripts-0", &[]).await;
        let agent = BusRunner::new(Arc::new(bus), reply_address("agent", "a"));
        let code = "import os; print(os.environ['ROCKBOT_INPUT'] * 2); raise SystemExit(4)";
        let code = script(code).with_input("ab").unwrap();
        let outcome = agent.run(&code, &call()).await.unwrap();
        assert_eq!((outcome.stdout.as_str(), outcome.exit_code), ("abab\n", 4));
        let isolation = outcome.isolation.to_string();
        assert_eq!(isolation, "pod (not isolated from: the network (not probed))");

        let (context, forever) = (call(), script("import time; time.sleep(1000)"));
        let (result, ()) = tokio::join!(agent.run(&forever, &context), async {
            cluster.wait_for("the script runs", 1, is_running).await;
            context.cancellation.cancel();
        });
        assert_eq!(result.unwrap_err().code(), ToolErrorCode::Cancelled);
        cluster.wait_for_none().await;
        assert!(manager.drain(Duration::from_secs(10)).await);
    })
    .await;
}

/// Stops the manager of a running script, deletes the pod if `loses_pod`, starts another manager, and
/// returns the result.
async fn hand_over(
    cluster: &ClusterFixture,
    probed: &[SocketAddr],
    loses_pod: bool,
) -> Result<ScriptOutcome, ToolFailure> {
    let (bus, store) = (MemoryBus::new(), Arc::new(MemoryStore::new(Clock::System)));
    let first = manager(cluster, &bus, &store, "scripts-0", probed).await;
    cluster.wait_for_none().await;
    let agent = BusRunner::new(Arc::new(bus.clone()), reply_address("agent", "a"));
    let (context, held) = (call(), held_script());
    let (outcome, second) = tokio::join!(agent.run(&held, &context), async {
        cluster.wait_for("the script runs", 1, is_running).await;
        let before = cluster.names().await;
        assert!(!first.drain(Duration::from_millis(50)).await, "the script was still running");
        assert_eq!(cluster.names().await, before, "the pod is kept");
        if loses_pod {
            cluster.delete_pods().await;
            cluster.wait_for_none().await;
        }
        let second = manager(cluster, &bus, &store, "scripts-1", probed).await;
        cluster.release().await;
        second
    });
    assert!(second.drain(Duration::from_secs(10)).await);
    outcome
}

#[tokio::test]
async fn next_manager_replies_for_stopped_manager() {
    in_cluster(async |cluster| {
        let outcome = hand_over(&cluster, &[UNREACHABLE], false).await.unwrap();
        assert!(outcome.stdout.ends_with("\ndone\n"), "{}", outcome.stdout);
        cluster.wait_for_none().await;
    })
    .await;
}

#[tokio::test]
async fn script_with_possible_effects_is_adopted_only() {
    in_cluster(async |cluster| {
        let outcome = hand_over(&cluster, &[], false).await.unwrap();
        assert!(outcome.stdout.ends_with("\ndone\n"), "{}", outcome.stdout);
        cluster.wait_for_none().await;
        let failure = hand_over(&cluster, &[], true).await.unwrap_err();
        assert_eq!(failure.code(), ToolErrorCode::OutcomeUnknown, "{failure}");
        assert!(cluster.names().await.is_empty(), "no pod was created");
    })
    .await;
}
