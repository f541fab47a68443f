//! The manager on a bus: asked by an agent, stopped, and lost.

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
use rockbot_tools::ToolFailure;

use crate::bed::{Bed, call, in_cluster, is_running, script};

/// Where no script gets, closed network or not: its probe says that all is closed.
const NOBODY: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::LOCALHOST), 1);

/// A manager of a fleet whose managers share a journal, which tries whether scripts get to `probed`.
async fn manager(
    bed: &Bed,
    bus: &MemoryBus,
    store: &Arc<MemoryStore>,
    name: &str,
    probed: &[SocketAddr],
) -> ScriptsManager {
    let instance = InstanceId::new(name).unwrap();
    let options = JournalOptions { shared: true, ..JournalOptions::default() };
    let journal = CallJournal::start(store.clone(), &instance, options);
    let (bus, runner): (Arc<dyn Bus>, _) = (Arc::new(bus.clone()), Arc::new(bed.runner()));
    let section = HandlerSection { concurrency: 4, ..HandlerSection::default() };
    ScriptsManager::start(bus, runner, &section, journal, instance, probed.to_vec()).await.unwrap()
}

#[tokio::test]
async fn an_agent_asks_on_the_bus_and_gets_what_the_pod_printed() {
    in_cluster(async |bed| {
        let (bus, store) = (MemoryBus::new(), Arc::new(MemoryStore::new(Clock::System)));
        let manager = manager(&bed, &bus, &store, "scripts-0", &[]).await;
        let agent = BusRunner::new(Arc::new(bus), reply_address("agent", "a"));
        let code = "import os; print(os.environ['ROCKBOT_INPUT'] * 2); raise SystemExit(4)";
        let code = script(code).with_input("ab").unwrap();
        let outcome = agent.run(&code, &call()).await.unwrap();
        assert_eq!((outcome.stdout.as_str(), outcome.exit_code), ("abab\n", 4));
        let told = outcome.isolation.to_string();
        assert_eq!(told, "pod (not kept from: the network (not probed))");

        let (context, forever) = (call(), script("import time; time.sleep(1000)"));
        let (ended, ()) = tokio::join!(agent.run(&forever, &context), async {
            bed.wait_for("it runs", 1, is_running).await;
            context.cancellation.cancel();
        });
        assert_eq!(ended.unwrap_err().code(), ToolErrorCode::Cancelled);
        bed.wait_for_none().await;
        assert!(manager.drain(Duration::from_secs(10)).await);
    })
    .await;
}

/// What becomes of a script whose manager is stopped while it runs, and whose pod goes on, or is gone
/// before the next manager looks.
async fn handed_over(
    bed: &Bed,
    probed: &[SocketAddr],
    loses_pod: bool,
) -> Result<ScriptOutcome, ToolFailure> {
    let (bus, store) = (MemoryBus::new(), Arc::new(MemoryStore::new(Clock::System)));
    let first = manager(bed, &bus, &store, "scripts-0", probed).await;
    bed.wait_for_none().await;
    let agent = BusRunner::new(Arc::new(bus.clone()), reply_address("agent", "a"));
    let (context, slow) = (call(), script("import time; time.sleep(8); print('done')"));
    let (outcome, second) = tokio::join!(agent.run(&slow, &context), async {
        bed.wait_for("it runs", 1, is_running).await;
        let before = bed.names().await;
        assert!(!first.drain(Duration::from_millis(50)).await, "it does not end in time");
        assert_eq!(bed.names().await, before, "its pod goes on");
        if loses_pod {
            bed.delete_pods().await;
            bed.wait_for_none().await;
        }
        manager(bed, &bus, &store, "scripts-1", probed).await
    });
    assert!(second.drain(Duration::from_secs(10)).await);
    outcome
}

#[tokio::test]
async fn a_script_whose_manager_is_stopped_is_answered_once_by_the_next_one() {
    in_cluster(async |bed| {
        assert_eq!(handed_over(&bed, &[NOBODY], false).await.unwrap().stdout, "done\n");
        bed.wait_for_none().await;
    })
    .await;
}

#[tokio::test]
async fn a_script_that_may_have_reached_something_is_taken_on_and_never_run_again() {
    in_cluster(async |bed| {
        assert_eq!(handed_over(&bed, &[], false).await.unwrap().stdout, "done\n");
        bed.wait_for_none().await;
        let failure = handed_over(&bed, &[], true).await.unwrap_err();
        assert_eq!(failure.code(), ToolErrorCode::OutcomeUnknown, "{failure}");
        assert!(bed.names().await.is_empty(), "nothing was started");
    })
    .await;
}
