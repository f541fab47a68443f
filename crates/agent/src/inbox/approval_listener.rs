//! Responses of users: to approval requests, and to requests for input.

use rockbot_bus::{Bus, ConsumeError, Subscription};
use rockbot_contracts::{
    ApprovalAnswer, InputAnswer, InstanceId, Message, QueueSpec, json::Limits,
    topology::user_approval,
};
use tokio::task::JoinHandle;
use tracing::{debug, warn};

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
                let (envelope, limits) = (delivery.into_envelope(), Limits::default());
                let answered = match envelope.message_type() {
                    InputAnswer::TYPE => envelope.decode(limits).map(|answer| {
                        approvals.answer_input(&answer);
                    }),
                    _ => envelope.decode::<ApprovalAnswer>(limits).map(|answer| {
                        approvals.answer(&answer);
                    }),
                };
                if let Err(error) = answered {
                    // At debug level: the error may quote what a user typed.
                    debug!(%error, "invalid response of a user");
                    warn!("invalid response of a user");
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
