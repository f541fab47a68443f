//! Scripts that models write, and whoever runs them.
//!
//! - [`Script`], [`ScriptOutcome`], [`ScriptRunner`]: what is run, what becomes of it, and the port;
//! - [`Requirements`]: the packages that a script may ask for;
//! - [`LocalRunner`]: scripts on this machine, in a sandbox.

#[cfg(target_os = "linux")]
pub mod local;
pub mod requirement;
pub mod runner;

#[cfg(target_os = "linux")]
pub use local::{LocalOptions, LocalRunner};
pub use requirement::{Requirements, UnusableRequirement};
pub use rockbot_contracts::script::ScriptLimit;
pub use runner::{Isolation, Script, ScriptOutcome, ScriptRunner, UnusableScript};
