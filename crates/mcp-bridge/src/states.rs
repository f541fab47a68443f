//! States of all configured servers, as a bridge announces them.

use std::{sync::Arc, time::SystemTime};

use rockbot_contracts::{
    envelope::unix_ms,
    mcp::{McpConnection, McpServerState},
    outside_text::plain,
};
use rockbot_tool_rpc::mcp::McpServerReport;
use rockbot_tools::Redactor;
use tokio::sync::watch;

use crate::config::InvalidServer;

/// The longest reason that is announced, in characters.
const MAX_REASON_CHARS: usize = 500;

/// The current states, ordered by name.
pub(crate) struct ServerStates {
    reports: watch::Sender<Vec<McpServerReport>>,
    /// Removes secrets from reasons, which may quote a program.
    redactor: Arc<Redactor>,
}

impl ServerStates {
    pub(crate) fn new(redactor: Arc<Redactor>) -> Self {
        Self { reports: watch::Sender::default(), redactor }
    }

    pub(crate) fn reports(&self) -> watch::Receiver<Vec<McpServerReport>> {
        self.reports.subscribe()
    }

    /// Publishes the state of a server. Its time is that of the last change of `connection`.
    pub(crate) fn publish(&self, mut state: McpServerState) {
        let reason = state.reason.as_deref().map(|reason| self.redactor.redact(reason));
        state.reason = reason.map(|reason| plain(&reason, MAX_REASON_CHARS));
        self.reports.send_if_modified(|reports| {
            let known = position(reports, &state.name);
            let before = known.ok().map(|index| &reports[index].state);
            state.since_ms = match before {
                Some(before) if before.connection == state.connection => before.since_ms,
                _ => unix_ms(SystemTime::now()),
            };
            if before == Some(&state) {
                return false;
            }
            let report = McpServerReport { bridge: None, state };
            match known {
                Ok(index) => reports[index] = report,
                Err(index) => reports.insert(index, report),
            }
            true
        });
    }

    pub(crate) fn remove(&self, server: &str) {
        self.reports.send_if_modified(|reports| match position(reports, server) {
            Ok(index) => {
                reports.remove(index);
                true
            }
            Err(_) => false,
        });
    }

    /// Publishes the servers whose configuration is invalid, and removes those of the file before. A valid
    /// server of the same name takes precedence.
    pub(crate) fn publish_invalid(&self, servers: &[InvalidServer]) {
        self.reports.send_modify(|reports| {
            reports.retain(|report| report.state.connection != McpConnection::Invalid);
        });
        for InvalidServer { name, reason, required } in servers {
            let is_configured = position(&self.reports.borrow(), name).is_ok();
            if !is_configured {
                self.publish(McpServerState {
                    name: name.clone(),
                    connection: McpConnection::Invalid,
                    reason: Some(reason.clone()),
                    required: *required,
                    ..McpServerState::default()
                });
            }
        }
    }
}

fn position(reports: &[McpServerReport], server: &str) -> Result<usize, usize> {
    let server = server.to_lowercase();
    reports.binary_search_by(|report| report.state.name.to_lowercase().cmp(&server))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn state(name: &str, connection: McpConnection) -> McpServerState {
        McpServerState { name: name.to_owned(), connection, ..McpServerState::default() }
    }

    fn invalid(name: &str) -> InvalidServer {
        InvalidServer { name: name.to_owned(), reason: "no command".to_owned(), required: true }
    }

    #[test]
    fn time_changes_with_the_connection_only() {
        let states = ServerStates::new(Redactor::from_patterns());
        let mut reports = states.reports();
        states.publish(state("a", McpConnection::Failed));
        let since = reports.borrow_and_update()[0].state.since_ms;
        assert!(since > 0);
        states.publish(state("a", McpConnection::Failed));
        assert!(!reports.has_changed().unwrap(), "an unchanged state is not published");
        states.publish(McpServerState {
            reason: Some("still down".to_owned()),
            ..state("A", McpConnection::Failed)
        });
        assert_eq!(reports.borrow_and_update()[0].state.since_ms, since);
        states.remove("a");
        assert!(reports.borrow().is_empty());
    }

    #[test]
    fn reasons_contain_no_secrets() {
        let states = ServerStates::new(Redactor::from_environment(vec!["hunter2-hunter2".into()]));
        states.publish(McpServerState {
            reason: Some("cannot log in with hunter2-hunter2".to_owned()),
            ..state("a", McpConnection::Failed)
        });
        let reports = states.reports();
        let reason = reports.borrow()[0].state.reason.clone().unwrap();
        assert!(reason.starts_with("cannot log in") && !reason.contains("hunter2"), "{reason}");
    }

    #[test]
    fn invalid_servers_follow_the_file() {
        let states = ServerStates::new(Redactor::from_patterns());
        states.publish(state("b", McpConnection::Connected));
        let names = || -> Vec<_> {
            let reports = states.reports();
            let reports = reports.borrow();
            reports.iter().map(|report| report.state.name.clone()).collect()
        };
        states.publish_invalid(&[invalid("c"), invalid("B"), invalid("a")]);
        assert_eq!(names(), ["a", "b", "c"]);
        states.publish_invalid(&[invalid("c")]);
        assert_eq!(names(), ["b", "c"]);
    }
}
