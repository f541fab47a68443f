//! Running calls during shutdown.

use std::sync::Arc;

use rockbot_testkit::fixture::within_timeout;
use serde_json::json;
use tokio::sync::Notify;

use crate::program::{Client, TRANSPORTS, outcome_of, request, terminate};
use crate::scripted::{Script, ScriptedOpenRouter};

#[tokio::test]
async fn running_call_completes_before_exit() {
    for transport in TRANSPORTS {
        let released = Arc::new(Notify::new());
        let mut openrouter = ScriptedOpenRouter::start(Script::Hold(Arc::clone(&released))).await;
        let Client { session, log, pid, http } =
            Client::start_with(transport, &openrouter.url).await;
        let peer = session.peer().clone();
        let call =
            tokio::spawn(async move { peer.call_tool(request("get_credits", json!({}))).await });
        within_timeout("the query", openrouter.requests.recv()).await.unwrap();

        terminate(pid).await;
        log.line_with("shutdown requested").await;
        released.notify_one();
        let result = within_timeout("the response", call).await.unwrap().unwrap();
        let (is_error, text) = outcome_of(&result);
        assert!(!is_error, "{transport}: {text}");
        match http {
            Some(mut program) => {
                let status = within_timeout("the exit", program.child.wait()).await.unwrap();
                assert!(status.success(), "{status}: {}", log.text());
            }
            None => drop(within_timeout("the exit", session.waiting()).await.unwrap()),
        }
    }
}

#[tokio::test]
async fn shutdown_waits_at_most_drain_time() {
    for transport in TRANSPORTS {
        let mut openrouter = ScriptedOpenRouter::start(Script::Silent).await;
        let settings = [
            ("ROCKBOT_OPENROUTER__BASE_URL", openrouter.url.as_str()),
            ("ROCKBOT_SERVICE__DRAIN", "1s"),
        ];
        let client = Client::start(transport, &settings).await;
        let peer = client.session.peer().clone();
        let call =
            tokio::spawn(async move { peer.call_tool(request("get_credits", json!({}))).await });
        within_timeout("the query", openrouter.requests.recv()).await.unwrap();

        terminate(client.pid).await;
        client.log.line_with("drain timed out").await;
        let outcome = within_timeout("the end of the call", call).await.unwrap();
        assert!(
            outcome.map_or(true, |result| outcome_of(&result).0),
            "{transport}: the call succeeded"
        );
    }
}
