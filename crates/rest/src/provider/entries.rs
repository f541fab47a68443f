//! The entries of the file that are in use.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use serde_json::Value;
use tokio::time::Instant;

use super::{
    build::{BuildOutcome, Built},
    limits::Offered,
    status::{EntryStatus, RestStatus},
};
use crate::{
    api::{self, FileFingerprint},
    config::{EntryKind, RestFile, SpecLocation, is_disabled},
    tool::RestTool,
};

/// Time after which a document at a URL that could not be read is read again.
const RETRY_INTERVAL: Duration = Duration::from_secs(60);

/// Kind and name of an entry.
pub(super) type EntryKey = (EntryKind, String);

/// The entries by kind and name.
#[derive(Default)]
pub(super) struct Entries(BTreeMap<EntryKey, Entry>);

struct Entry {
    raw: Value,
    /// The tools as they were built last without a problem.
    built: Option<Built>,
    problem: Option<String>,
    spec: Option<SpecLocation>,
    fingerprint: Option<FileFingerprint>,
    retry_at: Option<Instant>,
}

impl Entry {
    /// Returns `true` if the entry and its document have not changed.
    fn is_current(&self, raw: &Value) -> bool {
        self.raw == *raw
            && self.retry_at.is_none_or(|at| Instant::now() < at)
            && self.spec.as_ref().is_none_or(|spec| api::fingerprint(spec) == self.fingerprint)
    }
}

impl Entries {
    /// Removes entries that are not in the file any more. Returns whether there were any.
    pub(super) fn retain(&mut self, file: &RestFile) -> bool {
        let before = self.0.len();
        let is_listed =
            |key: &EntryKey| file.entries.get(key).is_some_and(|entry| !is_disabled(entry));
        self.0.retain(|key, _| is_listed(key));
        self.0.len() != before
    }

    /// Returns the entries of the file that are new or have changed.
    pub(super) fn outdated<'a>(&self, file: &'a RestFile) -> Vec<(&'a EntryKey, &'a Value)> {
        let is_outdated = |(key, raw): &(&EntryKey, &Value)| {
            !is_disabled(raw) && self.0.get(*key).is_none_or(|entry| !entry.is_current(raw))
        };
        file.entries.iter().filter(is_outdated).collect()
    }

    /// Replaces an entry. If it says the same as before and cannot be built, its tools stay: a document that
    /// cannot be read for a while takes nothing away.
    pub(super) fn insert(&mut self, key: EntryKey, raw: Value, outcome: BuildOutcome) {
        let BuildOutcome { built, spec, fingerprint } = outcome;
        let is_remote = matches!(spec, Some(SpecLocation::Url(_)));
        let retry_at = (built.is_err() && is_remote).then(|| Instant::now() + RETRY_INTERVAL);
        let previous = self.0.remove(&key).filter(|entry| entry.raw == raw);
        let (built, problem) = match built {
            Ok(built) => (Some(built), None),
            Err(problem) => (previous.and_then(|entry| entry.built), Some(problem)),
        };
        self.0.insert(key, Entry { raw, built, problem, spec, fingerprint, retry_at });
    }

    /// Returns the tools that are offered, and the status of all entries.
    pub(super) fn offer(&self, max_tools: usize) -> (Vec<Arc<RestTool>>, RestStatus) {
        let mut offered = Offered::new(max_tools);
        let (mut tools, mut status) = (Vec::new(), RestStatus::default());
        for ((kind, name), entry) in &self.0 {
            let mut report = EntryStatus {
                name: name.clone(),
                is_api: *kind == EntryKind::Api,
                tools: Vec::new(),
                skipped: Vec::new(),
                problems: Vec::new(),
                warnings: Vec::new(),
            };
            if let Some(problem) = &entry.problem {
                let kept =
                    if entry.built.is_some() { "; its last tools are still offered" } else { "" };
                report.problems.push(format!("{problem}{kept}"));
            }
            if let Some(built) = &entry.built {
                let registrations = built.tools.iter().map(|tool| &tool.registration);
                report.skipped.clone_from(&built.skipped);
                report.warnings.clone_from(&built.warnings);
                match offered.add(registrations.clone()) {
                    Err(problem) => report.problems.push(problem),
                    Ok(()) => {
                        report.tools = registrations.cloned().collect();
                        tools.extend(built.tools.iter().cloned());
                    }
                }
            }
            status.entries.push(report);
        }
        (tools, status)
    }
}
