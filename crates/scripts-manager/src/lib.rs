//! Scripts in throw-away pods: what is behind `script.invoke` on Kubernetes.
//!
//! - [`ScriptsManager`]: the process without its main;
//! - [`KubernetesRunner`]: runs each script in a pod of its own;
//! - [`pod::build_pod`]: what such a pod looks like;
//! - [`policies::problems`]: whether something in a cluster opens the network to such pods;
//! - [`PodsSection`]: what an operator may choose about it.

mod api;
mod deletions;
mod labels;
mod outcome;
mod output;
pub mod pod;
mod pod_guard;
mod pod_phase;
mod pod_watch;
pub mod policies;
mod probe;
mod quantity;
mod run;
mod runner;
mod section;
mod service;
mod sweep;
mod termination;
mod timing;

pub use runner::KubernetesRunner;
pub use section::{PodsSection, TolerationSection};
pub use service::{SERVICE, ScriptsManager, StartError};
