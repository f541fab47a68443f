//! The call that hands a task to another agent of the bus.

use std::{sync::Arc, time::Duration};

use metrics::counter;
use rockbot_contracts::{
    AgentName, Executed, MessageId, Spending, TaskId, TaskState,
    agent_task::{MAX_SKILL_BYTES, MAX_TASK_DATA_BYTES, MAX_TASK_TEXT_BYTES},
};
use rockbot_tools::{
    Budget, BudgetGrant, ScopeError, ToolContext, ToolFailure, ToolResult, scope::MAX_HANDOVERS,
};
use serde::Deserialize;
use serde_json::Value;
use tokio::time::{Instant, sleep, sleep_until};
use tracing::warn;

use super::{
    delegating_turn::DelegatingTurn,
    frame::{self, awaited_failure, awaited_question, awaited_text, earlier_task_text, one_line},
    peers::Peers,
    record::{NewWork, PeerTask, TaskKind, TaskRecord},
    sent::unreachable_text,
    tasks::{Attached, Delegation},
};
use crate::derived_id::derived_id;

/// Maximum number of open tasks that a conversation delegated to other agents.
const MAX_OPEN: u64 = 5;
/// Maximum number of open tasks at other agents that this process waits for.
const MAX_OPEN_HERE: usize = 256;
/// Share of the budget that is granted: one part of these.
const GRANT_PARTS: u64 = 4;
/// Length of the hash of a request.
const DIGEST_CHARS: usize = 32;
/// Interval at which the record is read, which another process may have changed.
const POLL: Duration = Duration::from_secs(1);

/// Arguments of `invoke_agent`.
#[derive(Debug, Deserialize)]
pub(super) struct InvokeArguments {
    agent_name: String,
    skill: String,
    message: String,
    #[serde(default = "default_timeout")]
    timeout_minutes: u64,
    data: Option<Value>,
    task_id: Option<String>,
}

const fn default_timeout() -> u64 {
    5
}

impl InvokeArguments {
    fn validate(&self) -> Result<AgentName, ToolFailure> {
        if self.message.trim().is_empty() || self.message.len() > MAX_TASK_TEXT_BYTES {
            return Err(ToolFailure::invalid("message must have 1 byte to 64 KiB"));
        }
        if self.skill.is_empty() || self.skill.len() > MAX_SKILL_BYTES {
            return Err(ToolFailure::invalid("skill must have 1 to 128 bytes"));
        }
        if !(1..=120).contains(&self.timeout_minutes) {
            return Err(ToolFailure::invalid("timeout_minutes must be 1 to 120"));
        }
        let data = self.data.as_ref().map(Value::to_string);
        if data.is_some_and(|data| data.len() > MAX_TASK_DATA_BYTES) {
            return Err(ToolFailure::invalid("data must have at most 256 KiB"));
        }
        AgentName::new(self.agent_name.as_str())
            .map_err(|error| ToolFailure::invalid(format!("agent_name: {error}")))
    }

    /// Returns a hash of the request to the agent.
    fn digest(&self) -> String {
        let Self { agent_name, skill, message, data, .. } = self;
        let data = data.as_ref().map(Value::to_string).unwrap_or_default();
        derived_id(&[agent_name, skill, message, &data], DIGEST_CHARS)
    }

    /// Returns `true` if the task has this request. That of a record of an earlier version is not known.
    fn is_request_of(&self, record: &TaskRecord) -> bool {
        let recorded = record.peer.as_ref().map(|peer| peer.request.as_str()).unwrap_or_default();
        recorded.is_empty() || recorded == self.digest()
    }
}

impl Delegation {
    /// Hands a task to another agent, unless the call did so before; or sends the answer to its question. A turn
    /// that is itself delegated work waits for the result, and so does a step of a plan.
    pub(super) async fn invoke(
        self: &Arc<Self>,
        arguments: InvokeArguments,
        context: &ToolContext,
    ) -> Result<ToolResult, ToolFailure> {
        let agent = arguments.validate()?;
        let attached = self.caller(&context.agent)?;
        let Some(mut turn) = self.turn(&context.session_id) else {
            let reason = "only a turn of a conversation can ask other agents".to_owned();
            return Err(ToolFailure::NotPermitted { reason });
        };
        let Some(peers) = self.peers() else {
            let reason = "this agent is not on a bus with other agents".to_owned();
            return Err(ToolFailure::NotPermitted { reason });
        };
        if let Some(task) = &arguments.task_id {
            return self.answer_question(attached, task, &agent, &arguments.message, context).await;
        }
        let Some(task) = TaskRecord::id_of(&context.tool_call_id) else {
            return Err(ToolFailure::failed("no id for the task; call again"));
        };
        turn.is_awaited |= context.awaits_work;
        let is_awaited = turn.is_awaited;
        let budget = context.budget.clone().unwrap_or_else(Budget::unlimited);
        let awaited_grant = {
            // The count and the new record must not be separated by another call.
            let one = self.lock_handovers(&context.session_id).await;
            match attached.store.get(&task).await? {
                Some(known) if known.call != context.tool_call_id => {
                    return Err(ToolFailure::failed("the id of the task is taken; call again"));
                }
                Some(known) if !arguments.is_request_of(&known) => {
                    drop(one);
                    return Err(self.end_other(attached, known, &budget, context).await?);
                }
                Some(_) => {
                    self.start(TaskKind::Sent, task.clone(), None);
                    if is_awaited {
                        budget.grant(&context.tool_call_id, GRANT_PARTS).ok()
                    } else {
                        None
                    }
                }
                None => {
                    self.check_target(&peers, &agent, &arguments.skill, context)?;
                    self.check_open(attached, context).await?;
                    let grant = if is_awaited {
                        budget.grant(&context.tool_call_id, GRANT_PARTS)?
                    } else {
                        budget.grant_detached(GRANT_PARTS)?
                    };
                    let record =
                        new_record(task.clone(), agent.clone(), arguments, context, turn, &grant);
                    self.record(attached, &record).await?;
                    drop(one);
                    counter!("rockbot_agent_delegations_started_total", "kind" => "sent")
                        .increment(1);
                    self.send_first(attached, &record).await?;
                    let (awaited, detached) =
                        if is_awaited { (Some(grant), None) } else { (None, Some(grant)) };
                    self.start(TaskKind::Sent, task.clone(), detached);
                    awaited
                }
            }
        };
        if context.cancellation.is_cancelled() {
            // The cancel of all work may have been before the record.
            let _ = self.cancel_task(&task).await?;
        }
        if is_awaited {
            return self.await_result(attached, &task, awaited_grant, context).await;
        }
        Ok(ToolResult::text(format!(
            "Task dispatched to agent '{agent}' with task_id: {task}. The result will arrive asynchronously as a \
             follow-up message. STOP here and tell the user that you wait for it."
        )))
    }

    /// Cancels the task of an earlier attempt of the call, which had another request, if only the call reads its
    /// result, and books what it spent. Returns the failure of this attempt, which states how the task ended.
    async fn end_other(
        self: &Arc<Self>,
        attached: &Attached,
        known: TaskRecord,
        budget: &Budget,
        context: &ToolContext,
    ) -> Result<ToolFailure, ToolFailure> {
        let TaskRecord { task, peer, .. } = known;
        let Some(peer) = peer else {
            return Ok(ToolFailure::failed("the task is not one of another agent"));
        };
        let cancelled = if peer.is_awaited { self.cancel_task(&task).await? } else { None };
        // What was cancelled is booked even if the record cannot be read.
        let record = attached.store.get(&task).await.unwrap_or_else(|error| {
            warn!(%task, %error, "record of a task not read");
            None
        });
        if peer.is_awaited {
            let spent = record.as_ref().map(|record| record.spent).or(cancelled);
            budget.restore_child(&context.tool_call_id, spent.unwrap_or_default());
        }
        let outcome = record.as_ref().map_or("may have run", earlier_task_text);
        Ok(ToolFailure::OutcomeUnknown {
            message: format!(
                "the task was not sent: an earlier attempt of the call had another request. Its task {task} at agent \
                 '{}' {outcome}; find out what it did before you ask again",
                peer.agent
            ),
        })
    }

    /// Checks that the agent may be asked for the skill.
    fn check_target(
        &self,
        peers: &Peers,
        agent: &AgentName,
        skill: &str,
        context: &ToolContext,
    ) -> Result<(), ToolFailure> {
        if *agent == context.agent {
            return Err(ToolFailure::invalid(
                "An agent cannot invoke itself; use spawn_subagent.".to_owned(),
            ));
        }
        let working = context.scope.agents();
        if working.contains(agent) {
            return Err(ScopeError::Cycle.into());
        }
        if working.len() > MAX_HANDOVERS {
            return Err(ScopeError::TooManyHandovers.into());
        }
        let Some(known) = peers.directory.get(agent) else {
            let names = peers.directory.suggestions(&format!("{agent} {skill}"));
            return Err(unknown_agent(agent.as_str(), &names));
        };
        if known.skill(skill).is_none() {
            let skills: Vec<_> = known.card.skills.iter().map(|one| one.id.as_str()).collect();
            return Err(ToolFailure::invalid(format!(
                "Agent '{agent}' has no skill '{}'. Its skills: {}.",
                one_line(skill),
                skills.join(", ")
            )));
        }
        Ok(())
    }

    async fn check_open(
        &self,
        attached: &Attached,
        context: &ToolContext,
    ) -> Result<(), ToolFailure> {
        let open = self.open_tasks(attached, &context.session_id, TaskKind::Sent).await?;
        if open >= MAX_OPEN {
            let message = format!(
                "{MAX_OPEN} tasks at other agents are open already; wait for a result, or end one with \
                 cancel_agent_task"
            );
            return Err(ToolFailure::Overloaded { message });
        }
        if self.running_tasks(TaskKind::Sent) >= MAX_OPEN_HERE {
            let message = "too many tasks at other agents are open; try again later".to_owned();
            return Err(ToolFailure::Overloaded { message });
        }
        Ok(())
    }

    /// Sends a new task. No task is sent if nothing serves the tasks of the agent. While the bus is
    /// unavailable, the task waits until its time limit.
    async fn send_first(
        self: &Arc<Self>,
        attached: &Attached,
        record: &TaskRecord,
    ) -> Result<(), ToolFailure> {
        let Some(peer) = record.peer.as_deref() else { return Ok(()) };
        if self.send_request(attached, record, peer).await?.is_none() {
            return Ok(());
        }
        // The call reports it; no turn does.
        let reported = attached.store.update(&record.task, |record| {
            record.spent = Spending::default();
            record.folded_by = record.message();
            true
        });
        reported.await?;
        self.start(TaskKind::Sent, record.task.clone(), None);
        Err(ToolFailure::Unavailable { message: unreachable_text(peer), executed: Executed::No })
    }

    /// Sends the answer to the open question of a task.
    async fn answer_question(
        self: &Arc<Self>,
        attached: &Attached,
        task: &str,
        agent: &AgentName,
        text: &str,
        context: &ToolContext,
    ) -> Result<ToolResult, ToolFailure> {
        let unknown =
            || ToolFailure::invalid(format!("No open question for task '{}'.", one_line(task)));
        let task = TaskId::new(task).map_err(|_| unknown())?;
        let record = attached.store.get(&task).await?.ok_or_else(unknown)?;
        let peer = record.peer.as_deref().ok_or_else(unknown)?;
        let is_own = record.root.session == context.session_id
            && record.kind == TaskKind::Sent
            && peer.agent == *agent;
        let id = MessageId::new(context.tool_call_id.as_str()).map_err(|_| unknown())?;
        if context.awaits_work && !peer.is_awaited {
            let reason = "Steps of a plan cannot answer the question of a task that the plan does not wait for. Call \
                          `invoke_agent` in the conversation.";
            return Err(ToolFailure::invalid(reason.to_owned()));
        }
        // Made again, the call finds its own answer.
        let was_sent = peer.message == id;
        if !is_own || (record.state != TaskState::InputRequired && !was_sent) {
            return Err(unknown());
        }
        if !was_sent && !self.answer_agent(attached, &task, peer.round, text, id).await? {
            return Err(unknown());
        }
        if peer.is_awaited {
            let budget = context.budget.clone();
            let grant = budget.and_then(|one| one.grant(&context.tool_call_id, GRANT_PARTS).ok());
            return self.await_result(attached, &task, grant, context).await;
        }
        Ok(ToolResult::text(format!(
            "Answer sent to agent '{agent}' for task {task}. The result will arrive asynchronously as a follow-up \
             message."
        )))
    }

    /// Cancels a task that a call waits for, and books what it spent.
    async fn cancel_awaited(
        self: &Arc<Self>,
        task: &TaskId,
        grant: Option<&BudgetGrant>,
    ) -> Result<(), ToolFailure> {
        if let (Some(spent), Some(grant)) = (self.cancel_task(task).await?, grant) {
            grant.budget().settle(spent);
        }
        Ok(())
    }

    /// Waits for the result of a task, or for a question about it.
    async fn await_result(
        self: &Arc<Self>,
        attached: &Attached,
        task: &TaskId,
        grant: Option<BudgetGrant>,
        context: &ToolContext,
    ) -> Result<ToolResult, ToolFailure> {
        let started = Instant::now();
        loop {
            let changed = self.changed.notified();
            let Some(record) = attached.store.get(task).await? else {
                return Err(ToolFailure::OutcomeUnknown { message: "the task is lost".to_owned() });
            };
            let Some(peer) = record.peer.as_deref() else {
                return Err(ToolFailure::failed("the task is not one of another agent"));
            };
            if record.state.is_terminal() {
                if let Some(grant) = &grant {
                    grant.budget().settle(record.spent);
                }
                return awaited(&record, peer);
            }
            if record.state == TaskState::InputRequired {
                let question = awaited_question(&record, peer);
                return Ok(if context.awaits_work {
                    // The steps of a plan cannot answer it.
                    ToolResult::error(question)
                } else {
                    ToolResult::text(question)
                });
            }
            tokio::select! {
                biased;
                () = context.cancellation.cancelled() => {
                    self.cancel_awaited(task, grant.as_ref()).await?;
                    return Err(ToolFailure::Cancelled { executed: Executed::Unknown });
                }
                () = sleep_until(context.deadline) => {
                    self.cancel_awaited(task, grant.as_ref()).await?;
                    let (after, executed) = (started.elapsed(), Executed::Unknown);
                    return Err(ToolFailure::TimedOut { after, executed, repeatable: false });
                }
                () = changed => {}
                () = sleep(POLL) => {}
            }
        }
    }
}

/// Returns the failure of a call for an agent that is not in the directory.
pub(super) fn unknown_agent(name: &str, known: &[String]) -> ToolFailure {
    let name = one_line(name);
    ToolFailure::invalid(if known.is_empty() {
        format!("Unknown agent '{name}'. No other agent is known now.")
    } else {
        format!("Unknown agent '{name}'. Known agents: {}.", known.join(", "))
    })
}

/// Returns the end of a task as the result of the call that waited for it.
fn awaited(record: &TaskRecord, peer: &PeerTask) -> Result<ToolResult, ToolFailure> {
    match record.state {
        TaskState::Completed => Ok(ToolResult::text(awaited_text(record, peer))),
        TaskState::Cancelled => Err(ToolFailure::Cancelled { executed: Executed::Unknown }),
        _ => Ok(ToolResult::error(awaited_failure(record, peer))),
    }
}

fn new_record(
    task: TaskId,
    agent: AgentName,
    arguments: InvokeArguments,
    context: &ToolContext,
    turn: DelegatingTurn,
    grant: &BudgetGrant,
) -> TaskRecord {
    let own_message = MessageId::new(context.tool_call_id.as_str());
    let own_message = own_message.unwrap_or_else(|_| MessageId::generate());
    let peer = PeerTask {
        request: arguments.digest(),
        data: arguments.data,
        is_awaited: turn.is_awaited,
        ..PeerTask::new(agent, arguments.skill, task.clone(), own_message)
    };
    let work = NewWork {
        kind: TaskKind::Sent,
        task,
        description: frame::description(&arguments.message),
        text: arguments.message,
        timeout_minutes: arguments.timeout_minutes,
    };
    let record = TaskRecord::from_call(work, context, turn, grant);
    TaskRecord { peer: Some(Box::new(peer)), ..record }
}
