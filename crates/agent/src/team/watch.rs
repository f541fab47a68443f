//! Reloads changed definitions of a directory.

use std::{path::PathBuf, sync::Weak, time::Duration};

use tracing::warn;

use super::{Inner, Team};
use crate::definition::{AgentDefinition, DefinitionErrors};

/// Poll interval. Files are compared by content: Kubernetes replaces a mounted directory behind a symlink,
/// and timestamps are too coarse for two quick changes.
const POLL_INTERVAL: Duration = Duration::from_secs(1);

/// Polls the directory until the team is dropped.
pub(super) async fn run(team: Weak<Inner>, folder: PathBuf) {
    let mut loaded: Option<Result<Vec<AgentDefinition>, DefinitionErrors>> = None;
    loop {
        let directory = folder.clone();
        let read = tokio::task::spawn_blocking(move || AgentDefinition::load_dir(&directory)).await;
        let Ok(read) = read else { return };
        if loaded.as_ref() != Some(&read) {
            let Some(team) = team.upgrade() else { return };
            match &read {
                Ok(definitions) => Team(team).set_definitions(definitions.clone()),
                Err(problems) => {
                    warn!(%problems, "invalid agent definitions; keeping the previous ones");
                }
            }
            loaded = Some(read);
        }
        tokio::time::sleep(POLL_INTERVAL).await;
    }
}
