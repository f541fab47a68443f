//! Repeated requests over two gateways, and after one was killed.

use rustix::process::Signal;

use super::harness::GatewayFleet;
use crate::fleet::ProcessGroup;

#[tokio::test]
async fn repeated_requests_over_two_gateways_run_one_turn() {
    let fleet = GatewayFleet::start().await;
    let (_first, first) = fleet.gateway("gateway-0").await;
    let (_second, second) = fleet.gateway("gateway-1").await;
    let mut ids = Vec::new();
    for (client, address) in [("python", &first), ("node", &second)] {
        ids.push(fleet.outcome(client, &["repeat", "key-1"], address).await);
    }
    assert_eq!(ids[0].as_array().map(Vec::len), Some(1), "{ids:?}");
    assert_eq!(ids[0], ids[1]);
    assert_eq!(fleet.runs(), 1);
}

#[tokio::test]
async fn request_is_recognized_after_the_gateway_was_killed() {
    let fleet = GatewayFleet::start().await;
    let (killed, address) = fleet.gateway("gateway-0").await;
    let before = fleet.outcome("python", &["repeat", "key-1"], &address).await;
    // In the middle of another turn.
    let hanging = fleet.client("python", &["hang_up"], &address);
    let command = ProcessGroup::from_file(&fleet.fleet, "pid.txt").await;
    killed.send(Signal::KILL);
    drop((killed, hanging));
    let (_restarted, address) = fleet.gateway("gateway-0").await;
    let after = fleet.outcome("node", &["repeat", "key-1"], &address).await;
    assert_eq!(before, after);
    assert_eq!(fleet.runs(), 1);
    drop(command);
}
