//! The configuration section `[mcp]`.

use std::{collections::BTreeSet, path::PathBuf};

use rockbot_store::state_folder;
use serde::Deserialize;

use crate::{
    bridge::{BridgeOptions, RegistrationPolicy},
    config::{ServersFile, ServersFileError},
    transport::{DialPolicy, PrivateTarget},
};

/// The section `[mcp]`.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct McpSection {
    /// The servers file. Default: none.
    pub config: Option<PathBuf>,
    /// Servers that are connected concurrently at startup, at least 1. A connection attempt releases its permit after
    /// 2 s. Default: 8.
    pub init_concurrency: usize,
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
    /// The registry that `rockbot mcp search` and `rockbot mcp add` use: the URL of an API, or a file.
    /// Default: none.
    pub registry: Option<String>,
    /// Declares to servers with a handshake that a user can respond to requests for input. Default: false.
    pub elicitation: bool,
    /// Summarizes each server with the model of `[llm]`. Default: false.
    pub summaries: bool,
}

impl Default for McpSection {
    fn default() -> Self {
        Self {
            config: None,
            init_concurrency: 8,
            allow_plain_http: false,
            allow_private: Vec::new(),
            tokens: None,
            allow_registration: false,
            allowed_commands: BTreeSet::new(),
            registry: None,
            elicitation: false,
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
        for target in &self.allow_private {
            if let Err(error) = target.parse::<PrivateTarget>() {
                errors.push(format!("mcp.allow_private: {error}"));
            }
        }
        errors
    }

    /// Returns the errors of the queues in the servers file, for an operator. `is_configured` returns
    /// whether `[handler.queues]` has a queue of this name. A file that cannot be read or parsed has none.
    #[must_use]
    pub fn validate_queues(&self, is_configured: impl Fn(&str) -> bool) -> Vec<String> {
        self.file_errors(|file| match file {
            Ok(file) => file.queue_problems(is_configured),
            Err(_) => Vec::new(),
        })
    }

    /// Returns every error of the servers file, for an operator: with those of
    /// [`McpSection::validate_queues`], the file that cannot be read or parsed, and the entries and settings
    /// that a running bridge skips.
    #[must_use]
    pub fn validate_file(&self, is_configured: impl Fn(&str) -> bool) -> Vec<String> {
        self.file_errors(|file| match file {
            Ok(file) => {
                let queues = file.queue_problems(is_configured);
                file.errors.into_iter().chain(queues).collect()
            }
            Err(error) => vec![error.to_string()],
        })
    }

    /// Returns the errors that `errors` finds in the servers file, with the path of the file.
    fn file_errors(
        &self,
        errors: impl FnOnce(Result<ServersFile, ServersFileError>) -> Vec<String>,
    ) -> Vec<String> {
        let Some(path) = &self.config else { return Vec::new() };
        let errors = errors(ServersFile::read(path, |name| std::env::var(name).ok()));
        errors.iter().map(|error| format!("mcp.config: {}: {error}", path.display())).collect()
    }

    /// Returns the options for a bridge, without queues, a store and a model.
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
            init_concurrency: self.init_concurrency,
            dial,
            declares_input: self.elicitation,
            tokens: self.tokens.clone().or_else(|| Some(state_folder()?.join("mcp-tokens"))),
            registration: RegistrationPolicy { allowed: self.allow_registration, commands },
            ..BridgeOptions::default()
        }
    }
}
