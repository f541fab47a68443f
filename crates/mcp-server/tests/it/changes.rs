//! Notifications of changed lists.

use rmcp::{ClientLifecycleMode, model::SubscriptionFilter};
use rockbot_contracts::ToolHints;
use rockbot_mcp_server::{HttpOptions, McpClient, McpServerSection};
use rockbot_testkit::fixture::within_timeout;
use rockbot_tools::ToolResult;

use crate::{
    fixture::{Handler, Notified, client, eras, filter, registration, tool},
    servers::Servers,
};

#[tokio::test]
async fn session_is_notified_of_changed_tools() {
    let handler = Handler::start().await;
    let servers = Servers::new();
    let fleet = handler.fleet_with(McpServerSection::default(), Some(servers.gateway())).await;
    let http = fleet.http(HttpOptions::default()).await;
    for over_http in [false, true] {
        let era = ClientLifecycleMode::Initialize;
        let mut session = match over_http {
            true => http.connect("desktop", era).await,
            false => fleet.connect(client("desktop"), era).await,
        };
        let before = session.tool_names().await.len();
        servers.add("tracker", 3);
        assert_eq!(session.notified().await, Notified::Tools);
        assert_eq!(session.tool_names().await.len(), before + 3);
        servers.add("tracker", 1);
        assert_eq!(session.notified().await, Notified::Tools);
        assert_eq!(session.tool_names().await.len(), before + 1);
        servers.remove("tracker");
        assert_eq!(session.notified().await, Notified::Tools);
        assert_eq!(session.tool_names().await.len(), before);
    }
}

#[tokio::test]
async fn tool_of_a_handler_is_announced_to_clients_that_may_use_it() {
    let handler = Handler::start().await;
    let fleet = handler.fleet().await;
    let era = ClientLifecycleMode::Initialize;
    let limited = McpClient::new("limited", filter(&["new_*"])).unwrap();
    let mut limited = fleet.connect(limited, era.clone()).await;
    let mut session = fleet.connect(client("desktop"), era).await;
    let add = |name: &str| {
        let added =
            tool(registration(name, ToolHints::default()), async |_, _| Ok(ToolResult::text("")));
        handler.registry.register(added).unwrap();
    };
    add("new_tool");
    assert_eq!(session.notified().await, Notified::Tools);
    assert!(session.tool_names().await.contains(&"new_tool".to_owned()));
    // The first notification of the other client is about the second tool.
    add("other_tool");
    assert_eq!(limited.notified().await, Notified::Tools);
    let names = limited.tool_names().await;
    assert!(names.contains(&"other_tool".to_owned()) && !names.contains(&"new_tool".to_owned()));
}

#[tokio::test]
async fn subscriber_is_notified_of_changed_tools() {
    let handler = Handler::start().await;
    let servers = Servers::new();
    let fleet = handler.fleet_with(McpServerSection::default(), Some(servers.gateway())).await;
    let http = fleet.http(HttpOptions::default()).await;
    let [_, era] = eras();
    let over_streams = fleet.connect(client("desktop"), era.clone()).await;
    let over_http = http.connect("desktop", era).await;
    for session in [over_streams, over_http] {
        let filter = SubscriptionFilter::builder().tools_list_changed().build();
        let subscription = session.peer().listen(filter);
        let mut subscription = within_timeout("the subscription", subscription).await.unwrap();
        servers.add("tracker", 2);
        let notified = within_timeout("a notification", subscription.next()).await;
        assert!(notified.unwrap().is_some());
        servers.remove("tracker");
        let notified = within_timeout("a notification", subscription.next()).await;
        assert!(notified.unwrap().is_some());
    }
}
