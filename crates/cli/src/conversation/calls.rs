//! The last calls of a conversation, for `/last`.

use std::collections::VecDeque;

use rockbot_contracts::{CallStages, ReplyBody, ToolCallId};

use crate::{call_view, render};

/// Number of kept calls. Each has up to 32 KiB of arguments and results.
const MAX_CALLS: usize = 32;

/// A call, with its result when it has ended.
#[derive(Debug)]
struct LoggedCall {
    id: ToolCallId,
    tool_name: String,
    arguments: String,
    arguments_left_out: u64,
    /// The line of its end.
    end: Option<String>,
    stages: Option<CallStages>,
    result: Option<String>,
    result_left_out: u64,
}

/// The last calls, oldest first.
#[derive(Debug, Default)]
pub(crate) struct CallLog(VecDeque<LoggedCall>);

impl CallLog {
    /// Records the start or the end of a call.
    pub(super) fn record(&mut self, body: &ReplyBody) {
        match body {
            ReplyBody::ToolStarted { tool_call_id, tool_name, arguments, arguments_left_out } => {
                if self.0.len() == MAX_CALLS {
                    self.0.pop_front();
                }
                self.0.push_back(LoggedCall {
                    id: tool_call_id.clone(),
                    tool_name: tool_name.clone(),
                    arguments: arguments.clone(),
                    arguments_left_out: *arguments_left_out,
                    end: None,
                    stages: None,
                    result: None,
                    result_left_out: 0,
                });
            }
            ReplyBody::ToolFinished { tool_call_id, stages, result, result_left_out, .. } => {
                let Some(call) = self.0.iter_mut().rfind(|call| call.id == *tool_call_id) else {
                    return;
                };
                call.end = render::call_line(body);
                call.stages = *stages;
                call.result.clone_from(result);
                call.result_left_out = *result_left_out;
            }
            _ => {}
        }
    }

    /// Formats the last `number` calls with their arguments and results; `None` without calls.
    pub(crate) fn describe_last(&self, number: usize) -> Option<String> {
        let calls: Vec<_> = self.0.iter().rev().take(number).collect();
        let texts: Vec<_> = calls.into_iter().rev().map(LoggedCall::describe).collect();
        (!texts.is_empty()).then(|| texts.join("\n"))
    }
}

impl LoggedCall {
    fn describe(&self) -> String {
        let mut lines = vec![format!("  → {}", render::visible_line(&self.tool_name))];
        if self.arguments != "{}" {
            lines.push(call_view::arguments(&self.arguments, self.arguments_left_out));
        }
        lines.push(self.end.clone().unwrap_or_else(|| render::dim("  (has not ended)")));
        if let Some(stages) = &self.stages {
            lines.push(render::dim(&format!("    {}", render::stages(stages))));
        }
        if let Some(result) = &self.result {
            lines.push(call_view::result(result, self.result_left_out));
        }
        lines.join("\n")
    }
}

#[cfg(test)]
mod tests {
    use rockbot_contracts::Executed;

    use super::*;

    fn started(id: &ToolCallId, tool_name: &str) -> ReplyBody {
        ReplyBody::ToolStarted {
            tool_call_id: id.clone(),
            tool_name: tool_name.to_owned(),
            arguments: r#"{"path":"a"}"#.to_owned(),
            arguments_left_out: 0,
        }
    }

    #[test]
    fn last_calls_are_described_with_results() {
        let mut log = CallLog::default();
        assert_eq!(log.describe_last(1), None);
        for number in 0..40 {
            log.record(&started(&ToolCallId::generate(), &format!("tool_{number}")));
        }
        assert_eq!(log.0.len(), MAX_CALLS);
        let id = ToolCallId::generate();
        log.record(&started(&id, "read_file"));
        log.record(&ReplyBody::ToolFinished {
            tool_call_id: id,
            tool_name: "read_file".to_owned(),
            ran_on: None,
            elapsed_us: 1,
            bytes: 4,
            error: None,
            executed: Executed::Yes,
            child_loop_id: None,
            stages: Some(CallStages { queue_ms: Some(3), start_ms: 0, run_ms: 1200 }),
            result: Some("milk\u{1b}[2J".to_owned()),
            result_left_out: 9,
        });
        let text = log.describe_last(2).unwrap();
        assert!(text.contains("tool_39") && text.contains("(has not ended)"), "{text}");
        assert!(text.contains("path: a") && text.contains("│ milk\\u{1b}[2J"), "{text}");
        assert!(text.contains("queue 3.0 ms, start < 1 ms, run 1.2 s"), "{text}");
        assert!(text.contains("… 9 more bytes") && !text.contains("tool_38"), "{text}");
    }
}
