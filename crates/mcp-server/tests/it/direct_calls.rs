//! Calls by clients that do not speak the protocol.

use std::sync::atomic::Ordering;

use rockbot_contracts::Executed;
use rockbot_mcp_server::{DirectCall, DirectCallError, McpClient};
use rockbot_testkit::fixture::within_timeout;

use crate::fixture::{Handler, client, filter};

fn call(tool: &str, key: &str) -> DirectCall {
    let (tool, key) = (tool.to_owned(), key.to_owned());
    DirectCall { tool, arguments: "{}".to_owned(), key, timeout: None }
}

#[tokio::test]
async fn direct_call_joins_the_call_of_its_key() {
    let handler = Handler::start().await;
    let fleet = handler.fleet().await.fleet;
    let form = client("form");
    let both = async {
        tokio::join!(
            fleet.call(&form, call("wait", "a")),
            fleet.call(&form, call("wait", "a")),
            async {
                handler.events.running(1).await;
                handler.events.released.send_replace(true);
            }
        )
    };
    let (first, second, ()) = within_timeout("the call", both).await;
    let (first, second) = (first.unwrap(), second.unwrap());
    assert_eq!(first.id, second.id);
    assert_eq!(first.outcome.as_ref().as_ref().unwrap().to_text(), "1");
    assert_eq!(second.outcome.as_ref().as_ref().unwrap().to_text(), "1");
    assert_eq!(handler.events.runs.load(Ordering::SeqCst), 1);
    let failed = fleet.call(&form, call("fail", "b")).await.unwrap();
    assert_eq!(failed.outcome.as_ref().as_ref().unwrap_err().executed(), Executed::Yes);
}

#[tokio::test]
async fn direct_call_of_a_forbidden_tool_is_refused() {
    let handler = Handler::start().await;
    let fleet = handler.fleet().await.fleet;
    let limited = McpClient::new("limited", filter(&["wait"])).unwrap();
    for tool in ["wait", "absent"] {
        let refused = fleet.call(&limited, call(tool, "a")).await.unwrap_err();
        assert_eq!(refused, DirectCallError::UnknownTool { name: tool.to_owned() });
        assert!(fleet.tool(&limited, tool).await.is_none());
    }
    let refused = fleet.call(&limited, call("echo", "a\n")).await.unwrap_err();
    assert_eq!(refused, DirectCallError::Key);
    assert_eq!(fleet.tool(&limited, "echo").await.unwrap().name, "echo");
}
