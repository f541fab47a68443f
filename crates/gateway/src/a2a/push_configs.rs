//! The operations on configurations of push notifications.

use serde::Deserialize;
use serde_json::{Value, json};

use super::{
    A2a, body,
    caller::Caller,
    error::A2aError,
    operations::{Failure, known_task, open},
    push::NewPushTarget,
};

/// The task of a request, and the configuration if it names one. An empty id is absent.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct PushConfigId {
    #[serde(default)]
    pub(super) task_id: String,
    #[serde(default)]
    pub(super) id: String,
}

impl PushConfigId {
    /// Parses the parameters of a request over JSON-RPC.
    ///
    /// # Errors
    /// When they have another form.
    pub(super) fn parse(params: &Value) -> Result<Self, A2aError> {
        body::params(params.clone())
    }
}

/// Registers a configuration for a task, and returns it. One with the same id is replaced.
///
/// # Errors
/// When the caller has no such task, the configuration is malformed or its address is not allowed, the task has too
/// many, or the caller registers too many in a minute.
pub(super) async fn create(
    a2a: &A2a,
    caller: &Caller,
    task: &str,
    config: Value,
) -> Result<Value, Failure> {
    let push = a2a.push()?;
    // It resolves a name.
    a2a.guard.count_message(&caller.identity)?;
    let _open = open(a2a, caller)?;
    let task = known_task(a2a, caller, task).await?;
    let registered = push.register(caller, &task, NewPushTarget::parse(config)?).await?;
    Ok(registered.target.to_json(&task))
}

/// Returns a configuration.
///
/// # Errors
/// When the caller has no such task, or the task no such configuration.
pub(super) async fn get(
    a2a: &A2a,
    caller: &Caller,
    config: &PushConfigId,
) -> Result<Value, Failure> {
    let push = a2a.push()?;
    let task = known_task(a2a, caller, &config.task_id).await?;
    let found = push.records.get(caller, &task, &config.id).await?;
    Ok(found.ok_or_else(A2aError::unknown_push_target)?.to_json(&task))
}

/// Returns all configurations of a task. There are at most five, so they are on one page.
///
/// # Errors
/// When the caller has no such task.
pub(super) async fn list(a2a: &A2a, caller: &Caller, task: &str) -> Result<Value, Failure> {
    let push = a2a.push()?;
    let task = known_task(a2a, caller, task).await?;
    let targets = push.records.all(caller, &task).await?;
    let configs: Vec<_> = targets.iter().map(|target| target.to_json(&task)).collect();
    Ok(json!({"configs": configs}))
}

/// Deletes a configuration, if the task has it.
///
/// # Errors
/// When the caller has no such task.
pub(super) async fn delete(
    a2a: &A2a,
    caller: &Caller,
    config: &PushConfigId,
) -> Result<Value, Failure> {
    let push = a2a.push()?;
    let task = known_task(a2a, caller, &config.task_id).await?;
    push.remove(caller, &task, &config.id).await?;
    Ok(json!({}))
}
