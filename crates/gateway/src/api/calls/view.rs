//! Calls as responses show them.

use std::time::{Duration, SystemTime};

use rockbot_monitor::{Call, State, Tally};
use serde::Serialize;
use utoipa::ToSchema;

use crate::{api::schema::StagesView, clock::unix_ms};

/// A call.
#[derive(Debug, Clone, PartialEq, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct CallView {
    /// Its id.
    id: String,
    /// The tool.
    #[serde(skip_serializing_if = "Option::is_none")]
    tool: Option<String>,
    /// The server of an MCP tool.
    #[serde(skip_serializing_if = "Option::is_none")]
    server: Option<String>,
    /// The calling agent.
    #[serde(skip_serializing_if = "Option::is_none")]
    agent: Option<String>,
    /// The trace id.
    #[serde(skip_serializing_if = "Option::is_none")]
    trace: Option<String>,
    /// The conversation.
    #[serde(skip_serializing_if = "Option::is_none")]
    session: Option<String>,
    /// The broker user of the caller.
    #[serde(skip_serializing_if = "Option::is_none")]
    user: Option<String>,
    /// `requested`, `running`, `cancelling`, `no_reply`, `ok`, `tool_error`, or an error code.
    state: String,
    /// A reply may still arrive.
    live: bool,
    /// It ended without success.
    failed: bool,
    /// `no`, `yes` or `unknown`, once the handler has said it.
    #[serde(skip_serializing_if = "Option::is_none")]
    executed: Option<String>,
    /// Arrival of its first message in Unix milliseconds.
    first_ms: u64,
    /// Arrival of its request in Unix milliseconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    requested_ms: Option<u64>,
    /// Arrival of its reply in Unix milliseconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    replied_ms: Option<u64>,
    /// Time from request to reply.
    #[serde(skip_serializing_if = "Option::is_none")]
    latency_ms: Option<f64>,
    /// Run time that the handler reports.
    #[serde(skip_serializing_if = "Option::is_none")]
    run_ms: Option<u64>,
    /// Latency without run time: waiting and transport.
    #[serde(skip_serializing_if = "Option::is_none")]
    waited_ms: Option<f64>,
    /// Durations of its stages that the handler reports.
    #[serde(skip_serializing_if = "Option::is_none")]
    stages: Option<StagesView>,
    /// The handler that runs or ran it.
    #[serde(skip_serializing_if = "Option::is_none")]
    handler: Option<String>,
    /// Number of the attempt; above 1 for a retry.
    #[serde(skip_serializing_if = "Option::is_none")]
    attempt: Option<u32>,
    /// Number of its progress messages.
    progress: u64,
    /// Size of the request.
    #[serde(skip_serializing_if = "Option::is_none")]
    bytes_in: Option<u64>,
    /// Size of the reply.
    #[serde(skip_serializing_if = "Option::is_none")]
    bytes_out: Option<u64>,
}

impl CallView {
    /// Describes a call of a watch that started at `start`.
    pub(super) fn new(call: &Call, start: SystemTime) -> Self {
        let state = call.state();
        let request = call.request.as_ref();
        let reply = call.reply.as_ref();
        let run_time = reply.and_then(|reply| reply.value.run_time);
        let latency = call.latency();
        let waited = latency.zip(run_time).map(|(latency, run)| latency.saturating_sub(run));
        Self {
            id: call.id.to_string(),
            tool: call.tool.clone(),
            server: call.server().map(str::to_owned),
            agent: call.agent.clone(),
            trace: call.trace.clone(),
            session: request.and_then(|request| request.value.session.clone()),
            user: request.and_then(|request| request.value.user.clone()),
            state: state.as_str().to_owned(),
            live: state.is_live(),
            failed: state.is_failed(),
            executed: executed(call),
            first_ms: unix_ms(start + call.first),
            requested_ms: request.map(|request| unix_ms(start + request.at)),
            replied_ms: reply.map(|reply| unix_ms(start + reply.at)),
            latency_ms: latency.map(millis),
            run_ms: run_time.map(whole_millis),
            waited_ms: waited.map(millis),
            stages: reply.and_then(|reply| reply.value.stages).map(StagesView::from),
            handler: call.handler().map(str::to_owned),
            attempt: request.map(|request| request.value.attempt),
            progress: call.progress.as_ref().map_or(0, |progress| progress.count),
            bytes_in: request.map(|request| request.bytes as u64),
            bytes_out: reply.map(|reply| reply.bytes as u64),
        }
    }

    /// Returns the approximate size as JSON, in bytes.
    pub(super) fn size(&self) -> usize {
        let texts =
            [&self.tool, &self.server, &self.agent, &self.session, &self.user, &self.handler];
        512 + texts.into_iter().flatten().map(String::len).sum::<usize>()
    }
}

/// Returns the execution state of a call: that of its reply, or that it runs.
fn executed(call: &Call) -> Option<String> {
    if let Some(reply) = &call.reply {
        return Some(reply.value.executed.to_string());
    }
    // A handler reports progress of running tools only.
    (call.state() == State::Running).then(|| "yes".to_owned())
}

/// The request of a call.
#[derive(Debug, Clone, PartialEq, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct RequestView {
    /// Its arrival in Unix milliseconds.
    at_ms: u64,
    /// Its routing key.
    key: String,
    /// The address of the reply.
    #[serde(skip_serializing_if = "Option::is_none")]
    reply_to: Option<String>,
    /// The caller's time budget.
    #[serde(skip_serializing_if = "Option::is_none")]
    budget_ms: Option<u64>,
    /// Number of the attempt.
    attempt: u32,
    /// Size of its body.
    bytes: u64,
}

/// The progress messages of a call.
#[derive(Debug, Clone, PartialEq, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct ProgressView {
    /// Arrival of the first in Unix milliseconds.
    first_ms: u64,
    /// Arrival of the last in Unix milliseconds.
    last_ms: u64,
    /// Their number.
    count: u64,
    /// The sender of the last.
    #[serde(skip_serializing_if = "Option::is_none")]
    handler: Option<String>,
}

/// The cancel of a call.
#[derive(Debug, Clone, PartialEq, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct CancelView {
    /// Its arrival in Unix milliseconds.
    at_ms: u64,
}

/// The reply of a call.
#[derive(Debug, Clone, PartialEq, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct ReplyView {
    /// Its arrival in Unix milliseconds.
    at_ms: u64,
    /// `ok`, `tool_error`, or an error code.
    status: String,
    /// `no`, `yes` or `unknown`.
    executed: String,
    /// The handler that sent it.
    #[serde(skip_serializing_if = "Option::is_none")]
    handler: Option<String>,
    /// Run time that the handler reports.
    #[serde(skip_serializing_if = "Option::is_none")]
    run_ms: Option<u64>,
    /// Size of its body.
    bytes: u64,
}

/// Calls, newest first.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct CallPage {
    /// The gateway watches since then, in Unix milliseconds.
    pub(super) since_ms: u64,
    /// The newest calls that match.
    pub(super) calls: Vec<CallView>,
    /// Numbers of all calls.
    pub(super) tally: TallyView,
    /// Number of kept calls that match.
    pub(super) matched: usize,
    /// Limits of the watch, for people.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) notice: Option<String>,
}

/// One call with its messages, as observed.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct CallDetails {
    /// The call.
    call: CallView,
    /// Its request.
    #[serde(skip_serializing_if = "Option::is_none")]
    request: Option<RequestView>,
    /// Its progress.
    #[serde(skip_serializing_if = "Option::is_none")]
    progress: Option<ProgressView>,
    /// Its cancel.
    #[serde(skip_serializing_if = "Option::is_none")]
    cancel: Option<CancelView>,
    /// Its reply.
    #[serde(skip_serializing_if = "Option::is_none")]
    reply: Option<ReplyView>,
    /// Its content is kept.
    content_kept: bool,
}

impl CallDetails {
    /// Describes a call of a watch that started at `start`.
    pub(super) fn new(call: &Call, start: SystemTime, content_kept: bool) -> Self {
        let at = |time: Duration| unix_ms(start + time);
        Self {
            call: CallView::new(call, start),
            request: call.request.as_ref().map(|request| RequestView {
                at_ms: at(request.at),
                key: request.value.key.clone(),
                reply_to: request.value.reply_to.clone(),
                budget_ms: request.value.budget.map(whole_millis),
                attempt: request.value.attempt,
                bytes: request.bytes as u64,
            }),
            progress: call.progress.as_ref().map(|progress| ProgressView {
                first_ms: at(progress.first),
                last_ms: at(progress.last.at),
                count: progress.count,
                handler: progress.last.value.handler.clone(),
            }),
            cancel: call.cancel.as_ref().map(|cancel| CancelView { at_ms: at(cancel.at) }),
            reply: call.reply.as_ref().map(|reply| ReplyView {
                at_ms: at(reply.at),
                status: reply.value.status.as_str().to_owned(),
                executed: reply.value.executed.to_string(),
                handler: reply.value.handler.clone(),
                run_ms: reply.value.run_time.map(whole_millis),
                bytes: reply.bytes as u64,
            }),
            content_kept,
        }
    }
}

/// Numbers of calls since the watch started.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct TallyView {
    /// Calls.
    calls: u64,
    /// Calls with a reply.
    replied: u64,
    /// Calls with a reply that is no success.
    failed: u64,
}

impl From<Tally> for TallyView {
    fn from(tally: Tally) -> Self {
        let Tally { calls, replied, failed } = tally;
        Self { calls, replied, failed }
    }
}

fn millis(time: Duration) -> f64 {
    time.as_secs_f64() * 1e3
}

fn whole_millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}
