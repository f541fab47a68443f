//! The configuration of the process.

use rockbot_fleet::HandlerSettings;
use rockbot_hooks::HookSettings;
use rockbot_scripts::{RunnerName, Scripts, ScriptsSection};
use rockbot_service::{Configuration, ServeError};
use rockbot_toolkit::files::{self, FilesConfig};
use rockbot_tools::OutputsSection;

use super::configuration_error;

/// The validated sections.
pub(crate) struct Settings {
    pub(crate) common: HandlerSettings,
    pub(super) files: FilesConfig,
    pub(super) scripts: ScriptsSection,
    pub(super) outputs: OutputsSection,
    pub(crate) hooks: HookSettings,
}

impl Settings {
    /// Reads and validates all sections.
    pub(crate) fn read(configuration: &mut Configuration) -> Self {
        let settings = Self {
            common: HandlerSettings::read(configuration),
            files: configuration.section("files"),
            scripts: configuration.section("scripts"),
            outputs: configuration.section("outputs"),
            hooks: HookSettings::read(configuration),
        };
        let production = settings.common.service.is_production();
        let runners = [RunnerName::Local, RunnerName::Docker];
        let problems = settings.outputs.validate().into_iter();
        for problem in problems.chain(settings.scripts.validate(&runners, production)) {
            configuration.problem(problem);
        }
        if let Err(problem) = files::tools(&settings.files) {
            configuration.problem(format!("files: {problem}"));
        }
        settings
    }

    /// Starts the configured runner of scripts.
    pub(crate) async fn start_scripts(&self) -> Result<Option<Scripts>, ServeError> {
        let started = self.scripts.start().await;
        started.map_err(|error| configuration_error(format!("scripts: {error}")))
    }
}
