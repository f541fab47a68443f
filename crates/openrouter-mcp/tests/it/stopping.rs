//! What becomes of calls under way when the program is asked to stop.

use std::sync::Arc;

use rockbot_testkit::fixture::within_timeout;
use serde_json::json;
use tokio::sync::Notify;

use crate::program::{Client, TRANSPORTS, request, terminate, told};
use crate::scripted::{Script, ScriptedOpenRouter};

#[tokio::test]
async fn a_call_under_way_is_answered_before_the_program_ends() {
    for transport in TRANSPORTS {
        let released = Arc::new(Notify::new());
        let mut openrouter = ScriptedOpenRouter::start(Script::Hold(Arc::clone(&released))).await;
        let Client { session, log, pid, http } = Client::of(transport, &openrouter.url).await;
        let peer = session.peer().clone();
        let call =
            tokio::spawn(async move { peer.call_tool(request("get_credits", json!({}))).await });
        within_timeout("a question", openrouter.requests.recv()).await.unwrap();

        terminate(pid).await;
        log.line_with("shutdown requested").await;
        released.notify_one();
        let (is_error, text) = told(&within_timeout("an answer", call).await.unwrap().unwrap());
        assert!(!is_error, "{transport}: {text}");
        match http {
            Some(mut program) => {
                let status = within_timeout("the end", program.child.wait()).await.unwrap();
                assert!(status.success(), "{status}: {}", log.text());
            }
            None => drop(within_timeout("the end", session.waiting()).await.unwrap()),
        }
    }
}

#[tokio::test]
async fn a_stop_does_not_wait_longer_than_it_may() {
    for transport in TRANSPORTS {
        let mut openrouter = ScriptedOpenRouter::start(Script::Silence).await;
        let settings = [
            ("ROCKBOT_OPENROUTER__BASE_URL", openrouter.url.as_str()),
            ("ROCKBOT_SERVICE__DRAIN", "1s"),
        ];
        let client = Client::start(transport, &settings).await;
        let peer = client.session.peer().clone();
        let call =
            tokio::spawn(async move { peer.call_tool(request("get_credits", json!({}))).await });
        within_timeout("a question", openrouter.requests.recv()).await.unwrap();

        terminate(client.pid).await;
        client.log.line_with("stopped before every").await;
        let called = within_timeout("an end of the call", call).await.unwrap();
        assert!(called.map_or(true, |result| told(&result).0), "{transport}: it is no answer");
    }
}
