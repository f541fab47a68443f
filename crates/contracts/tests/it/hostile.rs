//! Decoding of damaged and hostile messages.

use std::path::Path;

use proptest::{prelude::*, sample::Index};
use rockbot_contracts::{
    AgentCard, AgentReply, AgentTaskCancelRequest, AgentTaskError, AgentTaskRequest,
    AgentTaskResult, AgentTaskStatusUpdate, ApprovalAnswer, ConversationRequest,
    ConversationResponse, Envelope, ForwardReceipt, ForwardedMessage, Message, ToolCancel,
    ToolCatalog, ToolCatalogRefresh, ToolError, ToolInvokeRequest, ToolInvokeResponse,
    ToolProgress, UserFeedback, UserMessage,
    json::Limits,
    mcp::{McpServerDetails, McpServersIndexed},
    script::{ScriptInvokeRequest, ScriptInvokeResponse},
};

/// Decodes a body as a message. A message that is read can be sent again, and is then the same.
fn decode<M: Message + std::fmt::Debug>(body: &[u8]) {
    let envelope = Envelope::raw(M::TYPE, body.to_vec());
    if let Ok(message) = envelope.decode::<M>(Limits { bytes: 64 * 1024 }) {
        let again = Envelope::from_payload(&message).decode::<M>(Limits::default());
        let again = again.unwrap_or_else(|error| panic!("{message:?}: {error}"));
        assert_eq!(format!("{again:?}"), format!("{message:?}"));
    }
}

fn decode_all(body: &[u8]) {
    decode::<AgentCard>(body);
    decode::<AgentTaskRequest>(body);
    decode::<AgentTaskCancelRequest>(body);
    decode::<AgentTaskStatusUpdate>(body);
    decode::<AgentTaskResult>(body);
    decode::<AgentTaskError>(body);
    decode::<AgentReply>(body);
    decode::<ApprovalAnswer>(body);
    decode::<ConversationRequest>(body);
    decode::<ConversationResponse>(body);
    decode::<McpServerDetails>(body);
    decode::<McpServersIndexed>(body);
    decode::<ScriptInvokeRequest>(body);
    decode::<ScriptInvokeResponse>(body);
    decode::<ToolCancel>(body);
    decode::<ToolCatalog>(body);
    decode::<ToolCatalogRefresh>(body);
    decode::<ToolError>(body);
    decode::<ToolInvokeRequest>(body);
    decode::<ToolInvokeResponse>(body);
    decode::<ToolProgress>(body);
    decode::<UserFeedback>(body);
    decode::<UserMessage>(body);
    decode::<ForwardedMessage>(body);
    decode::<ForwardReceipt>(body);
}

fn fixtures() -> Vec<Vec<u8>> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("fixtures");
    let files = std::fs::read_dir(folder).unwrap();
    files.map(|file| std::fs::read(file.unwrap().path()).unwrap()).collect()
}

proptest! {
    #[test]
    fn any_body_is_read_or_rejected(body in proptest::collection::vec(any::<u8>(), 0..200)) {
        decode_all(&body);
    }

    #[test]
    fn damaged_messages_are_read_or_rejected(
        file in any::<Index>(),
        damage in proptest::collection::vec((any::<Index>(), DAMAGE), 1..6),
    ) {
        let fixtures = fixtures();
        let mut body = file.get(&fixtures).clone();
        for (place, text) in damage {
            let at = place.index(body.len());
            let end = (at + text.len() / 2).min(body.len());
            drop(body.splice(at..end, text.bytes()));
        }
        decode_all(&body);
    }
}

/// Text that is put into a message.
const DAMAGE: &str =
    "null|\\{\\}|\\[\\[|\"|,|:|-?[0-9]{1,25}|1e999|\\\\ud800|true|\\PC{0,3}|.{0,3}";
