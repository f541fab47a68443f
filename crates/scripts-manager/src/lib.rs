//! Scripts in throw-away pods: what is behind `script.invoke` on Kubernetes.
//!
//! - [`ScriptsManager`]: the process without its main;
//! - [`KubernetesRunner`]: runs each script in a pod of its own;
//! - [`pod::pod_of`]: what such a pod looks like;
//! - [`policies::problems`]: whether something in a cluster opens the network to such pods;
//! - [`PodsSection`]: what an operator may choose about it.

mod api;
mod deletions;
mod ending;
mod labels;
mod last_words;
mod output;
mod phases;
pub mod pod;
pub mod policies;
mod probe;
mod quantity;
mod run;
mod runner;
mod section;
mod service;
mod sight;
mod stage;
mod sweep;

pub use runner::KubernetesRunner;
pub use section::{PodsSection, TolerationSection};
pub use service::{SERVICE, ScriptsManager, StartError};
