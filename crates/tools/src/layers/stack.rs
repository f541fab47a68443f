//! The layers put together: the one place that knows their order.
//!
//! On its way to the tool a call passes, from the outside in:
//!
//! resolve → profile → pin → validate → cache → queue slot → deadline → execute
//!
//! and its result, on the way back: size cap → token budget → account. What works on results
//! stands around what works on calls, so that the cap, for one, sees what the cache returns. A
//! layer that is not switched on in [`LayerOptions`] hands the call over.

use std::sync::Arc;

use tower_layer::Layer;

use super::{
    Deadline, DeadlineLayer, Execute, Permit, PermitLayer, Resolve, SizeCap, SizeCapLayer,
    Validate, ValidateLayer,
};
use crate::registry::ToolRegistry;

/// The largest result by default, in bytes of content.
pub const DEFAULT_MAX_RESULT_BYTES: usize = 1024 * 1024;

/// The way of a call, from the outside in.
pub(crate) type Stack = Resolve<SizeCap<Permit<Validate<Deadline<Execute>>>>>;

/// What every call of an executor passes through. The defaults switch on what needs no decision.
///
/// What layers share between calls is in here, behind [`Arc`]s: executors that are made from clones
/// of one value share it.
#[derive(Debug, Clone)]
pub struct LayerOptions {
    /// The largest result, in bytes of content. Default 1 MiB.
    pub max_result_bytes: usize,
}

impl Default for LayerOptions {
    fn default() -> Self {
        Self { max_result_bytes: DEFAULT_MAX_RESULT_BYTES }
    }
}

/// Puts the layers around the tools of `registry`.
pub(crate) fn assemble(registry: &Arc<ToolRegistry>, options: LayerOptions) -> Stack {
    let LayerOptions { max_result_bytes } = options;
    let inner = DeadlineLayer.layer(Execute);
    let inner = ValidateLayer.layer(inner);
    let inner = PermitLayer.layer(inner);
    let inner = SizeCapLayer { max_bytes: max_result_bytes }.layer(inner);
    Resolve::new(registry.clone(), inner)
}
