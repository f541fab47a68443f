//! Work that is handed over: sub-agents, which work beside a conversation and report back to it, and tasks that
//! agents of the bus hand to each other.
//!
//! A sub-agent is a conversation `subagent-<task>` of the same agent, with one turn. It is recorded and
//! continued like any other: see [`conversation`](crate::conversation). Added here:
//!
//! - `TaskRecord`: what was handed over by which conversation, and how it ended;
//! - `run`: the task that does the work, and then passes the result on;
//! - `fold_back`: the turns of the conversation that read results;
//! - `cancel`: cancels, which are recorded before they take effect;
//! - `invoke`, `sent`, `responses`, `questions`: tasks that other agents of the bus do, which are records like
//!   those of sub-agents and come back like them;
//! - `intake`, `message_digest`, `received`: tasks of other agents, which are turns like those of sub-agents;
//! - `unread`: the part of a budget that is kept for work whose result was not read yet;
//! - `UserChannel`, `TaskHost`, `TaskLeases`: what it needs of the agent and of the bus.

mod cancel;
mod fold_back;
mod frame;
mod handing_over;
mod intake;
mod invoke;
mod message_digest;
mod options;
mod peer_tools;
mod peers;
mod ports;
mod questions;
mod received;
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
    handing_over::HandingOver,
    intake::TaskIntake,
    peers::Peers,
    ports::{Claimed, Delivered, TaskHost, TaskLeases, UserChannel},
    record::is_task_session,
    responses::ResponseHandler,
    unread::{UnreadBy, UnreadWork},
};
pub use self::{options::DelegationOptions, tasks::Delegation};
