//! Run of one call: its checks, its tool, and its outcome.

use std::{sync::Arc, time::Instant};

use rockbot_contracts::{Envelope, Executed, ToolInvokeRequest};
use rockbot_tools::{
    context::{ApprovalTime, ToolContext, UserInput},
    failure::ToolFailure,
    layers::ToolCall,
    registry::RegisteredTool,
    scope::ToolScope,
};
use tokio_util::sync::CancellationToken;

use super::{
    MAX_BUDGET, ToolInvokeHandler,
    call_description::CallDescription,
    journal::{CallJournal, JournalEntry},
    preflight::{NotReady, Preflight, PreflightDeps, ReadyCall},
    quarantine::Inbound,
    reply::{CallOutcome, Caller},
    unstarted::UnstartedCall,
};

impl ToolInvokeHandler {
    /// Runs a call. Returns `None` if it did not start and the bus redelivers its request.
    pub(super) async fn run(
        &self,
        inbound: Inbound<'_>,
        request: &ToolInvokeRequest,
        tool: Option<&RegisteredTool>,
        caller: &Caller,
        cancellation: CancellationToken,
    ) -> Option<Box<CallOutcome>> {
        let mut context =
            self.context(inbound.envelope(), request, tool, caller, cancellation.clone());
        let ready = Box::pin(self.prepare(inbound, request, tool, &context)).await;
        let ReadyCall { permit, entry, may_have_run } = match ready {
            Ok(ready) => ready,
            Err(outcome) => return outcome,
        };
        context.may_have_run = may_have_run;
        let arguments = request.arguments.as_str().into();
        let since = Instant::now();
        let result = self.executor.execute(ToolCall { context, arguments }).await;
        drop(permit);
        let elapsed = since.elapsed();
        let result = match result {
            Err(failure) if failure.executed() == Executed::No && may_have_run => {
                Err(failure.into_possibly_executed())
            }
            Err(failure) if failure.executed() == Executed::No => {
                let context = self.context(inbound.envelope(), request, tool, caller, cancellation);
                let resolved = self.resolve(inbound, request, tool, context, failure, entry);
                return Some(Box::pin(resolved).await);
            }
            result => result,
        };
        Some(Box::new(CallOutcome::Finished { result, elapsed, entry }))
    }

    /// Checks whether a call may start. If not, returns its outcome, or `None` if the bus redelivers its
    /// request.
    async fn prepare(
        &self,
        inbound: Inbound<'_>,
        request: &ToolInvokeRequest,
        tool: Option<&RegisteredTool>,
        context: &ToolContext,
    ) -> Result<ReadyCall, Option<Box<CallOutcome>>> {
        let mut call = CallDescription::new(inbound, request, tool, context);
        if call.maybe_redelivered
            && !call.idempotent
            && let Some(can_continue) = &self.continuation
        {
            // Its tool continues the run of the lost handler: it does not run twice.
            call.idempotent = can_continue(&request.tool_call_id).await;
        }
        let deps = PreflightDeps {
            transfers: &self.transfers,
            admission: &self.admission,
            journal: self.journal_of(tool),
        };
        let checked = if tool.is_none() && inbound.envelope().mcp_server.is_some() {
            // The registry may have a different tool with the name that the server uses.
            let name = request.tool_name.chars().take(128).collect();
            Err(NotReady::Unstarted(ToolFailure::NotFound { name }))
        } else {
            Preflight::new(inbound, deps, tool, context, &call).check().await
        };
        match checked {
            Ok(ready) => Ok(ready),
            // The bus gives the call to another handler. A start that may be recorded here is completed.
            Err(NotReady::Unstarted(_)) if inbound.is_lost() && !call.was_start_attempted() => {
                Err(None)
            }
            Err(NotReady::Unstarted(failure)) => {
                let unstarted = self.unstarted(request, tool, &call, context);
                Err(Some(unstarted.resolve(failure, None).await))
            }
            Err(NotReady::Decided(outcome)) => Err(Some(outcome)),
            Err(NotReady::Lost) => Err(None),
        }
    }

    /// Returns the outcome of a call that was refused after its start was recorded.
    async fn resolve(
        &self,
        inbound: Inbound<'_>,
        request: &ToolInvokeRequest,
        tool: Option<&RegisteredTool>,
        context: ToolContext,
        failure: ToolFailure,
        entry: Option<Box<JournalEntry>>,
    ) -> Box<CallOutcome> {
        let call = CallDescription::new(inbound, request, tool, &context);
        self.unstarted(request, tool, &call, &context).resolve(failure, entry).await
    }

    /// Returns the outcome of a call whose id another call has that this process runs.
    pub(super) async fn conflict(
        &self,
        inbound: Inbound<'_>,
        request: &ToolInvokeRequest,
        tool: Option<&RegisteredTool>,
        caller: &Caller,
    ) -> Box<CallOutcome> {
        let unused = CancellationToken::new();
        let context = self.context(inbound.envelope(), request, tool, caller, unused);
        let call = CallDescription::new(inbound, request, tool, &context);
        self.unstarted(request, tool, &call, &context).resolve_conflict().await
    }

    fn unstarted<'a>(
        &'a self,
        request: &'a ToolInvokeRequest,
        tool: Option<&RegisteredTool>,
        call: &'a CallDescription<'a>,
        context: &'a ToolContext,
    ) -> UnstartedCall<'a> {
        UnstartedCall {
            journal: self.journal_of(tool),
            request,
            call,
            context,
            is_unknown_tool: tool.is_none(),
        }
    }

    /// Returns the journal for calls of a tool; `None` for a read-only one. Another handler may have a
    /// tool that this one does not know.
    pub(super) fn journal_of(&self, tool: Option<&RegisteredTool>) -> Option<&CallJournal> {
        let read_only = tool.is_some_and(|tool| tool.registration().hints.read_only);
        self.journal.as_deref().filter(|_| !read_only)
    }

    /// Returns the port to the user of a call whose caller passes requests for input on.
    fn user_input(
        &self,
        envelope: &Envelope,
        request: &ToolInvokeRequest,
        caller: &Caller,
    ) -> Option<Arc<dyn UserInput>> {
        let requester = self.input.as_ref().filter(|_| envelope.accepts_input)?;
        requester.for_call(&request.tool_call_id, &caller.agent, &caller.reply_to)
    }

    fn context(
        &self,
        envelope: &Envelope,
        request: &ToolInvokeRequest,
        tool: Option<&RegisteredTool>,
        caller: &Caller,
        cancellation: CancellationToken,
    ) -> ToolContext {
        // An MCP server has its own names for its tools.
        let resolved = tool.filter(|_| envelope.mcp_server.is_some());
        let tool_name = resolved.map_or(&*request.tool_name, |tool| &tool.registration().name);
        let budget =
            envelope.remaining().map_or(ToolContext::DEFAULT_TIMEOUT, |left| left.min(MAX_BUDGET));
        ToolContext {
            tool_call_id: request.tool_call_id.clone(),
            tool_name: tool_name.into(),
            session_id: request.session_id.clone(),
            // The caller comes from the envelope, never from the arguments.
            agent: caller.agent.clone(),
            deadline: tokio::time::Instant::now() + budget,
            cancellation,
            may_have_run: false,
            attempt: envelope.attempt,
            has_client_key: envelope.has_client_key,
            handover: CancellationToken::new(),
            updates: self.progress.sink(request, &caller.reply_to, &self.source),
            // The caller's process has checked which tools the caller may use.
            scope: ToolScope::everything(),
            step: None,
            awaits_work: false,
            // The caller's process has booked the call.
            budget: None,
            input: self.user_input(envelope, request, caller),
            approval_time: ApprovalTime::default(),
        }
    }
}
