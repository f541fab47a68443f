//! The provider.

use std::{
    sync::{Arc, Weak},
    time::Duration,
};

use futures_util::future::BoxFuture;
use parking_lot::RwLock;
use rockbot_contracts::topology::stable_hash;
use rockbot_egress::EgressError;
use rockbot_tools::{Guide, Tool, ToolProvider, ToolSource, WarmUpError};
use tokio::{
    sync::{Mutex, mpsc, watch},
    time::MissedTickBehavior,
};
use tokio_util::task::AbortOnDropHandle;
use tracing::{info, warn};

use super::{
    build::build,
    builds::{Builds, FinishedBuild},
    entries::Entries,
    options::RestOptions,
    status::{EntryStatus, RestStatus},
};
use crate::{
    call::RestClient,
    config::{EntryKind, RestFile, RestFileError},
    tool::RestTool,
};

/// Guide on tools for REST APIs, for models.
const GUIDE: Guide = Guide {
    name: "rest",
    summary: "Calling REST APIs: arguments, results, pages, and what to do after a failure",
    markdown: include_str!("../../guides/rest.md"),
};

/// Interval at which the file and the documents are checked for changes.
const POLL_INTERVAL: Duration = Duration::from_secs(1);
/// Time limit for reading everything before the tools are offered.
const WARM_UP_TIMEOUT: Duration = Duration::from_secs(30);
/// Number of finished builds that wait to be used. More wait in their tasks.
const FINISHED_BUILDS: usize = 16;

/// The REST tools of a process, from the file. Changes of the file apply within about a second, and
/// only to the tools that they concern: a document that takes long to read delays no other entry.
///
/// An entry that is not valid is left out alone; [`status`](Self::status) says why. A file that cannot be
/// read or parsed changes nothing.
pub struct RestProvider {
    options: Arc<RestOptions>,
    client: RestClient,
    state: Mutex<State>,
    offered: RwLock<OfferedTools>,
    changes: watch::Sender<u64>,
    /// Number of entries that are being built.
    building: watch::Receiver<usize>,
    /// Follows the file until the provider is dropped.
    _watcher: AbortOnDropHandle<()>,
}

struct State {
    /// Hash of the text, or of the error, that was read last.
    hash: Option<u64>,
    file: RestFile,
    problem: Option<String>,
    entries: Entries,
    builds: Builds,
}

#[derive(Default)]
struct OfferedTools {
    tools: Vec<Arc<RestTool>>,
    status: RestStatus,
}

impl RestProvider {
    /// Creates a provider without tools and begins to follow the file. Call
    /// [`warm_up`](ToolProvider::warm_up) to have the tools at once. Must be called in a Tokio runtime.
    ///
    /// # Errors
    /// When the trusted certificates cannot be read.
    pub fn new(options: RestOptions) -> Result<Arc<Self>, EgressError> {
        let client = RestClient::new(Arc::new(options.dial.clone()), options.idle_timeout)?;
        let (sender, finished) = mpsc::channel(FINISHED_BUILDS);
        let (count, building) = watch::channel(0);
        let state = State {
            hash: None,
            file: RestFile::default(),
            problem: None,
            entries: Entries::default(),
            builds: Builds::new(sender, count),
        };
        Ok(Arc::new_cyclic(|provider: &Weak<Self>| Self {
            options: Arc::new(options),
            client,
            state: Mutex::new(state),
            offered: RwLock::default(),
            changes: watch::Sender::new(0),
            building,
            _watcher: AbortOnDropHandle::new(tokio::spawn(follow(provider.clone(), finished))),
        }))
    }

    /// Returns the entries of the file with their problems.
    #[must_use]
    pub fn status(&self) -> RestStatus {
        self.offered.read().status.clone()
    }

    /// Applies the file as it is now. Entries with documents follow when these are read.
    ///
    /// # Cancellation
    /// The rest follows with the next check.
    async fn refresh(&self) {
        let mut state = self.state.lock().await;
        let path = self.options.config.clone();
        let read = tokio::task::spawn_blocking(move || RestFile::read(&path)).await;
        let Ok(read) = read else { return };
        let hash = match &read {
            Ok(text) => stable_hash(text),
            Err(error) => stable_hash(error.to_string().as_bytes()),
        };
        let mut is_changed = state.hash.replace(hash) != Some(hash);
        if is_changed {
            state.apply_file(read.and_then(|text| RestFile::parse(&text)));
        }
        let State { file, entries, builds, .. } = &mut *state;
        is_changed |= entries.retain(file);
        builds.retain(file);
        let outdated: Vec<_> = entries
            .outdated(file)
            .into_iter()
            .filter(|(key, raw)| !builds.is_running(key, raw))
            .map(|(key, raw)| (key.clone(), raw.clone()))
            .collect();
        for (key, raw) in outdated {
            if key.0 == EntryKind::Api {
                builds.start(key, raw, self.options.clone(), self.client.clone());
            } else {
                let outcome = build(key.0, &key.1, &raw, &self.options, &self.client).await;
                entries.insert(key, raw, outcome);
                is_changed = true;
            }
        }
        if is_changed {
            self.publish(&state);
        }
    }

    /// Uses an entry whose document was read.
    async fn use_build(&self, build: FinishedBuild) {
        let mut state = self.state.lock().await;
        if state.builds.finish(&build) {
            state.entries.insert(build.key, build.raw, build.outcome);
            self.publish(&state);
        }
        state.builds.publish_count();
    }

    fn publish(&self, state: &State) {
        let (tools, mut status) = state.entries.offer(self.options.max_tools);
        status.problems.extend(state.problem.clone());
        status.warnings.clone_from(&state.file.warnings);
        let mut offered = self.offered.write();
        report(&offered.status, &status);
        let same = tools.len() == offered.tools.len()
            && tools.iter().zip(&offered.tools).all(|(new, old)| Arc::ptr_eq(new, old));
        let count = tools.len();
        *offered = OfferedTools { tools, status };
        drop(offered);
        if !same {
            info!(tools = count, "REST tools changed");
            self.changes.send_modify(|version| *version += 1);
        }
    }

    async fn warm_up(&self) -> Result<(), WarmUpError> {
        let failed = |reason: String| WarmUpError { origin: ToolSource::Rest, reason };
        let mut building = self.building.clone();
        let refreshed = async {
            self.refresh().await;
            // The sender is dropped with this provider only.
            let _ = building.wait_for(|count| *count == 0).await;
        };
        if tokio::time::timeout(WARM_UP_TIMEOUT, refreshed).await.is_err() {
            let seconds = WARM_UP_TIMEOUT.as_secs();
            return Err(failed(format!(
                "not all documents were read within {seconds} s; their tools follow"
            )));
        }
        let status = self.status();
        let problems: Vec<_> = problems(&status).collect();
        if problems.is_empty() { Ok(()) } else { Err(failed(problems.join("; "))) }
    }
}

impl State {
    fn apply_file(&mut self, file: Result<RestFile, RestFileError>) {
        match file {
            Ok(file) => {
                self.file = file;
                self.problem = None;
            }
            Err(error) => self.problem = Some(error.to_string()),
        }
    }
}

impl ToolProvider for RestProvider {
    fn source(&self) -> ToolSource {
        ToolSource::Rest
    }

    fn list(&self) -> Vec<Arc<dyn Tool>> {
        let offered = self.offered.read();
        offered.tools.iter().map(|tool| tool.clone() as Arc<dyn Tool>).collect()
    }

    fn warm_up(&self) -> BoxFuture<'_, Result<(), WarmUpError>> {
        Box::pin(self.warm_up())
    }

    fn guides(&self) -> Vec<Guide> {
        vec![GUIDE]
    }

    fn changes(&self) -> Option<watch::Receiver<u64>> {
        Some(self.changes.subscribe())
    }
}

/// Checks the file and uses what was built, until the provider is dropped.
async fn follow(provider: Weak<RestProvider>, mut finished: mpsc::Receiver<FinishedBuild>) {
    let mut check = tokio::time::interval(POLL_INTERVAL);
    check.set_missed_tick_behavior(MissedTickBehavior::Delay);
    // The first tick is immediate.
    check.tick().await;
    loop {
        tokio::select! {
            _ = check.tick() => {
                let Some(provider) = provider.upgrade() else { return };
                provider.refresh().await;
            }
            Some(build) = finished.recv() => {
                let Some(provider) = provider.upgrade() else { return };
                provider.use_build(build).await;
            }
        }
    }
}

/// Logs problems and warnings that a status adds to the previous one.
fn report(old: &RestStatus, new: &RestStatus) {
    let old_problems: Vec<_> = problems(old).collect();
    for problem in problems(new).filter(|problem| !old_problems.contains(problem)) {
        warn!(problem, "REST tools are not offered");
    }
    let is_old = |entry: &&EntryStatus| old.entries.contains(entry);
    for entry in new.entries.iter().filter(|entry| !is_old(entry)) {
        for warning in &entry.warnings {
            warn!(entry = entry.name, warning, "entry of the REST tools has parts without effect");
        }
        if !entry.skipped.is_empty() {
            let (entry, skipped) = (&entry.name, entry.skipped.len());
            info!(entry, skipped, "operations are not offered; `rockbot rest check` says why");
        }
    }
}

fn problems(status: &RestStatus) -> impl Iterator<Item = String> {
    let of_entries = status.entries.iter().flat_map(|entry| {
        entry.problems.iter().map(move |problem| format!("{}: {problem}", entry.name))
    });
    status.problems.iter().cloned().chain(of_entries)
}

#[cfg(test)]
mod tests {
    use rockbot_contracts::{ToolHints, ToolRegistration};
    use serde_json::json;

    use super::*;

    #[test]
    fn guide_names_only_what_every_such_tool_has() {
        let any = ToolRegistration {
            name: "rest__".to_owned(),
            label: None,
            description: String::new(),
            tool_description: None,
            parameters: json!({"properties": {}}),
            source: ToolSource::Rest,
            hints: ToolHints::default(),
            timeout_ms: None,
        };
        assert_eq!(GUIDE.validate([&any]), [""; 0]);
    }
}
