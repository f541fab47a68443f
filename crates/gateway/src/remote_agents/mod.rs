//! Agents of others that speak A2A, as agents of the bus.
//!
//! - [`RemoteAgentSection`]: the configuration of one;
//! - [`RemoteAgents`]: announces them, and passes on the tasks that agents of the bus hand to them;
//! - `PeerClient`: reads the card of a remote agent, and sends its requests;
//! - `Intake`: checks and records the tasks; `Runner` works on the recorded ones;
//! - `Records`: the tasks in the gateway's store, so that another process continues them.
//!
//! Of the replicas that share a store, one serves a remote agent at a time.

mod announcer;
mod card;
mod card_keys;
mod change;
mod client;
mod intake;
mod record;
mod responder;
mod rpc;
mod runner;
mod running;
mod section;
mod service;
mod stream;
mod verdict;
mod wire;

pub use self::{
    card_keys::CardKeysError,
    section::RemoteAgentSection,
    service::{RemoteAgents, RemoteAgentsError},
};
