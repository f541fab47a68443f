//! The configuration of the process.

use std::sync::Arc;

use rockbot_fleet::HandlerSettings;
use rockbot_hooks::HookSettings;
use rockbot_llm::{ChatModel, LlmConfig, ModelTier};
use rockbot_mcp_bridge::McpSection;
use rockbot_service::{Configuration, ServeError};
use rockbot_tools::OutputsSection;
use secrecy::ExposeSecret;

use super::configuration_error;

/// The validated sections.
pub(crate) struct Settings {
    pub(crate) common: HandlerSettings,
    pub(super) mcp: McpSection,
    pub(super) llm: LlmConfig,
    pub(super) outputs: OutputsSection,
    pub(crate) hooks: HookSettings,
}

impl Settings {
    /// Reads and validates all sections.
    pub(crate) fn read(configuration: &mut Configuration) -> Self {
        let settings = Self {
            common: HandlerSettings::read(configuration),
            mcp: configuration.section("mcp"),
            llm: configuration.section("llm"),
            outputs: configuration.section("outputs"),
            hooks: HookSettings::read(configuration),
        };
        let llm = settings.llm.validate().into_iter().map(|problem| format!("llm: {problem}"));
        let queues = &settings.common.handler.queues;
        let is_queue = |name: &str| queues.contains_key(name);
        let queues = if configuration.is_check() {
            settings.mcp.validate_file(is_queue)
        } else {
            settings.mcp.validate_queues(is_queue)
        };
        let outputs = settings.outputs.validate();
        let problems = settings.mcp.validate().into_iter().chain(queues).chain(outputs);
        for problem in problems.chain(llm) {
            configuration.problem(problem);
        }
        settings
    }

    /// Returns the model that summarizes servers, that of the low tier, if summaries are configured.
    pub(crate) fn summary_model(&self) -> Result<Option<Arc<dyn ChatModel>>, ServeError> {
        if !self.mcp.summaries {
            return Ok(None);
        }
        let low = self.llm.for_tier(ModelTier::Low);
        let resolved = rockbot_llm::resolve(low.as_ref().unwrap_or(&self.llm), &|name| {
            std::env::var(name).ok()
        });
        let resolved =
            resolved.map_err(|problem| configuration_error(format!("llm: {problem}")))?;
        Ok(Some(resolved.model))
    }

    /// Returns the secrets that must not appear in results and logs.
    pub(super) fn secrets(&self) -> Vec<String> {
        let keys = self.llm.keys_to_redact();
        let keys = keys.iter().map(|key| key.expose_secret().to_owned());
        self.common.secrets().into_iter().chain(keys).collect()
    }
}
