//! Options of a provider.

use std::{collections::BTreeMap, path::PathBuf, sync::Arc, time::Duration};

use rockbot_egress::DialPolicy;
use rockbot_tools::limits::queue::Queue;

/// Returns the value of an environment variable.
pub type Variables = Arc<dyn Fn(&str) -> Option<String> + Send + Sync>;

/// Options of a provider.
#[derive(Clone)]
pub struct RestOptions {
    /// File of REST tools.
    pub config: PathBuf,
    /// Addresses that may be dialed. Default: public addresses with TLS.
    pub dial: DialPolicy,
    /// Maximum number of tools. Default 100.
    pub max_tools: usize,
    /// Time without data after which a connection counts as lost. Default 30 s.
    pub idle_timeout: Duration,
    /// Queues that entries can name.
    pub queues: BTreeMap<String, Arc<Queue>>,
    /// Values of variables in the file. Default: the environment of the process.
    pub variables: Variables,
}

impl Default for RestOptions {
    fn default() -> Self {
        Self {
            config: PathBuf::new(),
            dial: DialPolicy::default(),
            max_tools: 100,
            idle_timeout: Duration::from_secs(30),
            queues: BTreeMap::new(),
            variables: Arc::new(|name| std::env::var(name).ok()),
        }
    }
}
