//! The configuration of the process.

use std::sync::Arc;

use rockbot_agent::{
    AgentDefinition, AgentSection, McpSection, MemorySection, ModelBehaviors, PinsSection,
    ScheduleSection,
};
use rockbot_bus_rabbitmq::{BusSection, RabbitConfig};
use rockbot_hooks::HookSettings;
use rockbot_llm::{ChatModel, LlmConfig, ModelTiers, ResolvedModel};
use rockbot_scripts::{RunnerName, ScriptsSection};
use rockbot_service::{Configuration, ServeError, ServiceSection};
use rockbot_tools::{ApprovalSection, OutputsSection};
use secrecy::ExposeSecret;

use super::configuration_error;

/// The validated sections, and the definition of the agent.
pub(crate) struct Settings {
    pub(crate) agent: AgentSection,
    pub(crate) definition: AgentDefinition,
    pub(crate) service: ServiceSection,
    pub(super) bus: BusSection,
    pub(super) mcp: McpSection,
    pub(super) memory: MemorySection,
    pub(super) outputs: OutputsSection,
    pub(super) pins: PinsSection,
    pub(super) approval: ApprovalSection,
    pub(super) schedule: ScheduleSection,
    pub(super) scripts: ScriptsSection,
    pub(super) llm: LlmConfig,
    pub(super) models: ModelBehaviors,
    pub(crate) hooks: HookSettings,
}

impl Settings {
    /// Reads and validates all sections.
    pub(crate) fn read(configuration: &mut Configuration) -> Self {
        let agent: AgentSection = configuration.section("agent");
        let settings = Self {
            // An invalid definition is among the problems of the section.
            definition: agent.definition().unwrap_or_else(|_| AgentDefinition::assistant()),
            agent,
            service: configuration.section("service"),
            bus: configuration.section("bus"),
            mcp: configuration.section("mcp"),
            memory: configuration.section("memory"),
            outputs: configuration.section("outputs"),
            pins: configuration.section("pins"),
            approval: configuration.section("approval"),
            schedule: configuration.section("schedule"),
            scripts: configuration.section("scripts"),
            llm: configuration.section("llm"),
            models: configuration.section("models"),
            hooks: HookSettings::read(configuration),
        };
        for problem in settings.validate() {
            configuration.problem(problem);
        }
        settings
    }

    fn validate(&self) -> Vec<String> {
        let production = self.service.is_production();
        let mut problems = self.agent.validate();
        problems.extend(self.llm.validate().into_iter().map(|problem| format!("llm: {problem}")));
        problems.extend(self.models.validate());
        problems.extend(self.approval.validate());
        problems.extend(self.mcp.pins_url().err());
        problems.extend(self.pins.url().err());
        problems.extend(self.memory.validate());
        problems.extend(self.outputs.validate());
        problems.extend(self.schedule.validate());
        if production {
            problems.extend(self.unsafe_stores());
        }
        problems.extend(RabbitConfig::from_section(&self.bus, "").validation_errors(production));
        problems.extend(self.scripts.validate(&[RunnerName::Bus], production));
        problems.extend(self.model().err().map(|problem| format!("llm: {problem}")));
        problems
    }

    /// Returns the errors of stores that are unsafe in production.
    fn unsafe_stores(&self) -> impl Iterator<Item = String> {
        let stores = [
            ("memory.store", self.memory.url()),
            ("pins.store", self.pins.url()),
            ("mcp.pins", self.mcp.pins_url()),
            ("agent.conversations.store", self.agent.conversations.url(None).map(Some)),
        ];
        let urls = stores.into_iter().filter_map(|(key, url)| Some((key, url.ok()??)));
        urls.filter_map(|(key, url)| url.unsafe_in_production(key))
    }

    /// Returns the user of this process at the broker.
    pub(super) fn broker_user(&self) -> Option<String> {
        RabbitConfig::from_section(&self.bus, "").user()
    }

    /// Returns the chat model that the configuration and the environment select.
    pub(crate) fn resolve_model(&self) -> Result<ResolvedModel, ServeError> {
        self.model().map_err(configuration_error)
    }

    fn model(&self) -> Result<ResolvedModel, String> {
        rockbot_llm::resolve(&self.llm, &|name| std::env::var(name).ok())
            .map_err(|problem| problem.to_string())
    }

    /// Returns the models of all tiers. `balanced` is that of `[llm]`.
    pub(crate) fn model_tiers(
        &self,
        balanced: Arc<dyn ChatModel>,
    ) -> Result<ModelTiers, ServeError> {
        ModelTiers::new(balanced, &self.llm, &|name| std::env::var(name).ok())
            .map_err(configuration_error)
    }

    /// Returns the secrets that must not appear in logs.
    pub(super) fn secrets(&self) -> Vec<String> {
        let keys = self.llm.keys_to_redact();
        let secrets = std::iter::once(&self.bus.url).chain(&keys);
        secrets.map(|secret| secret.expose_secret().to_owned()).collect()
    }
}
