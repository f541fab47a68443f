//! Responses of users: to approval requests, and to requests for input.

use rockbot_bus::{Bus, ConsumeError, Subscription};
use rockbot_contracts::{
    ApprovalAnswer, InputAnswer, InstanceId, Message, QueueSpec,
    json::Limits,
    topology::{user_approval, user_input},
};
use tokio::task::JoinHandle;
use tracing::{debug, warn};

use super::retained_queue::RetainedQueue;
use crate::agent::Agent;

/// Prefetch for approval responses.
const PREFETCH: u16 = 64;

/// Receives approval responses until it is dropped.
#[derive(Debug)]
pub(super) struct ApprovalListener {
    task: JoinHandle<()>,
    /// `None` if no call needs approval.
    _retained: Option<RetainedQueue>,
}

impl ApprovalListener {
    /// Consumes `user.approval.<agent>` and `user.input.<agent>` on an exclusive queue. Each process receives every
    /// response; only the process with the open request accepts it. Decisions also go to a queue that outlives the
    /// processes, so that one counts that is given while none runs.
    pub(super) async fn start(agent: &Agent, bus: &dyn Bus) -> Result<Option<Self>, ConsumeError> {
        let Some(approvals) = agent.approvals().cloned() else { return Ok(None) };
        let mut queue = QueueSpec::exclusive(&user_approval(agent.name()), &InstanceId::generate());
        queue.bindings.push((&user_input(agent.name())).into());
        let mut consumer = bus.consume(Subscription::on_receipt(queue, PREFETCH)).await?;
        let retained = if approvals.has_rules() {
            Some(RetainedQueue::start(agent, &approvals, bus).await?)
        } else {
            None
        };
        let task = tokio::spawn(async move {
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
        });
        Ok(Some(Self { task, _retained: retained }))
    }
}

impl Drop for ApprovalListener {
    fn drop(&mut self) {
        self.task.abort();
    }
}
