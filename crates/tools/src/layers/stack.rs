//! The layers put together: the one place that knows their order.
//!
//! On its way to the tool a call passes, from the outside in:
//!
//! resolve → trace → account → size cap → redact → permit → pin → validate → approve → cache → rate →
//! queue slot → fleet's place → breaker → deadline → execute
//!
//! What works on results stands around what works on calls, so that the cap, for one, sees what the
//! cache returns, and the account sees all of it. A layer that is not switched on in
//! [`LayerOptions`], or by the policy of a tool, hands the call over.
//!
//! Why this order: nobody is asked about a call that would be refused anyway; a kept result uses up no rate and no place; a call that comes too often does not
//! wait; one that waited is refused when the breaker opened meanwhile, and does not time out in the
//! queue at the tool's expense.

use std::sync::Arc;

use super::{
    CallPolicies, Deadline, Execute, Permit, Resolve, ResultCache, SizeCap, Traced, Validate,
    account::{Account, CallAccount},
    approve::Approve,
    cache::Cache,
    limited::{Break, FleetSlot, RateLimit, Slot},
    pin::PinCheck,
    redact::Redact,
};
use crate::{
    approval::Approver, outputs::Outputs, pins::ToolPins, redaction::Redactor,
    registry::ToolRegistry,
};

/// The largest result by default, in bytes of content.
pub const DEFAULT_MAX_RESULT_BYTES: usize = 1024 * 1024;

/// The way of a call to its tool, from the outside in, once it is known which tool.
type Runs = Cache<RateLimit<Slot<FleetSlot<Break<Deadline<Execute>>>>>>;
/// The same with what decides whether it may be called so.
type Calls = Permit<PinCheck<Validate<Approve<Runs>>>>;
/// The same with what works on results around it.
pub(crate) type Stack = Resolve<Traced<Account<SizeCap<Redact<Calls>>>>>;

/// What every call of an executor passes through. The defaults switch on what needs no decision.
///
/// What layers share between calls is in here, behind [`Arc`]s: executors that are made from clones
/// of one value share it.
#[derive(Debug, Clone)]
pub struct LayerOptions {
    /// The largest result, in bytes of content. Default 1 MiB.
    pub max_result_bytes: usize,
    /// Where results over that size are kept; cut without it, and where it does not help.
    pub outputs: Option<Arc<Outputs>>,
    /// What holds for the calls of single tools and servers. Default nothing.
    pub policies: Arc<CallPolicies>,
    /// Which definitions of tools that handlers announce are trusted. Default all.
    pub pins: Option<Arc<ToolPins>>,
    /// Who is asked before a call runs. Default nobody.
    pub approver: Option<Arc<dyn Approver>>,
    /// Where results are kept of tools whose policy says so. Default nowhere.
    pub cache: Option<Arc<ResultCache>>,
    /// Takes secrets out of errors. Default by their looks.
    pub redactor: Arc<Redactor>,
    /// Where calls are counted. Default nowhere.
    pub account: Option<Arc<CallAccount>>,
    /// Whether the log has a line for every call that begins, at debug, and ends, at info. Default
    /// false.
    pub logs: bool,
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
    } = options;
    let inner = Deadline::new(Execute);
    let inner = Break::new(inner);
    let inner = FleetSlot::new(inner);
    let inner = Slot::new(inner);
    let inner = RateLimit::new(inner);
    let inner = Cache::new(cache, inner);
    let inner = Approve::new(approver, inner);
    let inner = Validate::new(inner);
    let inner = PinCheck::new(pins, inner);
    let inner = Permit::new(inner);
    let inner = Redact::new(redactor, inner);
    let inner = SizeCap::new(max_result_bytes, outputs, inner);
    let inner = Account::new(account, logs, inner);
    let inner = Traced::new(inner);
    Resolve::new(registry.clone(), policies, inner)
}
