//! Notices that the definitions of a folder changed.

use std::{path::PathBuf, sync::Weak, time::Duration};

use tracing::warn;

use super::{Inner, Team};
use crate::definition::{AgentDefinition, DefinitionErrors};

/// How often the folder is looked at. Files are read and not only their dates: a folder that
/// Kubernetes mounts is exchanged behind a link, and dates are too coarse for two changes in a row.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// Follows the folder until the team is gone.
pub(super) async fn run(team: Weak<Inner>, folder: PathBuf) {
    let mut seen: Option<Result<Vec<AgentDefinition>, DefinitionErrors>> = None;
    loop {
        let place = folder.clone();
        let read = tokio::task::spawn_blocking(move || AgentDefinition::load_dir(&place)).await;
        let Ok(read) = read else { return };
        if seen.as_ref() != Some(&read) {
            let Some(team) = team.upgrade() else { return };
            match &read {
                Ok(definitions) => Team(team).follow(definitions.clone()),
                Err(problems) => {
                    warn!(%problems, "the agents stay as they are: a definition can't be used");
                }
            }
            seen = Some(read);
        }
        tokio::time::sleep(LOOK_EVERY).await;
    }
}
