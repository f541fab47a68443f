//! Import of an API as tools.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use rockbot_egress::DialPolicy;
use rockbot_tools::CallPolicy;
use secrecy::ExposeSecret;

use super::{document, import_permits};
use crate::{
    call::RestClient,
    config::{ApiConfig, CallSettings},
    openapi::{self, Imported, Operation, Version},
    secrets::Secrets,
    tool::RestTool,
};

/// An operation of a document that is not offered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SkippedTool {
    /// Operation, as the document names it.
    pub operation: String,
    /// Reason.
    pub reason: String,
}

/// The operations of an API as tools.
pub(crate) struct ImportedApi {
    /// Version of the specification that the document follows.
    pub(super) version: Version,
    pub(super) title: String,
    pub(super) description: String,
    /// Tools with the ids of their operations.
    pub(crate) tools: Vec<(String, RestTool)>,
    pub(crate) skipped: Vec<SkippedTool>,
    /// Parts of the entry without effect.
    pub(crate) warnings: Vec<String>,
}

impl ImportedApi {
    /// Reads the document of an API and imports its operations. `tool_set` names the API in metrics.
    ///
    /// # Errors
    /// A message for the operator.
    pub(crate) async fn read(
        tool_set: &str,
        mut config: ApiConfig,
        policy: &CallPolicy,
        dial: &DialPolicy,
        client: &RestClient,
    ) -> Result<Self, String> {
        config.import.allow_plain_http = dial.allow_plain_http;
        let limits = import_permits::limits();
        let reading = import_permits::reading().await;
        let bytes = document::load(&config.spec, client.http(), limits).await?;
        let import = std::mem::take(&mut config.import);
        let importing = import_permits::importing().await;
        // Large documents take seconds.
        let imported = tokio::task::spawn_blocking(move || {
            let _permits = (reading, importing);
            let document = document::parse(bytes, limits)?;
            let imported = openapi::import(&document, &import);
            let (title, description) = (document.title(), document.description());
            Ok::<_, String>((document.version(), title, description, imported))
        });
        let imported = imported.await.map_err(|_| "the document cannot be imported".to_owned())?;
        let (version, title, description, imported) = imported?;
        let Imported { operations, skipped, notes, .. } = imported;
        let skipped: Vec<_> = skipped
            .into_iter()
            .map(|one| SkippedTool { operation: one.id, reason: one.reason })
            .collect();
        if operations.is_empty()
            && let Some(problem) = all_skipped(&skipped)
        {
            return Err(problem);
        }
        let mut warnings = std::mem::take(&mut config.warnings);
        warnings.extend(notes);
        let tools = tools(tool_set, operations, config, policy, client);
        Ok(Self { version, title, description, tools, skipped, warnings })
    }
}

/// Returns the most frequent reason why the operations are not offered, for an API that has no other.
fn all_skipped(skipped: &[SkippedTool]) -> Option<String> {
    let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
    for one in skipped {
        *counts.entry(&one.reason).or_default() += 1;
    }
    let (reason, _) = counts.into_iter().max_by_key(|(_, count)| *count)?;
    let example = skipped.iter().find(|one| one.reason == reason)?;
    Some(format!("no operation can be called; {}: {reason}", example.operation))
}

fn tools(
    tool_set: &str,
    operations: Vec<Operation>,
    config: ApiConfig,
    policy: &CallPolicy,
    client: &RestClient,
) -> Vec<(String, RestTool)> {
    let ApiConfig { headers, settings, secrets, .. } = config;
    let tool_set: Arc<str> = tool_set.into();
    let credentials = operations.iter().flat_map(Operation::secrets);
    let credentials = credentials.map(|secret| secret.expose_secret().to_owned());
    let secrets: BTreeSet<_> = secrets.into_iter().chain(credentials).collect();
    let secrets = Arc::new(Secrets::new(secrets));
    let timeout_ms = u64::try_from(settings.timeout.as_millis()).ok();
    let tools = operations.into_iter().map(|operation| {
        let id = operation.id().to_owned();
        let registration = operation.registration(timeout_ms);
        let hints = registration.hints;
        let is_repeatable = hints.read_only || hints.idempotent;
        let idempotency_key = settings.idempotency_key.clone().filter(|_| !hints.read_only);
        let tool = RestTool {
            registration,
            tool_set: tool_set.clone(),
            request: Arc::new(operation),
            headers: headers.clone(),
            settings: CallSettings { is_repeatable, idempotency_key, ..settings.clone() },
            secrets: secrets.clone(),
            policy: policy.clone(),
            client: client.clone(),
        };
        (id, tool)
    });
    tools.collect()
}
