//! Scripts that models write, and whoever runs them.
//!
//! - [`Script`], [`ScriptOutcome`], [`ScriptRunner`]: what is run, what becomes of it, and the port;
//! - [`Requirements`]: the packages that a script may ask for.

pub mod requirement;
pub mod runner;

pub use requirement::{Requirements, UnusableRequirement};
pub use rockbot_contracts::script::ScriptLimit;
pub use runner::{Isolation, Script, ScriptOutcome, ScriptRunner, UnusableScript};
