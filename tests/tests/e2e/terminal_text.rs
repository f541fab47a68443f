//! Text of handlers, MCP servers and dead letters in the output of commands.

use rockbot_bus::Publication;
use rockbot_contracts::{Envelope, topology::tool_invoke};
use rockbot_testkit::fixture::within_timeout;
use serde_json::json;

use crate::{
    announced_tool::{announce_on_request, tool},
    fleet::{Fleet, assert_contains},
    stdio_server,
};

/// Text that would rename a window, clear the screen, change the text direction, and hide a character.
const HOSTILE: &str = "\u{1b}]0;owned\u{7}\u{1b}[2J\u{202e}\u{200b}harm";
/// Its characters that no command may print.
const FORBIDDEN: [char; 4] = ['\u{1b}', '\u{7}', '\u{202e}', '\u{200b}'];

#[tokio::test]
async fn commands_print_untrusted_text_without_invisible_characters() {
    let fleet = Fleet::new();
    let _handler = fleet.handler("handler-1").await;
    let results = json!({"report": stdio_server::text("ok")});
    let server = stdio_server::entry_with_description(&results, HOSTILE);
    let _bridge = fleet.bridge("bridge-1", &json!({"hostile": server})).await;
    let bus = fleet.bus(|_| {}).await;
    let mut registration = tool("hostile", json!({"type": "object", "title": HOSTILE}));
    registration.description = HOSTILE.to_owned();
    let announcer = announce_on_request(bus.clone(), registration, 0).await;
    let unreadable = Envelope::raw("Nonsense", format!("\"{HOSTILE}\"").into_bytes());
    let letter = Publication::mandatory(tool_invoke(), unreadable.with_source(HOSTILE));
    within_timeout("publish", bus.publish(letter)).await.expect("confirmed");
    let show = ["dlq", "show", "tool.invoke", "--body"];
    while !fleet.run(&show).await.stdout.contains("harm") {}
    while !fleet.run(&["mcp", "describe", "hostile"]).await.stdout.contains("report") {}

    for (arguments, has_text) in [
        (&["tools", "list"][..], true),
        (&["tools", "describe", "hostile"], true),
        (&["mcp", "describe", "hostile"], true),
        (&["mcp", "describe", "hostile", "report"], true),
        (&show, true),
        (&["mcp", "list"], false),
        (&["doctor"], false),
    ] {
        let exit = fleet.run(arguments).await;
        if has_text {
            assert_contains(&exit.stdout, &["harm"]);
        }
        for output in [&exit.stdout, &exit.stderr] {
            assert!(!output.contains(FORBIDDEN), "{arguments:?}: {output:?}");
        }
    }
    announcer.abort();
}
