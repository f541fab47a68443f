//! Approval requests in a completion, and the decision on them.

use rockbot_gateway::{FaceName, Right};
use serde_json::{Value, json};

use crate::{fleet::Fleet, http::Request};

#[tokio::test]
async fn program_decides_on_an_approval() {
    for (decision, shown) in [("allow", "erase finished"), ("deny", "erase failed")] {
        let fleet = Fleet::asking("erase", "{\"disk\":\"a\\u001b[2J\"}", "erased").await;
        let gateway = fleet.gateway().await;
        let token = gateway.openai_token().await;
        let body = json!({
            "model": "assistant", "stream": true,
            "messages": [{"role": "user", "content": "go on"}],
        });
        let mut stream =
            Request::post("/v1/chat/completions", &body).token(&token).open(gateway.address).await;
        stream.read_until("\"approval\":{").await;
        let details = approval_in(&stream.received());
        let path = format!("/v1/approvals/{}", details["approvalId"].as_str().unwrap());
        let decide = |hash: &Value, decision: &str| {
            Request::post(&path, &json!({"callHash": hash, "decision": decision}))
        };
        let other = gateway.token("other", FaceName::Openai, &[Right::Talk]).await;
        let foreign = decide(&details["callHash"], "allow").token(&other);
        assert_eq!(foreign.send(gateway.address).await.status, 404, "another program");
        let unknown = decide(&details["callHash"], "maybe").token(&token);
        assert_eq!(unknown.send(gateway.address).await.status, 400);
        let decided = decide(&details["callHash"], decision).token(&token);
        assert_eq!(decided.send(gateway.address).await.status, 204);
        stream.read_until("[DONE]").await;
        let response = stream.finish().await;
        let reasoning = response.streamed("reasoning_content");
        assert!(reasoning.contains("erase needs approval within"), "{reasoning}");
        assert!(reasoning.contains(shown), "{reasoning}");
        assert!(!reasoning.contains('\u{1b}'), "{reasoning}");
        assert_eq!(decided.send(gateway.address).await.status, 404, "closed");
    }
}

/// Returns the details of the approval request in a stream.
pub(crate) fn approval_in(received: &str) -> Value {
    let chunk = received.split("data: ").find(|chunk| chunk.contains("\"approval\":{")).unwrap();
    let mut values = serde_json::Deserializer::from_str(chunk).into_iter::<Value>();
    values.next().unwrap().unwrap()["rockbot"]["approval"].clone()
}
