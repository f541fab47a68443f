//! Tools of one entry.

use std::{collections::BTreeSet, path::Path, sync::Arc};

use http::HeaderMap;
use rockbot_tools::{CallPolicy, ToolRegistration, ToolSource};
use secrecy::ExposeSecret;
use serde_json::Value;

use super::{document, options::RestOptions, status::SkippedTool};
use crate::{
    call::RestClient,
    config::{ApiConfig, CallSettings, EntryKind, SpecLocation, ToolConfig},
    openapi::{self, Imported, Operation},
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
        EntryKind::Tool => BuildOutcome { built: tool(name, entry, options, client), spec: None },
        EntryKind::Api => {
            let folder = options.config.parent().unwrap_or(Path::new(""));
            let config = ApiConfig::new(entry, folder, &*options.variables);
            let config = match config {
                Ok(config) => config,
                Err(error) => return BuildOutcome { built: Err(error.to_string()), spec: None },
            };
            let spec = Some(config.spec.clone());
            BuildOutcome { built: api(name, config, options, client).await, spec }
        }
    }
}

fn tool(
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

async fn api(
    name: &str,
    mut config: ApiConfig,
    options: &RestOptions,
    client: &RestClient,
) -> Result<Built, String> {
    config.import.allow_plain_http = options.dial.allow_plain_http;
    let policy = policy(&config.settings, options)?;
    let document = document::read(&config.spec, client.http()).await?;
    let import = config.import;
    // Large documents take seconds.
    let imported = tokio::task::spawn_blocking(move || openapi::import(&document, &import)).await;
    let imported = imported.map_err(|_| "the document cannot be imported".to_owned())?;
    let Imported { operations, skipped, notes, .. } = imported;
    let tool_set: Arc<str> = name.into();
    let credentials = operations.iter().flat_map(Operation::secrets);
    let credentials = credentials.map(|secret| secret.expose_secret().to_owned());
    let secrets: BTreeSet<_> = config.secrets.into_iter().chain(credentials).collect();
    let secrets = Arc::new(Secrets::new(secrets));
    let settings = config.settings;
    let tools = operations.into_iter().map(|operation| {
        let timeout_ms = u64::try_from(settings.timeout.as_millis()).ok();
        let registration = operation.registration(timeout_ms);
        let hints = registration.hints;
        let is_repeatable = hints.read_only || hints.idempotent;
        let idempotency_key = settings.idempotency_key.clone().filter(|_| !hints.read_only);
        Arc::new(RestTool {
            registration,
            tool_set: tool_set.clone(),
            request: Arc::new(operation),
            headers: config.headers.clone(),
            settings: CallSettings { is_repeatable, idempotency_key, ..settings.clone() },
            secrets: secrets.clone(),
            policy: policy.clone(),
            client: client.clone(),
        })
    });
    let skipped = skipped
        .into_iter()
        .map(|one| SkippedTool { operation: one.id, reason: one.reason })
        .collect();
    let mut warnings = config.warnings;
    warnings.extend(notes);
    Ok(Built { tools: tools.collect(), skipped, warnings })
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
