//! Login links, sessions, and the identity of a trusted proxy.

use serde_json::json;

use crate::{fleet::Fleet, http::Request};

#[tokio::test]
async fn login_link_opens_one_session() {
    let fleet = Fleet::start().await;
    let gateway = fleet.gateway().await;
    let link = gateway.guard.login_link().unwrap().unwrap();
    let (_, code) = link.split_once("#login=").unwrap();
    let opened = gateway.redeem(code).await;
    assert_eq!(opened.status, 204);
    let cookie = opened.header("set-cookie").unwrap().to_ascii_lowercase();
    for attribute in ["httponly", "samesite=strict", "max-age=43200", "path=/"] {
        assert!(cookie.contains(attribute), "{cookie}");
    }
    let again = gateway.redeem(code).await;
    assert_eq!((again.status, again.json()["code"].clone()), (401, json!("unauthorized")));
}

#[tokio::test]
async fn session_ends_at_logout() {
    let fleet = Fleet::start().await;
    let gateway = fleet.gateway().await;
    let cookie = gateway.log_in().await;
    let me = Request::get("/api/v1/me").header("cookie", &cookie);
    let identity = me.send(gateway.address).await;
    assert_eq!(identity.status, 200, "{}", identity.body);
    assert_eq!(identity.json()["subject"], "local");
    assert_eq!(identity.json()["rights"], json!(["watch", "content", "talk", "letters", "call"]));
    let missing = json!({"available": false, "missing": "gateway.watch.url"});
    assert_eq!(identity.json()["parts"]["watch"], missing);
    assert_eq!(identity.header("cache-control"), Some("no-store"));
    let origin = format!("http://{}", gateway.address);
    let out = Request::new("DELETE", "/api/v1/session").header("origin", &origin);
    let out = out.header("cookie", &cookie).send(gateway.address).await;
    assert_eq!(out.status, 204, "{}", out.body);
    assert!(out.header("set-cookie").unwrap().contains("Max-Age=0"));
    assert_eq!(me.send(gateway.address).await.status, 401);
}

#[tokio::test]
async fn logins_are_limited() {
    let fleet = Fleet::start().await;
    let gateway = fleet.gateway().await;
    for _ in 0..5 {
        assert_eq!(gateway.redeem("guess").await.status, 401);
    }
    let limited = gateway.redeem("guess").await;
    assert_eq!(limited.status, 429, "{}", limited.body);
    assert_eq!(limited.header("retry-after"), Some("12"));
}

#[tokio::test]
async fn proxy_names_the_person() {
    let fleet = Fleet::start().await;
    let keys = "sign_in = \"proxy\"\ngroups.staff = [\"talk\"]";
    let gateway = fleet.gateway_with(keys).await;
    assert!(gateway.guard.login_link().unwrap().is_none());
    let me = Request::get("/api/v1/me");
    assert_eq!(me.send(gateway.address).await.status, 401);
    let ada = me.header("x-forwarded-email", "ada@example.com");
    let ada = ada.header("x-forwarded-groups", "staff,other").send(gateway.address).await;
    assert_eq!(ada.json()["subject"], "ada@example.com");
    assert_eq!(ada.json()["rights"], json!(["talk"]));
}

#[tokio::test]
async fn headers_of_an_untrusted_peer_are_ignored() {
    let fleet = Fleet::start().await;
    let keys = "sign_in = \"proxy\"\nproxy.trusted_peers = [\"10.0.0.7\"]";
    let gateway = fleet.gateway_with(keys).await;
    let me = Request::get("/api/v1/me").header("x-forwarded-email", "ada@example.com");
    assert_eq!(me.send(gateway.address).await.status, 401);
}
