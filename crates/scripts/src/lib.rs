//! Python scripts written by models, and the runners that execute them.
//!
//! - [`Script`], [`ScriptOutcome`], [`ScriptRunner`]: a script, its outcome, and the port that runs it;
//! - [`Requirements`]: the packages that a script may request;
//! - [`ExecutePythonScript`]: the tool that a model calls, on any runner; [`ScriptsProvider`] offers it;
//! - [`LocalRunner`]: a sandbox on this machine;
//! - [`DockerRunner`]: one Docker container per script;
//! - [`BusRunner`] and [`served`]: the two sides of `script.invoke`;
//! - [`OutputProgress`] and [`with_output`]: what a script prints before it has an outcome;
//! - [`PreparedImages`]: packages for scripts that have no network;
//! - [`ScriptsSection`]: the configuration that selects a runner.

pub mod bus;
pub mod docker;
mod finished;
#[cfg_attr(not(target_os = "linux"), path = "local_unsupported.rs")]
pub mod local;
mod output;
mod output_progress;
mod permits;
pub mod prepared;
mod provider;
pub mod requirement;
pub mod runner;
pub mod section;
pub mod served;
mod stopped;
pub mod tool;

pub use bus::BusRunner;
pub use docker::{DockerError, DockerOptions, DockerRunner, Pull};
pub use local::{LocalOptions, LocalRunner};
pub use output_progress::OutputProgress;
pub use prepared::{NoPreparedImage, PreparedImage, PreparedImages};
pub use provider::ScriptsProvider;
pub use requirement::{InvalidRequirement, Requirements};
pub use rockbot_contracts::script::ScriptLimit;
pub use runner::{InvalidScript, Isolation, Script, ScriptOutcome, ScriptRunner};
pub use section::{LazyScripts, RunnerName, Scripts, ScriptsSection, ScriptsStartError};
pub use served::{RunScript, ScriptProtocol};
pub use stopped::with_output;
pub use tool::{EXECUTE_PYTHON_SCRIPT, ExecutePythonScript, GUIDE, input_hint};
