//! Hooks that operators configure around tool calls.
//!
//! - [`AuditLog`]: one JSON line for each call, appended to a file or written to the log;
//! - [`HookCommand`]: a program that is run before or after a call and may refuse it.
//!
//! [`OperatorHooks::start`] makes both from the sections `[audit]` and `[[hooks]]`. The hooks see
//! calls where an executor runs them: in an agent each call that its model makes, in a tool handler
//! or an MCP bridge each call that reaches a tool.

mod audit;
mod command;
mod failure_policy;
mod record;
mod section;

use std::{sync::Arc, time::Duration};

use rockbot_contracts::InstanceId;
use rockbot_service::Configuration;
use rockbot_tools::ToolHook;

pub use self::{
    audit::{AuditError, AuditLog},
    command::HookCommand,
    failure_policy::OnFailure,
    section::{AuditSection, HookSection, HooksSection},
};

/// The time limit for writing queued audit records at shutdown.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(2);

/// The sections `[audit]` and `[[hooks]]` of a program.
#[derive(Debug, Clone, Default)]
pub struct HookSettings {
    /// The section `[audit]`.
    pub audit: AuditSection,
    /// The sections `[[hooks]]`.
    pub hooks: HooksSection,
}

impl HookSettings {
    /// Reads and validates both sections; problems are added to the configuration's.
    pub fn read(configuration: &mut Configuration) -> Self {
        let settings =
            Self { audit: configuration.section("audit"), hooks: configuration.section("hooks") };
        let sections = settings.hooks.iter().enumerate();
        for problem in sections.flat_map(|(index, section)| section.validate(index)) {
            configuration.problem(problem);
        }
        settings
    }
}

/// The hooks of one process, in the order in which they run: the audit log first, so that it also
/// records what a command refuses.
#[derive(Debug, Default, Clone)]
pub struct OperatorHooks {
    audit: Option<Arc<AuditLog>>,
    commands: Vec<Arc<HookCommand>>,
}

impl OperatorHooks {
    /// Opens the audit log and prepares the commands. `service` and `instance` name the process in
    /// audit records.
    ///
    /// # Errors
    /// The audit file can't be opened for appending.
    pub fn start(
        settings: &HookSettings,
        service: &'static str,
        instance: &InstanceId,
    ) -> Result<Self, AuditError> {
        let audit = AuditLog::open(&settings.audit, service, instance)?;
        let commands =
            settings.hooks.iter().flat_map(HookSection::commands).map(Arc::new).collect();
        Ok(Self { audit: audit.map(Arc::new), commands })
    }

    /// Returns the hooks for an executor.
    #[must_use]
    pub fn hooks(&self) -> Vec<Arc<dyn ToolHook>> {
        let audit = self.audit.clone().map(|audit| audit as Arc<dyn ToolHook>);
        let commands = self.commands.iter().cloned().map(|command| command as Arc<dyn ToolHook>);
        audit.into_iter().chain(commands).collect()
    }

    /// Returns whether the last audit record could not be written.
    #[must_use]
    pub fn audit_is_failing(&self) -> bool {
        self.audit.as_ref().is_some_and(|audit| audit.is_failing())
    }

    /// Writes the queued audit records, for at most 2 s. Records of later calls are lost.
    pub async fn close(&self) {
        if let Some(audit) = &self.audit {
            audit.close(CLOSE_TIMEOUT).await;
        }
    }
}
