//! Scripts that models write, and whoever runs them.
//!
//! - [`Script`], [`ScriptOutcome`], [`ScriptRunner`]: what is run, what becomes of it, and the port;
//! - [`Requirements`]: the packages that a script may ask for;
//! - [`ExecutePythonScript`]: the tool that a model calls, on any runner;
//! - [`LocalRunner`]: scripts on this machine, in a sandbox;
//! - [`DockerRunner`]: scripts in containers of their own, where Docker is;
//! - [`BusRunner`] and [`served`]: the two ends of `script.invoke`;
//! - [`PreparedImages`]: how a container or a pod has packages without having a network;
//! - [`ScriptsSection`]: which of them a process has.

pub mod bus;
pub mod docker;
mod ended;
#[cfg_attr(not(target_os = "linux"), path = "local_elsewhere.rs")]
pub mod local;
mod output;
pub mod prepared;
pub mod requirement;
pub mod runner;
pub mod section;
pub mod served;
mod slots;
pub mod tool;

pub use bus::BusRunner;
pub use docker::{DockerError, DockerOptions, DockerRunner, Pull};
pub use local::{LocalOptions, LocalRunner};
pub use prepared::{NotPrepared, PreparedImage, PreparedImages};
pub use requirement::{Requirements, UnusableRequirement};
pub use rockbot_contracts::script::ScriptLimit;
pub use runner::{Isolation, Script, ScriptOutcome, ScriptRunner, UnusableScript};
pub use section::{CannotStart, LazyScripts, RunnerName, Scripts, ScriptsSection};
pub use served::{RunScript, ScriptConversation};
pub use tool::{EXECUTE_PYTHON_SCRIPT, ExecutePythonScript, GUIDE, input_hint};
