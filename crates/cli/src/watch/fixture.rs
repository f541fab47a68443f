//! Messages about calls, for tests.

use std::time::Duration;

use rockbot_contracts::{CallStages, Executed, ToolCallId};
use rockbot_monitor::{
    CallMessage, MessageKind, Status,
    message::{ProgressInfo, ReplyInfo, RequestInfo},
};

pub(super) fn message(id: &str, kind: MessageKind) -> CallMessage {
    let tool = (!matches!(kind, MessageKind::Cancel { .. })).then(|| "read_file".to_owned());
    let call = ToolCallId::new(id).unwrap();
    CallMessage { call, tool, agent: Some("assistant".to_owned()), trace: None, bytes: 100, kind }
}

pub(super) fn request(id: &str) -> CallMessage {
    let request = RequestInfo {
        key: "tool.invoke".to_owned(),
        user: None,
        reply_to: None,
        server: None,
        session: Some("s".to_owned()),
        budget: Some(Duration::from_secs(5)),
        attempt: 1,
        arguments: None,
    };
    message(id, MessageKind::Request(request))
}

pub(super) fn progress(id: &str, sequence: u64) -> CallMessage {
    let handler = Some("tool-handler/h1".to_owned());
    message(id, MessageKind::Progress(ProgressInfo { sequence, handler, text: None }))
}

pub(super) fn reply(id: &str, status: Status) -> CallMessage {
    let reply = ReplyInfo {
        status,
        executed: Executed::Yes,
        handler: Some("tool-handler/h1".to_owned()),
        run_time: Some(Duration::from_millis(7)),
        stages: Some(CallStages { queue_ms: Some(4), start_ms: 0, run_ms: 7 }),
        result: None,
    };
    message(id, MessageKind::Reply(reply))
}
