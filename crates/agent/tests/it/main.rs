//! An agent with scripted models and small tools, in one process and over the in-memory bus.

mod front_door;
mod sessions;
mod stage;
mod steering;
mod tool_calls;
mod turns;
