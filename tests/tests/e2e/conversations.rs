//! Conversations that outlive the processes of their agent: real agents, one store of conversations.

mod crashes;
mod harness;
mod outages;
mod rolling;
mod schedule;
mod sessions;
mod stalls;
mod steering;
mod user;
