//! Approval responses of users.

use rockbot_bus::{Bus, ConsumeError, Subscription};
use rockbot_contracts::{
    ApprovalAnswer, InstanceId, QueueSpec, json::Limits, topology::user_approval,
};
use tokio::task::JoinHandle;
use tracing::warn;

use crate::agent::Agent;

/// Prefetch for approval responses.
const PREFETCH: u16 = 64;

/// Receives approval responses until it is dropped.
#[derive(Debug)]
pub(super) struct ApprovalListener(JoinHandle<()>);

impl ApprovalListener {
    /// Consumes `user.approval.<agent>` on an exclusive queue. Each process receives every response; only
    /// the process with the open request accepts it.
    pub(super) async fn start(agent: &Agent, bus: &dyn Bus) -> Result<Option<Self>, ConsumeError> {
        let Some(approvals) = agent.approvals().cloned() else { return Ok(None) };
        let queue = QueueSpec::exclusive(&user_approval(agent.name()), &InstanceId::generate());
        let mut consumer = bus.consume(Subscription::on_receipt(queue, PREFETCH)).await?;
        Ok(Some(Self(tokio::spawn(async move {
            while let Some(delivery) = consumer.next().await {
                match delivery.into_envelope().decode::<ApprovalAnswer>(Limits::default()) {
                    Ok(answer) => {
                        approvals.answer(&answer);
                    }
                    Err(error) => warn!(%error, "invalid approval response"),
                }
            }
        }))))
    }
}

impl Drop for ApprovalListener {
    fn drop(&mut self) {
        self.0.abort();
    }
}
