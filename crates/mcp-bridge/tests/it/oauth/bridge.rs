//! A bridge at a server that wants somebody to log in.

use rockbot_contracts::{Executed, ToolErrorCode};
use rockbot_mcp_bridge::{Bridge, BridgeOptions};
use rockbot_testkit::fixture::{TEST_TIMEOUT, wait_until, within_timeout};
use serde_json::json;
use tempfile::TempDir;

use super::{authority::Authority, finish};
use crate::{
    bed::{call, file, said},
    remote::loopback,
};

#[tokio::test]
async fn a_bridge_serves_after_a_login_and_says_when_it_needs_another() {
    let (authority, folder) = (Authority::start().await, TempDir::new().unwrap());
    let tokens = Some(folder.path().join("tokens"));
    let bridge =
        Bridge::new(BridgeOptions { dial: loopback(), tokens, ..BridgeOptions::default() });
    bridge.apply(file(&json!({"shut": {"url": authority.mcp()}}))).await;
    within_timeout("the refusal", bridge.wait_until_settled(TEST_TIMEOUT * 2)).await;
    assert!(!bridge.servers()[0].ready);
    finish(bridge.log_in("Shut").await.unwrap().expect("it was refused")).await;
    wait_until("the session", || bridge.servers()[0].ready).await;
    assert_eq!(said(&bridge, "shut", "good", json!({})).await, "good");

    authority.revoke();
    authority.forget_refresh_tokens();
    let refused = call(&bridge, "shut", "good", json!({})).await.unwrap_err();
    assert_eq!((refused.code(), refused.executed()), (ToolErrorCode::NotPermitted, Executed::No));
    finish(bridge.log_in("shut").await.unwrap().expect("it was refused again")).await;
    assert_eq!(said(&bridge, "shut", "good", json!({})).await, "good");
    assert!(bridge.log_in("shut").await.unwrap().is_none(), "nothing was refused since");
    bridge.stop().await;
}
