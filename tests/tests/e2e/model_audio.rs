//! Recordings in the results of an MCP server, on their way to the model server.

use serde_json::{Value, json};

use crate::{
    fleet::Fleet,
    model_server::{COMPLETIONS, answer, calls, chat, contents},
    site::Site,
    stdio_server,
};

/// The beginning of a WAV file, in base64.
const WAV: &str = "UklGRiQAAABXQVZFZm10IBAAAAA=";

/// Runs a turn of `rockbot` whose model calls a tool of an MCP server that returns a recording. Returns the
/// recordings in the request after that, and the result.
async fn recording_of_a_turn(reads_audio: bool) -> (Vec<Value>, String) {
    let fleet = Fleet::new();
    let recording = json!({"content": [{"type": "audio", "data": WAV, "mimeType": "audio/wav"}]});
    let servers = json!({"mailbox": stdio_server::entry(&json!({"listen": recording}))});
    fleet.write("mcp.json", &json!({"mcpServers": servers}).to_string());
    fleet.write(
        "rockbot.toml",
        &format!("[mcp]\nconfig = \"mcp.json\"\n[models.\"ears\"]\naudio = {reads_audio}\n"),
    );
    let listen = json!({"server_name": "mailbox", "tool_name": "listen", "arguments": {}});
    let replies = vec![calls([("mcp_invoke_tool", listen)]), answer("A call.")];
    let server = Site::start([(COMPLETIONS, replies)]).await;
    chat(&fleet, "ears", &server).await;
    let requests = server.requests(COMPLETIONS);
    let request = requests.get(1).expect("a second request").json();
    let messages = request["messages"].as_array().expect("messages");
    let parts = messages.iter().filter_map(|message| message["content"].as_array()).flatten();
    let recordings = parts.filter(|part| part["type"] == "input_audio");
    (
        recordings.map(|part| part["input_audio"].clone()).collect(),
        contents(&request, "tool").concat(),
    )
}

#[tokio::test]
async fn recording_of_a_server_is_a_content_part() {
    let (recordings, result) = recording_of_a_turn(true).await;
    assert_eq!(recordings, [json!({"data": WAV, "format": "wav"})], "{result}");
    assert!(!result.contains(WAV), "a recording is in a text: {result}");
}

#[tokio::test]
async fn model_without_audio_gets_a_note() {
    let (recordings, result) = recording_of_a_turn(false).await;
    assert!(recordings.is_empty(), "{recordings:?}");
    assert!(result.contains("this model reads no audio"), "{result}");
    assert!(!result.contains(WAV), "a recording is in a text: {result}");
}
