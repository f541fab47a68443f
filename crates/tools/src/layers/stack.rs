//! Composition of the layers. Their order is defined only here.
//!
//! From the outside in, a call passes:
//!
//! resolve → trace → account → size cap → redact → scope check → pin check → validate → approve →
//! cache → rate limit → queue limit → fleet limit → breaker check → deadline → execute
//!
//! Layers that process results enclose layers that process calls, so that the size cap applies to
//! cached results, and the account to all results. A layer that neither [`LayerOptions`] nor the
//! policy of the tool enables passes the call on.
//!
//! Reasons for this order: no approval is requested for a call that would be rejected anyway; a
//! cached result consumes no rate and no permit; a call over its rate does not wait; a call that has
//! waited is rejected if the breaker opened meanwhile; the timeout does not include the wait.

use std::sync::Arc;

use super::{
    CallPolicies, Deadline, Execute, Resolve, ResultCache, ScopeCheck, SizeCap, Traced, Validate,
    account::{Account, CallAccount},
    approve::Approve,
    cache::Cache,
    limits::{BreakerCheck, FleetConcurrency, QueueLimit, RateLimit},
    pin::PinCheck,
    redact::Redact,
};
use crate::{
    approval::Approver, hooks::ToolHook, outputs::Outputs, pins::ToolPins, redaction::Redactor,
    registry::ToolRegistry,
};

/// Default maximum size of a result, in bytes of content.
pub const DEFAULT_MAX_RESULT_BYTES: usize = 1024 * 1024;

/// Layers that control the execution of a call.
type ExecutionLayers =
    Cache<RateLimit<QueueLimit<FleetConcurrency<BreakerCheck<Deadline<Execute>>>>>>;
/// Layers that decide whether a call may run, around [`ExecutionLayers`].
type AdmissionLayers = ScopeCheck<PinCheck<Validate<Approve<ExecutionLayers>>>>;
/// All layers.
pub(crate) type Stack = Resolve<Traced<Account<SizeCap<Redact<AdmissionLayers>>>>>;

/// Settings of the layers of an executor. The defaults enable everything that needs no decision.
///
/// State that calls share is in here, behind [`Arc`]s: executors created from clones of one value
/// share it.
#[derive(Debug, Clone)]
pub struct LayerOptions {
    /// Maximum size of a result, in bytes of content. Default 1 MiB.
    pub max_result_bytes: usize,
    /// Storage of larger results. They are truncated without it, or where it fails.
    pub outputs: Option<Arc<Outputs>>,
    /// Policies of single tools and servers. Default none.
    pub policies: Arc<CallPolicies>,
    /// Trusted definitions of announced tools. By default all are trusted.
    pub pins: Option<Arc<ToolPins>>,
    /// Approval backend. By default calls need no approval.
    pub approver: Option<Arc<dyn Approver>>,
    /// Cache of results, for tools whose policy enables it. Default none.
    pub cache: Option<Arc<ResultCache>>,
    /// Redactor of errors. By default it recognizes formats of secrets.
    pub redactor: Arc<Redactor>,
    /// Counters of calls. Default none.
    pub account: Option<Arc<CallAccount>>,
    /// Logs the start of each call at debug and its end at info. Default false.
    pub logs: bool,
    /// Hooks that run around each call, in this order. Default: none.
    pub hooks: Vec<Arc<dyn ToolHook>>,
}

impl Default for LayerOptions {
    fn default() -> Self {
        Self {
            max_result_bytes: DEFAULT_MAX_RESULT_BYTES,
            outputs: None,
            policies: Arc::default(),
            pins: None,
            approver: None,
            cache: None,
            redactor: Redactor::from_patterns(),
            account: None,
            logs: false,
            hooks: Vec::new(),
        }
    }
}

/// Puts the layers around the tools of `registry`.
pub(crate) fn assemble(registry: &Arc<ToolRegistry>, options: LayerOptions) -> Stack {
    let LayerOptions {
        max_result_bytes,
        outputs,
        policies,
        pins,
        approver,
        cache,
        redactor,
        account,
        logs,
        hooks: _,
    } = options;
    let inner = Deadline::new(Execute);
    let inner = BreakerCheck::new(inner);
    let inner = FleetConcurrency::new(inner);
    let inner = QueueLimit::new(inner);
    let inner = RateLimit::new(inner);
    let inner = Cache::new(cache, inner);
    let inner = Approve::new(approver, inner);
    let inner = Validate::new(inner);
    let inner = PinCheck::new(pins, inner);
    let inner = ScopeCheck::new(inner);
    let inner = Redact::new(redactor, inner);
    let inner = SizeCap::new(max_result_bytes, outputs, inner);
    let inner = Account::new(account, logs, inner);
    let inner = Traced::new(inner);
    Resolve::new(registry.clone(), policies, inner)
}
