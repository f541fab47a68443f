//! Routing keys of tasks between agents.

use crate::{
    ids::{AgentName, InstanceId},
    segment::key_segment,
    topology::{AGENT_RESPONSE, AGENT_TASK, AGENT_TASK_CANCEL, QueueSpec, RoutingKey},
};

/// Tasks of other agents for an agent: `agent.task.<agent>`.
#[must_use]
pub fn agent_task(agent: &AgentName) -> RoutingKey {
    RoutingKey::built(format!("{AGENT_TASK}.{}", key_segment(agent.as_str())))
}

/// Cancels of tasks of an agent: `agent.task.cancel.<agent>`. They share the queue of its tasks.
#[must_use]
pub fn agent_task_cancel(agent: &AgentName) -> RoutingKey {
    RoutingKey::built(format!("{AGENT_TASK_CANCEL}.{}", key_segment(agent.as_str())))
}

/// The work queue of an agent's tasks. Cancels are in the same queue, so that none overtakes its task.
#[must_use]
pub fn agent_task_queue(agent: &AgentName) -> QueueSpec {
    let mut queue = QueueSpec::work(&agent_task(agent));
    queue.bindings.push((&agent_task_cancel(agent)).into());
    queue
}

/// Statuses, results and errors of the tasks that an agent delegated to others: `agent.response.<caller>`.
#[must_use]
pub fn agent_response(caller: &AgentName) -> RoutingKey {
    RoutingKey::built(format!("{AGENT_RESPONSE}.{}", key_segment(caller.as_str())))
}

/// As [`agent_response`], to one process of the caller: `agent.response.<caller>.<instance>`.
#[must_use]
pub fn agent_response_at(caller: &AgentName, instance: &InstanceId) -> RoutingKey {
    let (all, instance) = (agent_response(caller), key_segment(instance.as_str()));
    RoutingKey::built(format!("{all}.{instance}"))
}
