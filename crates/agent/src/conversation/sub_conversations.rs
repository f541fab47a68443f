//! Conversations with sub-agents, which the calls of a conversation started.

use std::collections::HashSet;

use rockbot_contracts::{AgentName, SessionId, ToolCallId};
use rockbot_store::{LogName, MAX_PAGE_ENTRIES, Prefix, StoreError};
use rockbot_tools::scope::MAX_HANDOVERS;

use super::{
    batch::batch_items,
    codec::decode,
    conversations::{Conversations, SPACE},
    entry::{CallEntry, ConversationEntry},
    error::ConversationError,
};
use crate::{
    tool_names::{AGENT_TOOL_PREFIX, BATCH, SPAWN_WISPS, SUBAGENT_TOOL_PREFIX, is_internal},
    wisps::{StepWork, WispRequest, step_call},
};

/// Length of a tool name from which a model may know the tool by a shortened one.
const SHORTENED_BYTES: usize = 64;
/// Maximum number of logs that are compared for agents whose names differ from those of their tools.
const MAX_COMPARED: usize = 20_000;

/// A conversation that a call of another agent started. Its session id is the id of the call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct SubConversation {
    pub(crate) agent: AgentName,
    pub(crate) session: SessionId,
    name: LogName,
}

impl SubConversation {
    /// Returns the conversation of an agent; `None` if the ids are too long for the store.
    pub(crate) fn new(agent: &AgentName, session: &SessionId) -> Option<Self> {
        let name = LogName::new([SPACE, agent.as_str(), session.as_str()]).ok()?;
        Some(Self { agent: agent.clone(), session: session.clone(), name })
    }
}

/// A call of another agent.
struct AgentCall {
    id: ToolCallId,
    /// Name of the tool as the model knows it, without its prefix.
    agent: String,
}

impl AgentCall {
    /// Returns `true` if the agent may have another name: tool names are shortened, and contain `_` for
    /// other characters.
    fn is_ambiguous(&self) -> bool {
        self.agent.contains('_') || self.agent.len() + AGENT_TOOL_PREFIX.len() >= SHORTENED_BYTES
    }
}

impl Conversations {
    /// Returns the conversations with sub-agents that the entries below `before` started, and those that these
    /// conversations started. Parents come before their sub-conversations. Entries that cannot be read are
    /// skipped. Conversations in memory end with their turns, and are not returned.
    ///
    /// # Errors
    /// When the store fails.
    pub(crate) async fn sub_conversations(
        &self,
        session: &SessionId,
        before: u64,
    ) -> Result<Vec<SubConversation>, ConversationError> {
        let mut found = Vec::new();
        if !self.is_durable() {
            return Ok(found);
        }
        let mut calls = self.agent_calls(&self.name(session)?, before).await?;
        for _ in 0..MAX_HANDOVERS {
            let started = self.started_by_calls(calls).await?;
            calls = Vec::new();
            for conversation in &started {
                calls.extend(self.agent_calls(&conversation.name, u64::MAX).await?);
            }
            found.extend(started);
        }
        Ok(found)
    }

    /// Deletes the log of a conversation with a sub-agent.
    ///
    /// # Errors
    /// When the store fails; repeat it then.
    pub(crate) async fn delete_sub_conversation(
        &self,
        conversation: &SubConversation,
    ) -> Result<(), ConversationError> {
        self.inner.log.delete(&conversation.name).await?;
        Ok(())
    }

    /// Returns the calls of other agents in the entries below `before`.
    async fn agent_calls(
        &self,
        name: &LogName,
        before: u64,
    ) -> Result<Vec<AgentCall>, ConversationError> {
        let (mut calls, mut from) = (Vec::new(), 1);
        while from < before {
            let page = self.inner.log.read(name, from, MAX_PAGE_ENTRIES).await?;
            let Some(last) = page.last() else { break };
            from = last.number + 1;
            for entry in page.into_iter().filter(|entry| entry.number < before) {
                let Ok(recorded) = decode(&entry.value) else { continue };
                let ConversationEntry::Model(model) = recorded.entry else { continue };
                calls.extend(model.calls.iter().flat_map(|call| step_calls(name, call)));
                let inner = model.calls.iter().filter(|call| call.name == BATCH);
                let inner = inner.flat_map(|call| batch_items(call).unwrap_or_default());
                let inner: Vec<_> = inner.map(|item| item.call).collect();
                calls.extend(
                    model.calls.into_iter().chain(inner).filter_map(|call| agent_call(name, call)),
                );
            }
        }
        Ok(calls)
    }

    async fn started_by_calls(
        &self,
        calls: Vec<AgentCall>,
    ) -> Result<Vec<SubConversation>, ConversationError> {
        let (mut found, mut ambiguous) = (Vec::new(), HashSet::new());
        for call in calls {
            let name = LogName::new([SPACE, &call.agent, call.id.as_str()]).ok();
            let conversation = name.and_then(sub_conversation);
            match conversation {
                Some(one) if self.inner.log.state(&one.name).await?.is_some() => found.push(one),
                _ if call.is_ambiguous() => {
                    ambiguous.insert(SessionId::from(&call.id));
                }
                _ => {}
            }
        }
        if !ambiguous.is_empty() {
            found.extend(self.find_by_sessions(&ambiguous).await?);
        }
        Ok(found)
    }

    /// Returns the conversations with these ids, of any agent. Compares at most 20,000 conversations.
    async fn find_by_sessions(
        &self,
        sessions: &HashSet<SessionId>,
    ) -> Result<Vec<SubConversation>, ConversationError> {
        let prefix = Prefix::new([SPACE]).map_err(StoreError::from)?;
        let (mut found, mut after, mut compared) = (Vec::new(), None, 0);
        while compared < MAX_COMPARED && found.len() < sessions.len() {
            let page = self.inner.log.logs(&prefix, after.as_ref(), MAX_PAGE_ENTRIES).await?;
            let Some(last) = page.last() else { break };
            after = Some(last.name.clone());
            compared += page.len();
            let conversations = page.into_iter().filter_map(|state| sub_conversation(state.name));
            found.extend(conversations.filter(|one| sessions.contains(&one.session)));
        }
        Ok(found)
    }
}

/// Returns the steps of the plans of a call that start turns: questions to the model, as calls of the agent of the
/// log, and calls of agents.
fn step_calls(name: &LogName, call: &CallEntry) -> Vec<AgentCall> {
    let agent = name.segments().nth(1).unwrap_or_default().to_string();
    let plans = (call.name == SPAWN_WISPS).then(|| WispRequest::parse(&call.arguments).ok());
    let plans = plans.flatten().map(|request| request.plans).unwrap_or_default();
    let mut calls = Vec::new();
    for (number, plan) in plans.iter().enumerate() {
        for step in &plan.steps {
            let Some(id) = step_call(&call.call, number, &step.id) else { continue };
            calls.extend(match step.work() {
                StepWork::Ask { .. } => Some(AgentCall { id, agent: agent.clone() }),
                StepWork::Call { tool, .. } => {
                    agent_call(name, CallEntry { call: id, name: tool, ..call.clone() })
                }
            });
        }
    }
    calls
}

/// Returns the call of an agent, or of a sub-agent of the agent of the log.
fn agent_call(name: &LogName, call: CallEntry) -> Option<AgentCall> {
    if is_internal(&call.name) {
        return None;
    }
    let agent = if call.name.starts_with(SUBAGENT_TOOL_PREFIX) {
        name.segments().nth(1)?.to_string()
    } else {
        call.name.strip_prefix(AGENT_TOOL_PREFIX)?.to_owned()
    };
    Some(AgentCall { id: call.call, agent })
}

fn sub_conversation(name: LogName) -> Option<SubConversation> {
    let (agent, session) = {
        let mut segments = name.segments().skip(1);
        (segments.next()?, segments.next()?)
    };
    let (agent, session) = (AgentName::new(agent).ok()?, SessionId::new(session).ok()?);
    Some(SubConversation { agent, session, name })
}
