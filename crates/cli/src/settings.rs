//! The command's configuration: defaults, file, environment and options.

use std::{
    path::{Path, PathBuf},
    sync::Arc,
};

use rockbot_agent::{MemorySection, ModelBehaviors, PinsSection, ScheduleSection};
use rockbot_bus_rabbitmq::{BusSection, RabbitConfig};
use rockbot_contracts::PoolName;
use rockbot_gateway::GatewaySection;
use rockbot_hooks::HookSettings;
use rockbot_llm::{ChatModel, LlmConfig, ModelTier};
use rockbot_mcp_bridge::McpSection;
use rockbot_mcp_server::McpServerSection;
use rockbot_rest::RestSection;
use rockbot_scripts::{RunnerName, ScriptsSection};
use rockbot_service::{
    AdminSection, ConfigProblems, Configuration, LogSection, Profile, ServiceSection,
    TelemetrySection, exit,
};
use rockbot_store::{StoreSection, StoreUrl};
use rockbot_tool_handler::families;
use rockbot_tool_rpc::{Family, HandlerSection};
use rockbot_toolkit::files::FilesConfig;
use rockbot_tools::{ApprovalSection, OutputsSection, Redactor};
use rockbot_web::WebSection;
use secrecy::{ExposeSecret, SecretString};
use serde::Deserialize;

use crate::{
    arguments::Common,
    config_folder,
    contexts::{Contexts, SelectedContext, SelectedContextUse},
    failure::{Failure, OrExit},
};

const DEFAULTS: &str = include_str!("../config.default.toml");

/// `[agent]`.
pub(crate) use rockbot_agent::AgentSection;

/// `[fleet]`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct FleetSection {
    /// The named handler pools. Default: none.
    pub(crate) pools: Vec<PoolName>,
}

#[derive(Debug)]
pub(crate) struct Settings {
    pub(crate) service: ServiceSection,
    pub(crate) bus: BusSection,
    pub(crate) admin: AdminSection,
    pub(crate) log: LogSection,
    pub(crate) telemetry: TelemetrySection,
    pub(crate) handler: HandlerSection,
    pub(crate) fleet: FleetSection,
    pub(crate) files: FilesConfig,
    pub(crate) mcp: McpSection,
    pub(crate) mcp_server: McpServerSection,
    pub(crate) web: WebSection,
    pub(crate) rest: RestSection,
    pub(crate) schedule: ScheduleSection,
    pub(crate) scripts: ScriptsSection,
    pub(crate) store: StoreSection,
    pub(crate) outputs: OutputsSection,
    pub(crate) agent: AgentSection,
    pub(crate) memory: MemorySection,
    pub(crate) llm: LlmConfig,
    pub(crate) models: ModelBehaviors,
    pub(crate) pins: PinsSection,
    pub(crate) approval: ApprovalSection,
    pub(crate) hooks: HookSettings,
    pub(crate) gateway: GatewaySection,
    /// The context whose broker is used.
    pub(crate) context: Option<SelectedContext>,
    /// Name of the selected context if the command does not use it.
    pub(crate) unused_context: Option<String>,
}

impl Settings {
    pub(crate) fn read(
        options: &Common,
        selected: SelectedContextUse,
        environment: impl IntoIterator<Item = (String, String)>,
    ) -> Result<Self, ConfigProblems> {
        let environment: Vec<_> = environment.into_iter().collect();
        let variable = |name: &str| {
            let found = environment.iter().find(|(known, _)| known == name);
            found.map(|(_, value)| value.clone())
        };
        let folder = config_folder::locate(variable);
        let file = options.config.clone().or_else(|| {
            let file = folder.as_ref()?.join(config_folder::CONFIG_FILE);
            file.is_file().then_some(file)
        });
        let context = select_context(options, folder.as_deref(), &environment);
        let (context, unused_context) = match context {
            _ if selected == SelectedContextUse::Join || options.context.is_some() => {
                (context, None)
            }
            Ok(Some(unused)) => (Ok(None), Some(unused.name)),
            // A command that does not use the file of the contexts does not need it.
            Ok(None) | Err(_) => (Ok(None), None),
        };
        let mut layers = Configuration::layered(DEFAULTS, file.as_deref(), environment);
        let mut settings = Self {
            service: layers.section("service"),
            bus: layers.section("bus"),
            admin: layers.section("admin"),
            log: layers.section("log"),
            telemetry: layers.section("telemetry"),
            handler: layers.section("handler"),
            fleet: layers.section("fleet"),
            files: layers.section("files"),
            mcp: layers.section("mcp"),
            mcp_server: layers.section("mcp_server"),
            web: layers.section("web"),
            rest: layers.section("rest"),
            schedule: layers.section("schedule"),
            scripts: layers.section("scripts"),
            store: layers.section("store"),
            outputs: layers.section("outputs"),
            agent: layers.section("agent"),
            memory: layers.section("memory"),
            llm: layers.section("llm"),
            models: layers.section("models"),
            pins: layers.section("pins"),
            approval: layers.section("approval"),
            hooks: HookSettings::read(&mut layers),
            gateway: layers.section("gateway"),
            context: None,
            unused_context,
        };
        match context {
            Ok(context) => settings.apply_context(context),
            Err(problem) => layers.problem(problem),
        }
        if let Some(url) = &options.bus {
            settings.bus.url = SecretString::from(url.clone());
        }
        if let Some(root) = &options.root {
            settings.files.root = PathBuf::from(root);
        }
        if let Some(file) = &options.mcp {
            settings.mcp.config = Some(file.clone());
        }
        if let Err(problem) = rockbot_service::logging::validate(&settings.log) {
            layers.problem(problem.to_string());
        }
        for problem in settings
            .handler
            .validate()
            .into_iter()
            .chain(settings.outputs.validate())
            .chain(settings.mcp.validate())
            .chain(settings.mcp_server.validate())
            .chain(settings.rest.validate())
            .chain(settings.scripts.validate(
                &[RunnerName::Local, RunnerName::Docker],
                settings.service.is_production() && settings.embeds(),
            ))
            .chain(settings.llm.validate().into_iter().map(|problem| format!("llm: {problem}")))
            .chain(settings.models.validate())
            .chain(settings.memory.validate())
            .chain(settings.pins.url().err())
            .chain(settings.agent.conversations.validate())
            .chain(settings.approval.validate())
            .chain(settings.schedule.validate())
            .chain(settings.gateway.validate(settings.service.is_production()))
        {
            layers.problem(problem);
        }
        if !settings.embeds() {
            let (rabbit, production) = (settings.rabbit(), settings.service.is_production());
            let url = settings.bus.url.expose_secret();
            if url.starts_with("amqp://") || url.starts_with("amqps://") {
                let problems = rabbit.validation_errors(production);
                problems.into_iter().for_each(|problem| layers.problem(problem));
            } else {
                layers.problem("bus.url: expected \"memory\", amqp://… or amqps://…");
            }
            settings.handler.identify(rabbit.user(), production);
        }
        if settings.service.is_production() {
            let stores = [
                ("store.url", settings.store.parse().ok()),
                ("memory.store", settings.memory.url().ok().flatten()),
                ("pins.store", settings.pins.url().ok().flatten()),
                ("agent.conversations.store", settings.conversations_url().ok()),
            ];
            let urls = stores.into_iter().filter_map(|(key, url)| url?.unsafe_in_production(key));
            urls.for_each(|problem| layers.problem(problem));
        }
        layers.finish()?;
        Ok(settings)
    }

    /// Uses the broker of a context.
    fn apply_context(&mut self, context: Option<SelectedContext>) {
        let Some(selected) = context else { return };
        self.bus.url = selected.context.bus.clone();
        if let Some(namespace) = &selected.context.namespace {
            self.bus.namespace.clone_from(namespace);
        }
        if selected.is_production() {
            self.service.profile = Profile::Production;
        }
        self.context = Some(selected);
    }

    /// Returns a redactor for the secrets of this process.
    pub(crate) fn redactor(&self) -> Arc<Redactor> {
        let keys = self.llm.keys_to_redact();
        let known = [Some(&self.bus.url), self.store.url.as_ref()];
        let known = known.into_iter().flatten().chain(&keys);
        Redactor::from_environment(known.map(|secret| secret.expose_secret().to_owned()))
    }

    /// Returns the model that summarizes MCP servers, that of the low tier, if summaries are configured.
    pub(crate) fn summary_model(&self) -> Result<Option<Arc<dyn ChatModel>>, Failure> {
        if !self.mcp.summaries {
            return Ok(None);
        }
        let low = self.llm.for_tier(ModelTier::Low);
        let env = |name: &str| std::env::var(name).ok();
        let resolved = rockbot_llm::resolve(low.as_ref().unwrap_or(&self.llm), &env);
        Ok(Some(resolved.or_exit(exit::USAGE)?.model))
    }

    /// Validates the servers file and the settings of an embedded fleet. Not every command needs them, so only
    /// `--check-config` calls this.
    pub(crate) fn validate_all(&self) -> Result<(), ConfigProblems> {
        let mut problems = Configuration::layered("", None, []);
        for problem in self.telemetry.validate() {
            problems.problem(problem);
        }
        let is_queue = |name: &str| self.handler.queues.contains_key(name);
        for problem in self.mcp.validate_file(is_queue) {
            problems.problem(problem);
        }
        if self.embeds() {
            let (families, files) = (self.families(), &self.files);
            let family_problems = families::validate(families, files, &self.web, &self.rest);
            let queues = self.rest.validate_queues(is_queue);
            let family_problems = family_problems.into_iter().chain(queues);
            for problem in family_problems.chain(self.agent.validate()) {
                problems.problem(problem);
            }
        }
        problems.finish()
    }

    /// Returns the connection settings for the broker of a running fleet.
    pub(crate) fn rabbit(&self) -> RabbitConfig {
        RabbitConfig::from_section(&self.bus, "rockbot cli")
    }

    /// Returns the families of tools of the embedded handler: all of them, if none are configured.
    pub(crate) fn families(&self) -> &[Family] {
        const ALL: [Family; 4] = [Family::Files, Family::Scripts, Family::Web, Family::Rest];
        self.handler.families.as_deref().unwrap_or(&ALL)
    }

    /// Returns whether the fleet is embedded in this process.
    pub(crate) fn embeds(&self) -> bool {
        self.bus.url.expose_secret() == "memory"
    }

    /// Returns the URL of the store of conversations.
    ///
    /// # Errors
    /// Returns the problem of an invalid URL.
    pub(crate) fn conversations_url(&self) -> Result<StoreUrl, String> {
        let namespace = (!self.embeds()).then_some(self.bus.namespace.as_str());
        self.agent.conversations.url(namespace)
    }
}

/// Returns the context to use: that of `--context`, or the selected one unless the options or the environment
/// have a bus.
fn select_context(
    options: &Common,
    folder: Option<&Path>,
    environment: &[(String, String)],
) -> Result<Option<SelectedContext>, String> {
    const VARIABLES: [&str; 2] = ["ROCKBOT_BUS__URL", "ROCKBOT_BUS__URL_FILE"];
    let has_bus = environment.iter().any(|(name, _)| VARIABLES.contains(&name.as_str()));
    if options.context.is_none() && (options.bus.is_some() || has_bus) {
        return Ok(None);
    }
    match (folder, &options.context) {
        (Some(folder), name) => Contexts::read(folder)?.select(name.as_deref()),
        (None, None) => Ok(None),
        (None, Some(_)) => Err(format!("--context: {}", config_folder::MISSING)),
    }
}
