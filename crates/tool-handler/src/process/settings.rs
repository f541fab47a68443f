//! The configuration of the process.

use rockbot_fleet::HandlerSettings;
use rockbot_hooks::HookSettings;
use rockbot_rest::RestSection;
use rockbot_scripts::{RunnerName, Scripts, ScriptsSection};
use rockbot_service::{Configuration, ServeError};
use rockbot_tool_handler::families;
use rockbot_tool_rpc::Family;
use rockbot_toolkit::files::FilesConfig;
use rockbot_tools::OutputsSection;
use rockbot_web::WebSection;

use super::configuration_error;

/// The validated sections.
pub(crate) struct Settings {
    pub(crate) common: HandlerSettings,
    pub(super) files: FilesConfig,
    pub(super) scripts: ScriptsSection,
    pub(super) web: WebSection,
    pub(super) rest: RestSection,
    pub(super) outputs: OutputsSection,
    pub(crate) hooks: HookSettings,
}

impl Settings {
    /// Reads and validates all sections.
    pub(crate) fn read(configuration: &mut Configuration) -> Self {
        let settings = Self {
            common: HandlerSettings::read_tool_handler(configuration),
            files: configuration.section("files"),
            scripts: configuration.section("scripts"),
            web: configuration.section("web"),
            rest: configuration.section("rest"),
            outputs: configuration.section("outputs"),
            hooks: HookSettings::read(configuration),
        };
        let production = settings.common.service.is_production();
        let runners = [RunnerName::Local, RunnerName::Docker];
        let problems = settings.outputs.validate().into_iter();
        let families = settings.common.handler.families();
        let scripts = families.contains(&Family::Scripts);
        let scripts = scripts.then(|| settings.scripts.validate(&runners, production));
        let problems = problems.chain(scripts.into_iter().flatten());
        let Self { files, web, rest, .. } = &settings;
        let queues = &settings.common.handler.queues;
        let queues = rest.validate_queues(|name| queues.contains_key(name)).into_iter();
        let queues = queues.filter(|_| families.contains(&Family::Rest));
        for problem in problems.chain(families::validate(families, files, web, rest)).chain(queues)
        {
            configuration.problem(problem);
        }
        settings
    }

    /// Starts the configured runner of scripts, if the handler runs that family.
    pub(crate) async fn start_scripts(&self) -> Result<Option<Scripts>, ServeError> {
        if !self.common.handler.families().contains(&Family::Scripts) {
            return Ok(None);
        }
        let started = self.scripts.start().await;
        started.map_err(|error| configuration_error(format!("scripts: {error}")))
    }
}
