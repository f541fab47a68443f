//! Scripts in single-use pods: the service behind `script.invoke` on Kubernetes.
//!
//! - [`ScriptsManager`]: the service;
//! - [`KubernetesRunner`]: a runner with one pod per script;
//! - [`pod::build_pod`]: the pod of a script; package sets are installed by pods of their own;
//! - [`policies::find_openings`]: a check whether network policies close the network to script pods;
//! - [`PodsSection`]: the configuration of the pods.

mod api;
mod deletions;
mod install_pod;
mod labels;
mod outcome;
mod output;
mod package_sets;
pub mod pod;
mod pod_guard;
mod pod_parts;
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
pub use section::{PackagesSection, PodsSection, TolerationSection};
pub use service::{SERVICE, ScriptsManager, StartError};
