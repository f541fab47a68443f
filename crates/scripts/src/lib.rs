//! Scripts that models write, and whoever runs them.
//!
//! - [`Script`], [`ScriptOutcome`], [`ScriptRunner`]: what is run, what becomes of it, and the port;
//! - [`Requirements`]: the packages that a script may ask for;
//! - [`ExecutePythonScript`]: the tool that a model calls, on any runner;
//! - [`DockerRunner`]: runs them in containers of their own, where Docker is;
//! - [`PreparedImages`]: how a container has packages without having a network;
//! - [`BusRunner`] and [`served`]: the two ends of `script.invoke`.

pub mod bus;
pub mod docker;
mod output;
pub mod prepared;
pub mod requirement;
pub mod runner;
pub mod served;
pub mod tool;

pub use bus::BusRunner;
pub use docker::{DockerError, DockerOptions, DockerRunner, Pull};
pub use prepared::{NotPrepared, PreparedImage, PreparedImages};
pub use requirement::{Requirements, UnusableRequirement};
pub use rockbot_contracts::script::ScriptLimit;
pub use runner::{Isolation, Script, ScriptOutcome, ScriptRunner, UnusableScript};
pub use served::{RunScript, ScriptConversation};
pub use tool::{EXECUTE_PYTHON_SCRIPT, ExecutePythonScript, GUIDE};
