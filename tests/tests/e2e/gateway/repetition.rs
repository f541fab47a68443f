//! Repeated requests over two gateways, and after one was killed.

use rustix::process::Signal;

use super::harness::GatewayFleet;
use crate::fleet::ProcessGroup;

#[tokio::test]
async fn repeated_requests_over_two_gateways_run_one_turn() {
    let fleet = GatewayFleet::start().await;
    let (first_process, first) = fleet.gateway("gateway-0").await;
    let (_second, second) = fleet.gateway("gateway-1").await;
    let scenarios = [("repeat", "key-1"), ("response_repeat", "key-2")];
    let mut outcomes = Vec::new();
    for (scenario, key) in scenarios {
        let outcome = fleet.outcome("python", &[scenario, key], &first).await;
        assert_eq!(outcome.as_array().map(Vec::len), Some(1), "{outcome}");
        assert_eq!(fleet.outcome("node", &[scenario, key], &second).await, outcome);
        outcomes.push(outcome);
    }
    first_process.send(Signal::KILL);
    drop(first_process);
    for ((scenario, key), outcome) in scenarios.into_iter().zip(outcomes) {
        assert_eq!(fleet.outcome("python", &[scenario, key], &second).await, outcome);
    }
    assert_eq!(fleet.runs(), scenarios.len());
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
