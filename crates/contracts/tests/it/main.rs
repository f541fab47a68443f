//! The wire as files: a change to one of them is the alarm that the wire changed. And what is within
//! what, in traces.

mod fixtures;
mod mcp;
mod script;
mod tolerance;
