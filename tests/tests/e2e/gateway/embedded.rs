//! The gateway of `rockbot up --web`.

use rockbot_gateway::TokenFile;
use rustix::process::Signal;

use super::harness::{SCRIPT, client};
use crate::{
    fleet::{Fleet, assert_contains},
    http,
    process::Running,
};

#[tokio::test]
async fn up_serves_the_gateway_and_prints_a_login_link() {
    let fleet = Fleet::new();
    fleet.write("script.toml", SCRIPT);
    let mut new = fleet.program_without_bus("rockbot");
    new.args(["gateway", "token", "new", "tests", "--file", "tokens.toml"]);
    let new = Running::start(new).wait().await;
    new.assert_code(0);
    let token = new.stdout.trim().to_owned();
    assert_eq!(TokenFile::read(&fleet.path("tokens.toml")).expect("tokens").tokens.len(), 1);

    let mut up = fleet.program_without_bus("rockbot");
    up.args(["up", "--web"])
        .env("ROCKBOT_LLM__PROVIDER", "scripted")
        .env("ROCKBOT_LLM__SCRIPT", fleet.path("script.toml"))
        .env("ROCKBOT_GATEWAY__ADDRESS", "127.0.0.1:0")
        .env("ROCKBOT_GATEWAY__TOKENS", fleet.path("tokens.toml"));
    let mut up = Running::start(up);
    up.expect_log("ready; stop with Ctrl-C").await;
    let log = up.log();
    let (_, link) = log.split_once("open http://").expect("a link");
    let (address, code) = link.split_once("/#login=").expect("a link with a code");
    assert!(code.split_whitespace().next().is_some_and(|code| code.len() >= 22), "{code}");
    assert_eq!(http::request(address, "/api/v1/me").await.0, 401);

    let completion = client("python", &["whole"], address, &token).wait().await;
    completion.assert_code(0);
    let content = completion.json()["content"].as_str().unwrap_or_default().to_owned();
    assert_contains(&content, &["It says: a result"]);
    up.send(Signal::TERM);
    up.wait().await.assert_code(0);
}
