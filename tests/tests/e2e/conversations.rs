//! Conversations that outlive the processes of their agent: real agents, one store of conversations.

mod approvals;
mod crash_points;
mod crashes;
mod delegation;
mod endurance;
mod harness;
mod model_server;
mod outages;
mod removed_file;
mod rolling;
mod schedule;
mod sessions;
mod stalls;
mod steering;
mod user;
