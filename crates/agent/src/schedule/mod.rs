//! Scheduled tasks: turns that start at a time instead of with a message of a user.
//!
//! - [`Schedule`]: the tasks of an agent, with their tools and the results for the next turn of a person;
//! - [`Scheduler`]: fires them in each process of the agent;
//! - [`ScheduleSection`]: the configuration.
//!
//! A fire is a turn with the profile `Scheduled` in a conversation of its own.

mod context;
mod cron;
mod due;
mod fire;
mod handle;
mod notices;
mod requests;
mod scheduler;
mod section;
mod table;
mod task;
mod task_store;
mod tools;
mod zone;

pub use self::{
    context::describe_outcome, handle::Schedule, scheduler::Scheduler, section::ScheduleSection,
};
