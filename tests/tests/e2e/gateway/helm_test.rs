//! The program of `helm test` against a gateway behind a proxy that signs people in.

use std::path::Path;

use tokio::process::Command;

use super::harness::GatewayFleet;
use crate::{
    fleet::assert_contains,
    process::{Exit, Running},
};

/// Runs the program against the faces of the gateway at `address`, without a token.
async fn check(address: &str, proxy_headers: &str) -> Exit {
    let program = "../helm/rockbot/files/tests/gateway_faces.py";
    let mut python = Command::new("python3");
    python
        .arg(Path::new(env!("CARGO_MANIFEST_DIR")).join(program))
        .args([&format!("http://{address}"), "assistant", "no-token", "console", "openai"])
        .env("PROXY_HEADERS", proxy_headers);
    Running::start(python).wait().await
}

#[tokio::test]
async fn helm_test_signs_in_by_the_headers_of_a_trusted_proxy_only() {
    let fleet = GatewayFleet::start().await;
    let peers =
        [("accepted", "refused", r#"["127.0.0.1"]"#), ("refused", "accepted", r#"["10.3.0.7"]"#)];
    for (state, wrong, trusted) in peers {
        let settings = [
            ("ROCKBOT_GATEWAY__SIGN_IN", "proxy"),
            ("ROCKBOT_GATEWAY__PROXY__TRUSTED_PEERS", trusted),
            ("ROCKBOT_GATEWAY__PUBLIC_URL", "http://127.0.0.1"),
        ];
        let (_gateway, address) = fleet.gateway_with("gateway-0", &settings).await;
        let exit = check(&address, state).await;
        exit.assert_code(0);
        let expected = format!("proxy: headers are {state}, and required");
        assert_contains(&exit.stdout, &["console: called", &expected]);
        let exit = check(&address, wrong).await;
        exit.assert_code(1);
        assert_contains(&exit.stderr, &["sign-in with the headers ['x-forwarded-email'"]);
    }
}
