//! The configuration of the process.

use rockbot_fleet::HandlerSettings;
use rockbot_scripts_manager::PodsSection;
use rockbot_service::Configuration;
use rockbot_tools::OutputsSection;

/// The validated sections.
pub(crate) struct Settings {
    pub(crate) common: HandlerSettings,
    pub(crate) scripts: PodsSection,
    pub(crate) outputs: OutputsSection,
}

impl Settings {
    /// Reads and validates all sections.
    pub(crate) fn read(configuration: &mut Configuration) -> Self {
        let settings = Self {
            common: HandlerSettings::read(configuration),
            scripts: configuration.section("scripts"),
            outputs: configuration.section("outputs"),
        };
        for problem in settings.scripts.validate().into_iter().chain(settings.outputs.validate()) {
            configuration.problem(problem);
        }
        settings
    }
}
