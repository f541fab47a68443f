//! Check of redelivered requests: those that may have crashed too many handlers do not run.

use std::time::Duration;

use rockbot_bus::Settlement;
use rockbot_contracts::{Executed, ToolCallId, ToolInvokeRequest, topology::DELIVERED_TOO_OFTEN};
use rockbot_tools::{failure::ToolFailure, registry::RegisteredTool};
use tokio::time::{sleep, timeout};
use tracing::{info, warn};

use super::{
    ToolInvokeHandler, holders,
    quarantine::{Inbound, InboundQueue},
    reply::{CallOutcome, Caller},
};

/// Maximum time to find out which handlers survived the earlier deliveries of a request.
const CRASHES_TIMEOUT: Duration = Duration::from_secs(10);

/// Pause before a call in quarantine is returned to its queue because the journal does not respond.
const UNKNOWN_PAUSE: Duration = Duration::from_secs(2);

impl ToolInvokeHandler {
    /// Quarantines a request whose earlier deliveries may have crashed handlers, or dead-letters it if it was
    /// quarantined before. Returns `None` if its call ended, may run, or already runs in this process.
    pub(super) async fn quarantine(
        &self,
        inbound: Inbound<'_>,
        request: &ToolInvokeRequest,
        tool: Option<&RegisteredTool>,
        caller: &Caller,
    ) -> Option<Settlement> {
        let call = &request.tool_call_id;
        let (crashes, is_known) = self.possible_crashes(inbound, call, tool).await;
        if crashes < inbound.max_crashes() || self.running.contains(call) {
            return None;
        }
        if inbound.queue == InboundQueue::Quarantine {
            if !is_known {
                // It counts as a delivery, so the limit of the queue ends this.
                sleep(UNKNOWN_PAUSE).await;
                return Some(Settlement::Retry);
            }
            warn!(
                crashes,
                "call dead-lettered: its deliveries in quarantine may have crashed handlers"
            );
            return Some(Settlement::dead_letter(DELIVERED_TOO_OFTEN));
        }
        // Each delivery would move one more copy, and the copies would outlast the outage of the journal.
        if !is_known && self.journal_of(tool).is_some() {
            if !tool.is_some_and(|tool| tool.registration().hints.may_retry()) {
                // It crashes one handler at most: a call that started does not run again.
                return None;
            }
            let message = "the call journal is unavailable".to_owned();
            let executed = Executed::Unknown;
            let outcome = CallOutcome::failed(ToolFailure::Unavailable { message, executed });
            return Some(self.refuse(request, tool, caller, outcome).await);
        }
        match self.transfers.transfer(self.bus.as_ref(), inbound, &caller.agent).await {
            Ok(()) => {
                self.stats.count_quarantined();
                info!("call moved to the quarantine queue after lost handlers");
                Some(Settlement::Ack)
            }
            // Requeueing it would count as one more delivery, so it runs here.
            Err(error) => {
                warn!(%error, "call not moved to the quarantine queue");
                None
            }
        }
    }

    /// Records the delivery, and returns the number of earlier ones that may have crashed their handlers; 0 for a
    /// call that ended. The number is not known, and the largest possible one, if the journal does not respond.
    async fn possible_crashes(
        &self,
        inbound: Inbound<'_>,
        call: &ToolCallId,
        tool: Option<&RegisteredTool>,
    ) -> (u32, bool) {
        let earlier = inbound.delivery.attempt() - 1;
        let Some(journal) = &self.journal else { return (earlier, true) };
        let counted = timeout(CRASHES_TIMEOUT, async {
            // Its recorded end is the reply. Cut connections leave many copies of such requests.
            if self.journal_of(tool).is_some() && journal.has_ended(call).await? {
                return Ok(0);
            }
            // A call that runs here needs no proof of who is alive.
            let limit = if self.running.contains(call) { u32::MAX } else { inbound.max_crashes() };
            holders::possible_crashes(journal, inbound, limit).await
        });
        match counted.await {
            Ok(Ok(crashes)) => (crashes, true),
            Ok(Err(error)) => {
                warn!(%error, "journal unavailable; every delivery counts as a possible crash");
                (earlier, false)
            }
            Err(_) => (earlier, false),
        }
    }
}
