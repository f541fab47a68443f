//! The provider.

use std::{
    sync::{Arc, Weak},
    time::Duration,
};

use futures_util::{StreamExt, future::BoxFuture, stream};
use parking_lot::RwLock;
use rockbot_contracts::topology::stable_hash;
use rockbot_egress::EgressError;
use rockbot_tools::{Tool, ToolProvider, ToolSource, WarmUpError};
use tokio::sync::{Mutex, watch};
use tokio_util::task::AbortOnDropHandle;
use tracing::{info, warn};

use super::{
    build::build,
    entries::Entries,
    options::RestOptions,
    status::{EntryStatus, RestStatus},
};
use crate::{
    call::RestClient,
    config::{RestFile, RestFileError},
    tool::RestTool,
};

/// Interval at which the file and the documents are checked for changes.
const POLL_INTERVAL: Duration = Duration::from_secs(1);
/// Time limit for reading everything before the tools are offered.
const WARM_UP_TIMEOUT: Duration = Duration::from_secs(30);
/// Number of entries that are built at the same time.
const CONCURRENT_BUILDS: usize = 4;

/// The REST tools of a process, from the file. Changes of the file apply within about a second, and
/// only to the tools that they concern.
///
/// An entry that is not valid is left out alone; [`status`](Self::status) says why. A file that cannot be
/// read or parsed changes nothing.
pub struct RestProvider {
    options: RestOptions,
    client: RestClient,
    state: Mutex<State>,
    offered: RwLock<OfferedTools>,
    changes: watch::Sender<u64>,
    /// Follows the file until the provider is dropped.
    _watcher: AbortOnDropHandle<()>,
}

#[derive(Default)]
struct State {
    /// Hash of the text, or of the error, that was read last.
    hash: Option<u64>,
    file: RestFile,
    problem: Option<String>,
    entries: Entries,
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
        Ok(Arc::new_cyclic(|provider: &Weak<Self>| Self {
            options,
            client,
            state: Mutex::default(),
            offered: RwLock::default(),
            changes: watch::Sender::new(0),
            _watcher: AbortOnDropHandle::new(tokio::spawn(follow(provider.clone()))),
        }))
    }

    /// Returns the entries of the file with their problems.
    #[must_use]
    pub fn status(&self) -> RestStatus {
        self.offered.read().status.clone()
    }

    /// Applies the file as it is now.
    ///
    /// # Cancellation
    /// Entries that were built are in use; the others follow with the next check.
    async fn refresh(&self) {
        let mut state = self.state.lock().await;
        let path = self.options.config.clone();
        let read = tokio::task::spawn_blocking(move || RestFile::read(&path)).await;
        let Ok(read) = read else { return };
        let hash = match &read {
            Ok(text) => stable_hash(text),
            Err(error) => stable_hash(error.to_string().as_bytes()),
        };
        let is_new = state.hash.replace(hash) != Some(hash);
        if is_new {
            state.apply_file(read.and_then(|text| RestFile::parse(&text)));
        }
        let State { file, entries, problem, .. } = &mut *state;
        if entries.retain(file) || is_new {
            self.publish(entries, file, problem.as_ref());
        }
        let outdated: Vec<_> = entries
            .outdated(file)
            .into_iter()
            .map(|(key, raw)| (key.clone(), raw.clone(), entries.stamp(key)))
            .collect();
        let builds = outdated.into_iter().map(|(key, raw, stamp)| async move {
            let outcome = build(key.0, &key.1, &raw, &self.options, &self.client).await;
            (key, raw, outcome, stamp)
        });
        let mut builds = stream::iter(builds).buffer_unordered(CONCURRENT_BUILDS);
        while let Some((key, raw, outcome, stamp)) = builds.next().await {
            // The document of a new entry is known only now.
            let stamp = stamp.or_else(|| crate::api::stamp(outcome.spec.as_ref()?));
            entries.insert(key, raw, outcome, stamp);
            self.publish(entries, file, problem.as_ref());
        }
    }

    fn publish(&self, entries: &Entries, file: &RestFile, problem: Option<&String>) {
        let (tools, mut status) = entries.offer(self.options.max_tools);
        status.problems.extend(problem.cloned());
        status.warnings.clone_from(&file.warnings);
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
        if tokio::time::timeout(WARM_UP_TIMEOUT, self.refresh()).await.is_err() {
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

    fn changes(&self) -> Option<watch::Receiver<u64>> {
        Some(self.changes.subscribe())
    }
}

/// Checks the file until the provider is dropped.
async fn follow(provider: Weak<RestProvider>) {
    loop {
        tokio::time::sleep(POLL_INTERVAL).await;
        let Some(provider) = provider.upgrade() else { return };
        provider.refresh().await;
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
