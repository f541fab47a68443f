//! Options of a handler.

use std::sync::Arc;

use futures_util::future::BoxFuture;
use rockbot_contracts::{ToolCallId, identity::CallerPolicy};

use super::{
    admission::AdmissionLimits,
    journal::CallJournal,
    protocol::{CallProtocol, ToolCallProtocol},
};
use crate::input_requester::InputRequester;

/// Returns the registry's name of an MCP server's tool, from the server's name, which is compared
/// case-insensitively, and the tool's name at the server. Must not block.
pub type ToolResolver = Arc<dyn Fn(&str, &str) -> Option<String> + Send + Sync>;

/// Returns whether a call that another handler started can be continued by this one, so that it does not
/// run twice. Takes a few seconds at most.
pub type ContinuationCheck = Arc<dyn Fn(&ToolCallId) -> BoxFuture<'static, bool> + Send + Sync>;

/// Options of a [`ToolInvokeHandler`](super::ToolInvokeHandler).
#[derive(Clone)]
pub struct InvokeOptions {
    /// Callers whose requests are accepted.
    pub callers: CallerPolicy,
    /// Broker user of this handler and of the others that consume the same work queue; `None` if the
    /// broker has no users. Requests that these handlers forward to each other carry it.
    pub user: Option<Arc<str>>,
    /// Message types of requests and results. The default is those of `tool.invoke`.
    pub protocol: Arc<dyn CallProtocol>,
    /// Finds the tools of MCP servers. If `None`, a request for one fails with `tool_not_found`.
    pub tool_resolver: Option<ToolResolver>,
    /// Finds calls of lost handlers that can be continued. If `None`, only calls of tools that may run
    /// again are.
    pub continuation: Option<ContinuationCheck>,
    /// Bounds on the calls that run at once, in total and per concurrency group of tools.
    pub admission: AdmissionLimits,
    /// Maximum number of unsettled requests beyond the running calls. Fair scheduling chooses among them,
    /// and calls of a busy tool wait there; other handlers can't consume them. See
    /// [`InvokeOptions::with_backlog`].
    pub backlog: u16,
    /// Journal of calls. If `None`, a call that may have started before and is not idempotent fails with
    /// `outcome_unknown`.
    pub journal: Option<Arc<CallJournal>>,
    /// Passes requests of tools for input on to the callers' users. If `None`, no tool gets input.
    pub input: Option<Arc<InputRequester>>,
}

impl InvokeOptions {
    /// Returns options for `concurrency` calls at once, a backlog of sixteen times as many, any caller,
    /// and no journal.
    #[must_use]
    pub fn new(concurrency: u16) -> Self {
        let admission = AdmissionLimits::new(concurrency.into());
        let options = Self {
            callers: CallerPolicy::Any,
            user: None,
            protocol: Arc::new(ToolCallProtocol),
            tool_resolver: None,
            continuation: None,
            admission,
            backlog: 0,
            journal: None,
            input: None,
        };
        options.with_backlog(concurrency.saturating_mul(16))
    }

    /// Sets the number of waiting calls. They are divided among tools and servers like the running calls, and
    /// a tool that is in no shared concurrency group gets at most half of them; its further calls fail with
    /// `overloaded`.
    #[must_use]
    pub fn with_backlog(mut self, backlog: u16) -> Self {
        self.backlog = backlog;
        self.admission.waiting = backlog.into();
        self.admission.per_tool.waiting = usize::from(backlog).div_ceil(2);
        self
    }

    /// Sets the journal.
    #[must_use]
    pub fn with_journal(mut self, journal: Arc<CallJournal>) -> Self {
        self.journal = Some(journal);
        self
    }

    /// Sets the check for calls that can be continued.
    #[must_use]
    pub fn with_continuation(mut self, continuation: ContinuationCheck) -> Self {
        self.continuation = Some(continuation);
        self
    }

    /// Sets the requester of input from users.
    #[must_use]
    pub fn with_input(mut self, input: Arc<InputRequester>) -> Self {
        self.input = Some(input);
        self
    }

    /// Sets the resolver of MCP servers' tools.
    #[must_use]
    pub fn with_tool_resolver(mut self, tool_resolver: ToolResolver) -> Self {
        self.tool_resolver = Some(tool_resolver);
        self
    }

    /// Sets the message types of requests and results.
    #[must_use]
    pub fn with_protocol(mut self, protocol: impl CallProtocol + 'static) -> Self {
        self.protocol = Arc::new(protocol);
        self
    }

    /// Returns the maximum number of unsettled requests.
    pub(super) fn prefetch(&self) -> u16 {
        let running = u16::try_from(self.admission.running).unwrap_or(u16::MAX);
        running.saturating_add(self.backlog).max(1)
    }
}

impl std::fmt::Debug for InvokeOptions {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("InvokeOptions")
            .field("callers", &self.callers)
            .field("tool_resolver", &self.tool_resolver.is_some())
            .field("admission", &self.admission)
            .field("backlog", &self.backlog)
            .field("journal", &self.journal)
            .field("input", &self.input.is_some())
            .finish()
    }
}
