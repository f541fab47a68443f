//! Scripts that models write, and whoever runs them.
//!
//! - [`Script`], [`ScriptOutcome`], [`ScriptRunner`]: what is run, what becomes of it, and the port;
//! - [`Requirements`]: the packages that a script may ask for;
//! - [`ExecutePythonScript`]: the tool that a model calls, on any runner;
//! - [`LocalRunner`]: scripts on this machine, in a sandbox;
//! - [`BusRunner`] and [`served`]: the two ends of `script.invoke`;
//! - [`ScriptsSection`]: which of them a process has.

pub mod bus;
#[cfg(target_os = "linux")]
pub mod local;
pub mod requirement;
pub mod runner;
pub mod section;
pub mod served;
pub mod tool;

pub use bus::BusRunner;
#[cfg(target_os = "linux")]
pub use local::{LocalOptions, LocalRunner};
pub use requirement::{Requirements, UnusableRequirement};
pub use rockbot_contracts::script::ScriptLimit;
pub use runner::{Isolation, Script, ScriptOutcome, ScriptRunner, UnusableScript};
pub use section::{LazyScripts, RunnerName, Scripts, ScriptsSection};
pub use served::{RunScript, ScriptConversation};
pub use tool::{EXECUTE_PYTHON_SCRIPT, ExecutePythonScript, GUIDE};
