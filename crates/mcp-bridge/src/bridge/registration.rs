//! Servers that callers add and remove at run time.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

use rockbot_contracts::mcp::{
    McpManageError, McpManageErrorCode, McpRegisterServerRequest, McpServerSummary,
};
use tokio::time::timeout;

use super::{Bridge, manage_error, not_found};
use crate::config::{OAuthClient, Program, Remote, ServerConfig, Transport};

/// The time limit for connecting a server that is added at run time.
const REGISTER_TIMEOUT: Duration = Duration::from_secs(45);
/// The maximum number of servers that are added at run time.
pub(super) const MAX_ADDED: usize = 32;
/// The maximum number of arguments of a program that is added at run time.
const MAX_ARGUMENTS: usize = 64;
/// The longest such argument, in bytes.
const MAX_ARGUMENT_BYTES: usize = 4096;

/// Servers that callers may add at run time. Default: none.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RegistrationPolicy {
    /// Allows callers to add servers.
    pub allowed: bool,
    /// Programs that may be started, as named in a request.
    pub commands: BTreeSet<String>,
}

impl Bridge {
    pub(super) async fn add(
        &self,
        request: McpRegisterServerRequest,
    ) -> Result<McpServerSummary, McpManageError> {
        let name = request.server_name.clone();
        let fail = |code, message: String| manage_error(&name, code, message);
        if !self.registration.allowed {
            let message = "adding servers at run time is disabled; ask an operator to set \
                           mcp.allow_registration";
            return Err(fail(McpManageErrorCode::NotPermitted, message.to_owned()));
        }
        let config = self.server_config(request)?;
        let server = {
            let mut servers = self.write();
            if servers.contains_key(&name.to_lowercase()) {
                let message = format!("server {name} already exists; choose another name");
                return Err(fail(McpManageErrorCode::Conflict, message));
            }
            if servers.values().filter(|entry| entry.added).count() >= MAX_ADDED {
                let message =
                    format!("the limit of {MAX_ADDED} added servers is reached; remove one first");
                return Err(fail(McpManageErrorCode::NotPermitted, message));
            }
            let entry = self.start(config, true);
            let server = entry.server.clone();
            servers.insert(name.to_lowercase(), entry);
            server
        };
        let settled = timeout(REGISTER_TIMEOUT, self.server_settled(&server)).await.is_ok();
        if let Some(summary) = self.context.catalog.summary(&name) {
            return Ok(summary);
        }
        // A server that never connected is not kept. An operator may have taken its name meanwhile.
        {
            let mut servers = self.write();
            let current = servers.get(&name.to_lowercase());
            if current.is_some_and(|entry| Arc::ptr_eq(&entry.server, &server)) {
                servers.remove(&name.to_lowercase());
            }
        }
        server.stop().await;
        let reason = if settled { "it cannot be connected" } else { "it did not connect in time" };
        Err(fail(McpManageErrorCode::Unavailable, format!("server {name} was not added: {reason}")))
    }

    /// Converts a request to a configuration, without the settings reserved for operators.
    fn server_config(
        &self,
        request: McpRegisterServerRequest,
    ) -> Result<ServerConfig, McpManageError> {
        let McpRegisterServerRequest { server_name, command, arguments, url } = request;
        let fail = |code, message: &str| Err(manage_error(&server_name, code, message.to_owned()));
        let too_long = arguments.iter().any(|argument| argument.len() > MAX_ARGUMENT_BYTES);
        if arguments.len() > MAX_ARGUMENTS || too_long {
            let message = format!(
                "at most {MAX_ARGUMENTS} arguments of {MAX_ARGUMENT_BYTES} bytes are allowed"
            );
            return fail(McpManageErrorCode::InvalidRequest, &message);
        }
        let transport = match (command, url) {
            (Some(command), None) if !self.registration.commands.contains(&command) => {
                let message =
                    "the program is not allowed; ask an operator to add it to mcp.allowed_commands";
                return fail(McpManageErrorCode::NotPermitted, message);
            }
            (Some(command), None) => {
                let (args, env) = (arguments, BTreeMap::new());
                Transport::Stdio(Program { command, args, env, cwd: None })
            }
            (None, Some(url)) if arguments.is_empty() => {
                let oauth = OAuthClient::default();
                Transport::for_url(Remote { url, headers: BTreeMap::new(), oauth })
            }
            _ => {
                let message = "specify either a command with arguments or a url";
                return fail(McpManageErrorCode::InvalidRequest, message);
            }
        };
        ServerConfig::added_at_run_time(&server_name, transport)
            .map_err(|error| manage_error(&server_name, McpManageErrorCode::InvalidRequest, error))
    }

    pub(super) async fn remove(&self, name: &str) -> Result<(), McpManageError> {
        let server = {
            let mut servers = self.write();
            match servers.get(&name.to_lowercase()) {
                None => return Err(not_found(name)),
                Some(entry) if !entry.added => {
                    let message =
                        format!("server {name} is configured by an operator and cannot be removed");
                    return Err(manage_error(name, McpManageErrorCode::NotPermitted, message));
                }
                Some(_) => servers.remove(&name.to_lowercase()),
            }
        };
        if let Some(entry) = server {
            entry.server.stop().await;
        }
        Ok(())
    }
}
