//! Delegated work: sub-agents, which work beside a conversation and report back to it, and tasks that agents
//! delegate to each other over the bus.
//!
//! A sub-agent is a conversation `subagent-<task>` of the same agent, with one turn. It is recorded and
//! continued like any other: see [`conversation`](crate::conversation). This module adds:
//!
//! - `TaskRecord`: what was delegated by which conversation, and how it ended;
//! - `run`: the task that does the work, and then passes the result on;
//! - `fold_back`: the turns of the conversation that read results;
//! - `cancel`: cancels, which are recorded before they take effect;
//! - `invoke`, `sent`, `responses`, `questions`: tasks for other agents, recorded and reported like those of
//!   sub-agents;
//! - `intake`, `message_digest`, `received`: tasks from other agents, which run as turns like those of
//!   sub-agents;
//! - `unread`: the part of a budget that is kept for work whose result was not read yet;
//! - `UserChannel`, `TaskHost`, `TaskLeases`: its ports to the agent and to the bus.

mod cancel;
mod delegating_turn;
mod fold_back;
mod frame;
mod intake;
mod invoke;
mod message_digest;
mod options;
mod peer_tools;
mod peers;
mod ports;
mod questions;
mod received;
mod received_record;
mod record;
mod report;
mod reports;
mod responses;
mod run;
mod sent;
mod spawn;
mod store;
mod tasks;
mod tools;
mod unread;

pub(crate) use self::{
    delegating_turn::DelegatingTurn,
    intake::TaskIntake,
    peers::Peers,
    ports::{Claimed, Delivered, TaskHost, TaskLeases, UserChannel},
    record::is_task_session,
    responses::ResponseHandler,
    unread::{UnreadBy, UnreadWork},
};
pub use self::{options::DelegationOptions, tasks::Delegation};
