//! A bridge with a server that requires a login.

use rockbot_contracts::{Executed, ToolErrorCode};
use rockbot_mcp_bridge::{Bridge, BridgeOptions, oauth::OAuthError};
use rockbot_testkit::fixture::{TEST_TIMEOUT, wait_until, within_timeout};
use serde_json::json;
use tempfile::TempDir;

use super::{authorization_server::AuthServer, finish};
use crate::{
    fixture::{call, call_text, servers_file},
    remote::loopback,
};

#[tokio::test]
async fn bridge_connects_after_login_and_requests_another() {
    let (auth_server, folder) = (AuthServer::start().await, TempDir::new().unwrap());
    let tokens = Some(folder.path().join("tokens"));
    let bridge =
        Bridge::new(BridgeOptions { dial: loopback(), tokens, ..BridgeOptions::default() });
    bridge.apply(servers_file(&json!({"private": {"url": auth_server.mcp()}}))).await;
    within_timeout("the rejection", bridge.wait_until_settled(TEST_TIMEOUT * 2)).await;
    assert!(!bridge.servers()[0].ready);
    finish(bridge.log_in("Private", &[]).await.unwrap().expect("a rejected request")).await;
    wait_until("the session", || bridge.servers()[0].ready).await;
    assert_eq!(call_text(&bridge, "private", "good", json!({})).await, "good");

    auth_server.revoke_access_tokens();
    auth_server.revoke_refresh_tokens();
    let failure = call(&bridge, "private", "good", json!({})).await.unwrap_err();
    assert_eq!((failure.code(), failure.executed()), (ToolErrorCode::NotPermitted, Executed::No));
    finish(bridge.log_in("private", &[]).await.unwrap().expect("another rejected request")).await;
    assert_eq!(call_text(&bridge, "private", "good", json!({})).await, "good");
    assert!(
        bridge.log_in("private", &[]).await.unwrap().is_none(),
        "no request was rejected since"
    );

    // Of a connected server, more scopes can be requested.
    let wanted = ["write".to_owned()];
    let login = bridge.log_in("private", &wanted).await.unwrap().expect("a login");
    assert!(login.url().contains("write"), "{}", login.url());
    finish(login).await;
    let repeated = bridge.log_in("private", &wanted).await;
    assert!(matches!(repeated.err(), Some(OAuthError::ScopesAlreadyGranted)));
    bridge.stop().await;
}
