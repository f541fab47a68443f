//! Tools of one entry.

use std::{path::Path, sync::Arc};

use http::HeaderMap;
use rockbot_tools::{CallPolicy, ToolRegistration, ToolSource};
use serde_json::Value;

use super::options::RestOptions;
use crate::{
    api::{self, FileFingerprint, ImportedApi, SkippedTool},
    call::RestClient,
    config::{ApiConfig, CallSettings, EntryKind, SpecLocation, ToolConfig},
    secrets::Secrets,
    tool::RestTool,
};

/// Tools of an entry, and operations that are not offered.
#[derive(Default)]
pub(super) struct Built {
    pub(super) tools: Vec<Arc<RestTool>>,
    pub(super) skipped: Vec<SkippedTool>,
    pub(super) warnings: Vec<String>,
}

/// The outcome of building an entry.
pub(super) struct BuildOutcome {
    /// The tools, or the problem for the operator.
    pub(super) built: Result<Built, String>,
    /// Location of the document of an API, if the entry is valid.
    pub(super) spec: Option<SpecLocation>,
    /// Fingerprint of the document from before it was read.
    pub(super) fingerprint: Option<FileFingerprint>,
}

impl BuildOutcome {
    /// Returns the outcome of an entry whose document is not known.
    pub(super) fn without_document(built: Result<Built, String>) -> Self {
        Self { built, spec: None, fingerprint: None }
    }
}

/// Builds the tools of an entry and reads the document of an API.
pub(super) async fn build(
    kind: EntryKind,
    name: &str,
    entry: &Value,
    options: &RestOptions,
    client: &RestClient,
) -> BuildOutcome {
    match kind {
        EntryKind::Tool => BuildOutcome::without_document(build_tool(name, entry, options, client)),
        EntryKind::Api => {
            let folder = options.config.parent().unwrap_or(Path::new(""));
            let config = ApiConfig::new(entry, folder, &*options.variables);
            let config = match config {
                Ok(config) => config,
                Err(error) => return BuildOutcome::without_document(Err(error.to_string())),
            };
            let (spec, fingerprint) = (config.spec.clone(), api::fingerprint(&config.spec));
            let built = build_api(name, config, options, client).await;
            BuildOutcome { built, spec: Some(spec), fingerprint }
        }
    }
}

fn build_tool(
    name: &str,
    entry: &Value,
    options: &RestOptions,
    client: &RestClient,
) -> Result<Built, String> {
    let config = ToolConfig::new(name, entry, &*options.variables);
    let config = config.map_err(|error| error.to_string())?;
    check_origin(&config, options)?;
    let policy = policy(&config.settings, options)?;
    let tool = RestTool {
        registration: ToolRegistration {
            name: name.to_owned(),
            label: None,
            description: config.description,
            tool_description: None,
            parameters: config.parameters,
            source: ToolSource::Rest,
            hints: config.hints,
            timeout_ms: u64::try_from(config.settings.timeout.as_millis()).ok(),
        },
        tool_set: name.into(),
        request: Arc::new(config.request),
        headers: HeaderMap::new(),
        settings: config.settings,
        secrets: Arc::new(Secrets::new(config.secrets)),
        policy,
        client: client.clone(),
    };
    let warnings = config.warnings;
    Ok(Built { tools: vec![Arc::new(tool)], skipped: Vec::new(), warnings })
}

/// Refuses an API that the policy never permits to be dialed, before it is called.
fn check_origin(config: &ToolConfig, options: &RestOptions) -> Result<(), String> {
    options.dial.check(config.request.origin()).map_err(|error| format!("url: {error}"))
}

async fn build_api(
    name: &str,
    config: ApiConfig,
    options: &RestOptions,
    client: &RestClient,
) -> Result<Built, String> {
    let policy = policy(&config.settings, options)?;
    let imported = ImportedApi::read(name, config, &policy, &options.dial, client).await?;
    let ImportedApi { tools, skipped, warnings, .. } = imported;
    let tools = tools.into_iter().map(|(_, tool)| Arc::new(tool)).collect();
    Ok(Built { tools, skipped, warnings })
}

fn policy(settings: &CallSettings, options: &RestOptions) -> Result<CallPolicy, String> {
    let queue = match &settings.queue {
        None => None,
        Some(name) => {
            let queue = options.queues.get(name).cloned();
            Some(queue.ok_or_else(|| format!("queue: {name:?} is not configured"))?)
        }
    };
    Ok(CallPolicy { cache: settings.cache, queue, ..CallPolicy::default() })
}
