//! The handler's side of `script.invoke`: a script runner as a tool.
//!
//! Script requests have their own message types and are processed as calls of one tool, [`RunScript`], so
//! that deadlines, cancellation, fair scheduling, journal, redelivery and draining apply to scripts.

use std::{sync::Arc, time::Duration};

use futures_util::future::BoxFuture;
use rockbot_contracts::{
    ContentBlock, Envelope, RoutingKey, SessionId, ToolInvokeRequest, ToolInvokeResponse,
    json::Limits,
    message::DecodeError,
    script::{ScriptInvokeRequest, ScriptInvokeResponse, ScriptLimit},
    topology::is_script_reply,
};
use rockbot_tool_rpc::CallProtocol;
use rockbot_tools::{Tool, ToolContext, ToolFailure, ToolRegistration, ToolResult, ToolSource};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::{
    runner::{Script, ScriptOutcome, ScriptRunner},
    tool::{build_script, hints},
};

/// The name of the tool behind all scripts, in the registry and in the log.
const RUN_SCRIPT: &str = "run_script";

/// The messages of `script.invoke` and `script.result`.
#[derive(Debug, Clone, Copy)]
pub struct ScriptProtocol;

/// The content of a request as tool arguments.
#[derive(Serialize, Deserialize)]
struct ScriptArguments {
    script: String,
    input: Option<String>,
    timeout_seconds: u32,
    packages: Vec<String>,
}

/// The content of a result beside the output.
#[derive(Serialize, Deserialize)]
struct ScriptDetails {
    stderr: String,
    exit_code: i32,
    elapsed_ms: u64,
    ended_by: Option<ScriptLimit>,
    isolation: String,
    /// The JSON name is kept: the journal holds results under it.
    #[serde(rename = "not_kept_from")]
    isolation_gaps: Vec<String>,
}

impl CallProtocol for ScriptProtocol {
    fn decode_request(&self, request: &Envelope) -> Result<ToolInvokeRequest, DecodeError> {
        let request: ScriptInvokeRequest = request.decode(Limits::default())?;
        let arguments = ScriptArguments {
            script: request.script,
            input: request.input_data,
            timeout_seconds: request.timeout_seconds,
            packages: request.pip_packages,
        };
        let malformed = |error: &dyn std::fmt::Display| DecodeError::Malformed {
            expected: "ScriptInvokeRequest",
            reason: error.to_string(),
        };
        let session_from_call = SessionId::new(request.tool_call_id.as_str());
        Ok(ToolInvokeRequest {
            tool_name: RUN_SCRIPT.to_owned(),
            arguments: serde_json::to_string(&arguments).map_err(|error| malformed(&error))?,
            session_id: match request.session_id {
                Some(session) => session,
                None => session_from_call.map_err(|error| malformed(&error))?,
            },
            tool_call_id: request.tool_call_id,
        })
    }

    fn encode_result(&self, result: ToolInvokeResponse) -> Envelope {
        let ToolInvokeResponse { tool_call_id, content, details, .. } = result;
        let details = details.and_then(|details| serde_json::from_value(details).ok());
        // All results come from `RunScript`, which always sets them.
        let details = details.unwrap_or(ScriptDetails {
            stderr: String::new(),
            exit_code: 1,
            elapsed_ms: 0,
            ended_by: None,
            isolation: String::new(),
            isolation_gaps: Vec::new(),
        });
        Envelope::from_payload(&ScriptInvokeResponse {
            tool_call_id,
            output: content,
            stderr: details.stderr,
            exit_code: details.exit_code,
            elapsed_ms: details.elapsed_ms,
            ended_by: details.ended_by,
            isolation: Some(details.isolation).filter(|mechanism| !mechanism.is_empty()),
            isolation_gaps: details.isolation_gaps,
        })
    }

    fn accepts_reply_key(&self, key: &RoutingKey) -> bool {
        is_script_reply(key)
    }

    fn default_reply_key(&self) -> Option<RoutingKey> {
        None
    }
}

/// The only tool behind `script.invoke`.
pub struct RunScript {
    registration: ToolRegistration,
    runner: Arc<dyn ScriptRunner>,
}

impl RunScript {
    /// Creates the tool with a runner. If `isolated`, scripts can't reach anything outside their sandbox,
    /// and a lost one is retried.
    #[must_use]
    pub fn new(runner: Arc<dyn ScriptRunner>, isolated: bool) -> Self {
        let hints = hints(isolated);
        let registration = ToolRegistration {
            name: RUN_SCRIPT.to_owned(),
            label: None,
            description: "Run a script received on script.invoke.".to_owned(),
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
            let script = parse_arguments(arguments)?;
            self.runner.run(&script, context).await.map(to_tool_result)
        })
    }

    fn enforces_own_deadline(&self) -> bool {
        true
    }
}

impl std::fmt::Debug for RunScript {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("RunScript").finish_non_exhaustive()
    }
}

fn parse_arguments(arguments: Value) -> Result<Script, ToolFailure> {
    let ScriptArguments { script, input, timeout_seconds, packages } =
        rockbot_tools::parse_arguments(arguments)?;
    build_script(script, input, Duration::from_secs(timeout_seconds.into()), &packages)
        .map_err(|error| ToolFailure::invalid(error.to_string()))
}

fn to_tool_result(outcome: ScriptOutcome) -> ToolResult {
    let details = ScriptDetails {
        stderr: outcome.stderr,
        exit_code: outcome.exit_code,
        elapsed_ms: u64::try_from(outcome.elapsed.as_millis()).unwrap_or(u64::MAX),
        ended_by: outcome.ended_by,
        isolation: outcome.isolation.mechanism,
        isolation_gaps: outcome.isolation.gaps,
    };
    ToolResult {
        content: vec![ContentBlock::Text { text: outcome.stdout }],
        details: serde_json::to_value(details).ok(),
        ..ToolResult::default()
    }
}
