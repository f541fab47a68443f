//! Load of a handler.

use std::time::Duration;

use rockbot_contracts::{HandlerLoad, InstanceId, ToolHints, topology::tool_invoke};
use rockbot_testkit::fixture::{BusFixture, wait_until};
use rockbot_tool_rpc::InvokeOptions;
use rockbot_tools::ToolResult;
use tokio::sync::watch;

use crate::fleet::{agent_of, handler_at, registration, registry_of, tool};

#[tokio::test(start_paused = true)]
async fn load_counts_running_and_waiting_calls() {
    let bus = BusFixture::memory();
    let (open, gate) = watch::channel(false);
    let held = tool(registration("held"), move |_, _| {
        let mut gate = gate.clone();
        async move {
            let _ = gate.wait_for(|open| *open).await;
            Ok(ToolResult::text(""))
        }
    });
    let (registry, instance) = (registry_of(vec![held]), InstanceId::generate());
    let options = InvokeOptions { backlog: 8, ..InvokeOptions::new(2) };
    let (handler, _workers) =
        handler_at(&tool_invoke(), &bus.remote, registry, &instance, options).await;
    let idle = HandlerLoad { capacity: Some(2), ..HandlerLoad::default() };
    assert_eq!(handler.load(), idle);

    let call = agent_of(&bus, "held", ToolHints::default());
    let calls: Vec<_> = (0..5).map(|_| tokio::spawn(call("{}"))).collect();
    let counts = || (handler.load().running, handler.load().waiting);
    wait_until("two running and three waiting calls", || counts() == (2, 3)).await;
    tokio::time::advance(Duration::from_secs(4)).await;
    let oldest = handler.load().oldest_ms.expect("a call");
    assert!((4_000..20_000).contains(&oldest), "{oldest} ms");

    open.send_replace(true);
    for call in calls {
        call.await.expect("no panic").expect("a result");
    }
    wait_until("no load", || handler.load() == idle).await;
}
