//! The bridge's section of the configuration.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::PathBuf,
};

use rockbot_store::state_folder;
use serde::Deserialize;

use crate::{
    bridge::{BridgeOptions, RegistrationPolicy},
    queue::QueueConfig,
    transport::{DialPolicy, PrivateTarget},
};

/// `[mcp]`.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct McpSection {
    /// The file of servers; none when absent.
    pub config: Option<PathBuf>,
    /// How many servers are connected at once at the start. Default 8, at least 1.
    pub init_concurrency: usize,
    /// Queues that servers may share, by name.
    pub queues: BTreeMap<String, QueueConfig>,
    /// Whether servers may be reached without TLS. Default false.
    pub allow_plain_http: bool,
    /// Private addresses, networks and hosts that may be dialled. Default none.
    pub allow_private: Vec<String>,
    /// Where tokens of servers that want a login are kept. Default: a folder in the user's folder for
    /// state.
    pub tokens: Option<PathBuf>,
    /// Whether callers may add servers at run time. Default false.
    pub allow_registration: bool,
    /// The programs that such a server may be. Default none.
    pub allowed_commands: BTreeSet<String>,
    /// Whether the model of `[llm]` says in a sentence what each server is for. Default false.
    pub summaries: bool,
}

impl Default for McpSection {
    fn default() -> Self {
        Self {
            config: None,
            init_concurrency: 8,
            queues: BTreeMap::new(),
            allow_plain_http: false,
            allow_private: Vec::new(),
            tokens: None,
            allow_registration: false,
            allowed_commands: BTreeSet::new(),
            summaries: false,
        }
    }
}

impl McpSection {
    /// What is wrong with it, in words for an operator.
    #[must_use]
    pub fn problems(&self) -> Vec<String> {
        let mut problems = Vec::new();
        if self.init_concurrency == 0 {
            problems.push("mcp.init_concurrency: must be at least 1".to_owned());
        }
        for (name, queue) in &self.queues {
            if queue.concurrency == 0 {
                problems.push(format!("mcp.queues.{name}.concurrency: must be at least 1"));
            }
        }
        for target in &self.allow_private {
            if let Err(bad) = target.parse::<PrivateTarget>() {
                problems.push(format!("mcp.allow_private: {bad}"));
            }
        }
        problems
    }

    /// A bridge as the section wants it, without a store and a model.
    #[must_use]
    pub fn options(&self) -> BridgeOptions {
        let dial = DialPolicy {
            allow_plain_http: self.allow_plain_http,
            // Bad ones are problems.
            allow_private: self.allow_private.iter().filter_map(|text| text.parse().ok()).collect(),
            ..DialPolicy::default()
        };
        let commands = self.allowed_commands.clone();
        BridgeOptions {
            queues: self.queues.clone(),
            init_concurrency: self.init_concurrency,
            dial,
            tokens: self.tokens.clone().or_else(|| Some(state_folder()?.join("mcp-tokens"))),
            registration: RegistrationPolicy { allowed: self.allow_registration, commands },
            ..BridgeOptions::default()
        }
    }
}
