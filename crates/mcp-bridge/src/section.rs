//! The configuration section `[mcp]`.

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

/// The section `[mcp]`.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct McpSection {
    /// The servers file. Default: none.
    pub config: Option<PathBuf>,
    /// Servers that are connected concurrently at startup, at least 1. Default: 8.
    pub init_concurrency: usize,
    /// Queues that servers can share, by name.
    pub queues: BTreeMap<String, QueueConfig>,
    /// Allows servers without TLS. Default: false.
    pub allow_plain_http: bool,
    /// Private addresses, networks and hosts that may be dialed. Default: none.
    pub allow_private: Vec<String>,
    /// The folder for tokens of servers that require a login. Default: a folder in the user's state
    /// folder.
    pub tokens: Option<PathBuf>,
    /// Allows callers to add servers at run time. Default: false.
    pub allow_registration: bool,
    /// The programs that such servers may start. Default: none.
    pub allowed_commands: BTreeSet<String>,
    /// Summarizes each server with the model of `[llm]`. Default: false.
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
    /// Returns all invalid values, for an operator.
    #[must_use]
    pub fn validate(&self) -> Vec<String> {
        let mut errors = Vec::new();
        if self.init_concurrency == 0 {
            errors.push("mcp.init_concurrency: must be at least 1".to_owned());
        }
        for (name, queue) in &self.queues {
            if queue.concurrency == 0 {
                errors.push(format!("mcp.queues.{name}.concurrency: must be at least 1"));
            }
        }
        for target in &self.allow_private {
            if let Err(error) = target.parse::<PrivateTarget>() {
                errors.push(format!("mcp.allow_private: {error}"));
            }
        }
        errors
    }

    /// Returns the options for a bridge, without a store and a model.
    #[must_use]
    pub fn options(&self) -> BridgeOptions {
        let dial = DialPolicy {
            allow_plain_http: self.allow_plain_http,
            // `validate` reports invalid ones.
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
