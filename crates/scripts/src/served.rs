//! The far end of `script.invoke`: a runner behind the handler of tool calls.
//!
//! A script is asked for in words of its own, and is served as a call of one tool, [`RunScript`]. So
//! deadlines, cancels, fair turns, the journal, redelivery and draining are those of every tool.

use std::{sync::Arc, time::Duration};

use futures_util::future::BoxFuture;
use rockbot_contracts::{
    ContentBlock, Envelope, RoutingKey, SessionId, ToolInvokeRequest, ToolInvokeResponse,
    json::Limits,
    message::DecodeError,
    script::{ScriptInvokeRequest, ScriptInvokeResponse, ScriptLimit},
    topology::is_script_reply,
};
use rockbot_tool_rpc::Conversation;
use rockbot_tools::{Tool, ToolContext, ToolFailure, ToolRegistration, ToolResult, ToolSource};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::{
    runner::{Script, ScriptOutcome, ScriptRunner},
    tool::{hints, script_of},
};

/// The name of the tool that stands for all scripts, in the registry and in the log.
const RUN_SCRIPT: &str = "run_script";

/// The words of `script.invoke` and `script.result`.
#[derive(Debug, Clone, Copy)]
pub struct ScriptConversation;

/// What a request carries beside its ids.
#[derive(Serialize, Deserialize)]
struct Wanted {
    script: String,
    input: Option<String>,
    timeout_seconds: u32,
    packages: Vec<String>,
}

/// What a result says beside what was printed, which is its content.
#[derive(Serialize, Deserialize)]
struct Facts {
    stderr: String,
    exit_code: i32,
    elapsed_ms: u64,
    ended_by: Option<ScriptLimit>,
    isolation: String,
    not_kept_from: Vec<String>,
}

impl Conversation for ScriptConversation {
    fn read(&self, request: &Envelope) -> Result<ToolInvokeRequest, DecodeError> {
        let request: ScriptInvokeRequest = request.decode(Limits::default())?;
        let wanted = Wanted {
            script: request.script,
            input: request.input_data,
            timeout_seconds: request.timeout_seconds,
            packages: request.pip_packages,
        };
        let malformed = |error: &dyn std::fmt::Display| DecodeError::Malformed {
            expected: "ScriptInvokeRequest",
            reason: error.to_string(),
        };
        let session = SessionId::new(request.tool_call_id.as_str());
        Ok(ToolInvokeRequest {
            tool_name: RUN_SCRIPT.to_owned(),
            arguments: serde_json::to_string(&wanted).map_err(|error| malformed(&error))?,
            session_id: match request.session_id {
                Some(session) => session,
                None => session.map_err(|error| malformed(&error))?,
            },
            tool_call_id: request.tool_call_id,
        })
    }

    fn write(&self, result: ToolInvokeResponse) -> Envelope {
        let ToolInvokeResponse { tool_call_id, content, details, .. } = result;
        let facts = details.and_then(|details| serde_json::from_value(details).ok());
        // Only `RunScript` makes results here, and it says them all.
        let facts = facts.unwrap_or(Facts {
            stderr: String::new(),
            exit_code: 1,
            elapsed_ms: 0,
            ended_by: None,
            isolation: String::new(),
            not_kept_from: Vec::new(),
        });
        Envelope::of(&ScriptInvokeResponse {
            tool_call_id,
            output: content,
            stderr: facts.stderr,
            exit_code: facts.exit_code,
            elapsed_ms: facts.elapsed_ms,
            ended_by: facts.ended_by,
            isolation: Some(facts.isolation),
            not_kept_from: facts.not_kept_from,
        })
    }

    fn answers_at(&self, key: &RoutingKey) -> bool {
        is_script_reply(key)
    }

    fn default_reply(&self) -> Option<RoutingKey> {
        None
    }
}

/// The one tool behind `script.invoke`.
pub struct RunScript {
    registration: ToolRegistration,
    runner: Arc<dyn ScriptRunner>,
}

impl RunScript {
    /// Serves scripts with a runner. `contained` says whether they reach nothing but themselves: then
    /// a lost one is run again.
    #[must_use]
    pub fn new(runner: Arc<dyn ScriptRunner>, contained: bool) -> Self {
        let hints = hints(contained);
        let registration = ToolRegistration {
            name: RUN_SCRIPT.to_owned(),
            label: None,
            description: "Run a script that came in on script.invoke.".to_owned(),
            tool_description: None,
            parameters: json!({"type": "object"}),
            source: ToolSource::Script,
            hints,
            timeout_ms: None,
        };
        Self { registration, runner }
    }
}

impl Tool for RunScript {
    fn registration(&self) -> &ToolRegistration {
        &self.registration
    }

    /// # Cancellation
    /// As [`ScriptRunner::run`].
    fn call<'a>(
        &'a self,
        arguments: Value,
        context: &'a ToolContext,
    ) -> BoxFuture<'a, Result<ToolResult, ToolFailure>> {
        Box::pin(async move {
            let script = wanted(arguments)?;
            self.runner.run(&script, context).await.map(result)
        })
    }

    fn keeps_deadline(&self) -> bool {
        true
    }
}

impl std::fmt::Debug for RunScript {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("RunScript").finish_non_exhaustive()
    }
}

fn wanted(arguments: Value) -> Result<Script, ToolFailure> {
    let Wanted { script, input, timeout_seconds, packages } = serde_json::from_value(arguments)
        .map_err(|error| ToolFailure::invalid(error.to_string()))?;
    script_of(script, input, Duration::from_secs(timeout_seconds.into()), &packages)
        .map_err(|error| ToolFailure::invalid(error.to_string()))
}

fn result(outcome: ScriptOutcome) -> ToolResult {
    let facts = Facts {
        stderr: outcome.stderr,
        exit_code: outcome.exit_code,
        elapsed_ms: u64::try_from(outcome.elapsed.as_millis()).unwrap_or(u64::MAX),
        ended_by: outcome.ended_by,
        isolation: outcome.isolation.by,
        not_kept_from: outcome.isolation.missing,
    };
    ToolResult {
        content: vec![ContentBlock::Text { text: outcome.stdout }],
        details: serde_json::to_value(facts).ok(),
        ..ToolResult::default()
    }
}
