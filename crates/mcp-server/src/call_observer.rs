//! Observation of calls by the server in front, which knows who sent a request.

use std::{fmt, sync::Arc};

use rockbot_contracts::ToolCallId;
use rockbot_tools::ToolFailure;

use crate::shared_calls::CallOutcome;

/// Admits the calls of one request, and learns how they end.
pub trait CallObserver: Send + Sync + 'static {
    /// Admits a call of a tool or an agent. `is_repeated` is set for a call that this process makes or made under this
    /// id: the request joins it.
    ///
    /// # Errors
    /// Refuses the call: it is not made, and the client reads the failure, which must have `executed: no`. A repeated
    /// call may have run, and must not be refused.
    fn begin(
        &self,
        tool: &str,
        id: &ToolCallId,
        is_repeated: bool,
    ) -> Result<Box<dyn ObservedCall>, ToolFailure>;
}

/// A call that was admitted. Dropped without an outcome, the request has ended before the call.
pub trait ObservedCall: Send {
    /// Reports the outcome that the client reads.
    fn end(self: Box<Self>, outcome: &CallOutcome);
}

/// The observer of an HTTP request, as one of its extensions. Requests without one are not observed.
#[derive(Clone)]
pub struct RequestObserver(Arc<dyn CallObserver>);

impl RequestObserver {
    /// Creates the extension.
    #[must_use]
    pub fn new(observer: impl CallObserver) -> Self {
        Self(Arc::new(observer))
    }

    pub(crate) fn begin(
        &self,
        tool: &str,
        id: &ToolCallId,
        is_repeated: bool,
    ) -> Result<Box<dyn ObservedCall>, ToolFailure> {
        self.0.begin(tool, id, is_repeated)
    }
}

impl fmt::Debug for RequestObserver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RequestObserver").finish_non_exhaustive()
    }
}
