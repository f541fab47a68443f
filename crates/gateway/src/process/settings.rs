//! The configuration of the process.

use rockbot_bus_rabbitmq::{BusSection, RabbitConfig};
use rockbot_gateway::{ConnectionSection, GatewaySection};
use rockbot_service::{Configuration, ServiceSection};

/// The validated sections.
pub(crate) struct Settings {
    pub(crate) service: ServiceSection,
    pub(super) bus: BusSection,
    pub(crate) gateway: GatewaySection,
}

impl Settings {
    /// Reads and validates all sections.
    pub(crate) fn read(configuration: &mut Configuration) -> Self {
        let settings = Self {
            service: configuration.section("service"),
            bus: configuration.section("bus"),
            gateway: configuration.section("gateway"),
        };
        let production = settings.service.is_production();
        let GatewaySection { watch, letters, calls, .. } = &settings.gateway;
        let further = [watch, letters, calls]
            .into_iter()
            .filter_map(|connection| settings.rabbit(connection, ""));
        let rabbit = RabbitConfig::from_section(&settings.bus, "");
        let problems =
            further.chain([rabbit]).flat_map(|rabbit| rabbit.validation_errors(production));
        for problem in settings.gateway.validate(production).into_iter().chain(problems) {
            configuration.problem(problem);
        }
        settings
    }

    /// Returns the configuration of a further connection, with the namespace and the certificates of `[bus]`.
    pub(super) fn rabbit(
        &self,
        connection: &ConnectionSection,
        name: &str,
    ) -> Option<RabbitConfig> {
        let url = connection.url.clone()?;
        let section = BusSection { url, ..self.bus.clone() };
        Some(RabbitConfig::from_section(&section, name))
    }
}
