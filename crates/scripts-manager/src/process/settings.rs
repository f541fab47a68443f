//! The configuration of the process.

use rockbot_fleet::HandlerSettings;
use rockbot_scripts_manager::PodsSection;
use rockbot_service::Configuration;

/// The validated sections.
pub(crate) struct Settings {
    pub(crate) common: HandlerSettings,
    pub(crate) scripts: PodsSection,
}

impl Settings {
    /// Reads and validates all sections.
    pub(crate) fn read(configuration: &mut Configuration) -> Self {
        let settings = Self {
            common: HandlerSettings::read(configuration),
            scripts: configuration.section("scripts"),
        };
        for problem in settings.scripts.validate() {
            configuration.problem(problem);
        }
        settings
    }
}
