//! The audit log: one record for each call, appended as a line of JSON.

use std::{
    fs::{File, OpenOptions},
    io::{self, Write},
    os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt},
    path::PathBuf,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread,
    time::Duration,
};

use futures_util::future::BoxFuture;
use metrics::counter;
use parking_lot::Mutex;
use rockbot_contracts::{InstanceId, ToolErrorCode};
use rockbot_tools::{AbandonedCall, FinishedCall, ToolContext, ToolHook, Verdict};
use serde::Serialize;
use tokio::{
    sync::{mpsc, oneshot},
    time::timeout,
};
use tracing::{error, info, warn};

use crate::{
    failure_policy::OnFailure,
    record::{CallRecord, OutcomeRecord, arguments_text, result_text},
    section::AuditSection,
};

/// Maximum number of queued records. When the queue is full, a call waits until its record fits.
const QUEUED_RECORDS: usize = 1024;
/// Time limit for queueing a record, after which it is lost: a hung disk must not hang calls.
const ENQUEUE_TIMEOUT: Duration = Duration::from_secs(5);

/// The audit file can't be used.
#[derive(Debug, thiserror::Error)]
#[error(
    "audit.file: cannot open {path} for appending: {source}; check the folder and its permissions"
)]
pub struct AuditError {
    path: PathBuf,
    source: io::Error,
}

/// A hook that writes one record for each call.
///
/// Records are queued in memory and written by a thread of their own, so a record is on disk shortly
/// after its call ended, and those in the queue are lost when the process is killed. The file is
/// opened again when it was moved or deleted, so that it can be rotated by renaming it.
#[derive(Debug)]
pub struct AuditLog {
    service: &'static str,
    instance: String,
    /// Records go to a file.
    has_file: bool,
    /// Records go to the log.
    log: bool,
    content: bool,
    on_failure: OnFailure,
    records: Mutex<Option<mpsc::Sender<String>>>,
    finished: Mutex<Option<oneshot::Receiver<()>>>,
    failing: Arc<AtomicBool>,
}

/// A record of the audit log.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct AuditRecord<'a> {
    time: String,
    service: &'a str,
    instance: &'a str,
    #[serde(flatten)]
    call: CallRecord<'a>,
    /// `allowed` or `refused`.
    decision: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<String>,
    #[serde(flatten)]
    outcome: OutcomeRecord<'a>,
    #[serde(skip_serializing_if = "Option::is_none")]
    arguments: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    result: Option<String>,
}

impl AuditLog {
    /// Opens the log that the section describes; `None` when it asks for none.
    ///
    /// # Errors
    /// The file can't be opened, or its writer not started.
    pub fn open(
        section: &AuditSection,
        service: &'static str,
        instance: &InstanceId,
    ) -> Result<Option<Self>, AuditError> {
        if section.file.is_none() && !section.log {
            return Ok(None);
        }
        let failing = Arc::new(AtomicBool::new(false));
        let (mut records, mut finished) = (None, None);
        if let Some(path) = section.file.clone() {
            let writer = Writer::open(path.clone(), failing.clone());
            let started = writer.and_then(Writer::start);
            let (sender, done) = started.map_err(|source| AuditError { path, source })?;
            (records, finished) = (Some(sender), Some(done));
        }
        Ok(Some(Self {
            service,
            instance: instance.as_str().to_owned(),
            has_file: section.file.is_some(),
            log: section.log,
            content: section.content,
            on_failure: section.on_failure,
            records: Mutex::new(records),
            finished: Mutex::new(finished),
            failing,
        }))
    }

    /// Writes the queued records within `grace`. Later records are lost.
    pub async fn close(&self, grace: Duration) {
        drop(self.records.lock().take());
        let finished = self.finished.lock().take();
        if let Some(finished) = finished
            && timeout(grace, finished).await.is_err()
        {
            warn!("audit log not written completely before shutdown");
        }
    }

    /// Returns whether the last record could not be written.
    #[must_use]
    pub fn is_failing(&self) -> bool {
        self.failing.load(Ordering::Relaxed)
    }

    fn record(
        &self,
        context: &ToolContext,
        arguments: &str,
        refusal: Option<String>,
        outcome: OutcomeRecord<'_>,
        result: Option<String>,
    ) -> String {
        let record = AuditRecord {
            time: jiff::Timestamp::now().to_string(),
            service: self.service,
            instance: &self.instance,
            call: CallRecord::new(context, arguments),
            decision: if refusal.is_some() { "refused" } else { "allowed" },
            reason: refusal,
            outcome,
            arguments: self.content.then(|| arguments_text(arguments)),
            result: result.filter(|_| self.content),
        };
        // Strings and numbers always serialize.
        let line = serde_json::to_string(&record).unwrap_or_default();
        if self.log {
            info!(target: "rockbot_audit", record = line, "tool call");
        }
        line
    }

    fn sender(&self) -> Option<mpsc::Sender<String>> {
        self.records.lock().clone()
    }
}

impl ToolHook for AuditLog {
    fn before_execution<'a>(
        &'a self,
        _context: &'a ToolContext,
        _arguments: &'a str,
    ) -> BoxFuture<'a, Verdict> {
        let refuses = self.on_failure == OnFailure::Refuse;
        let closed = self.has_file && self.records.lock().is_none();
        let verdict = if refuses && (closed || self.failing.load(Ordering::Relaxed)) {
            Verdict::Refuse { reason: "the audit log cannot be written at the moment".to_owned() }
        } else {
            Verdict::Allow
        };
        Box::pin(std::future::ready(verdict))
    }

    fn after_execution<'a>(&'a self, call: &'a FinishedCall<'a>) -> BoxFuture<'a, ()> {
        Box::pin(async move {
            let refused = call.end.error == Some(ToolErrorCode::NotPermitted);
            let text = (refused || self.content).then(|| result_text(call));
            let line = self.record(
                call.context,
                call.arguments,
                text.clone().filter(|_| refused),
                OutcomeRecord::new(call.end),
                text,
            );
            if !self.has_file {
                return;
            }
            // Counts the record as lost unless it is queued, also when the caller drops this future.
            let mut loss = LossGuard(Some(&self.failing));
            if let Some(sender) = self.sender()
                && sender.send_timeout(line, ENQUEUE_TIMEOUT).await.is_ok()
            {
                loss.0 = None;
            }
        })
    }

    fn abandoned(&self, call: &AbandonedCall<'_>) {
        let outcome = OutcomeRecord::abandoned(call.elapsed, call.executed);
        let line = self.record(call.context, call.arguments, None, outcome, None);
        if self.has_file && self.sender().is_none_or(|sender| sender.try_send(line).is_err()) {
            lost(&self.failing);
        }
    }
}

/// Reports a record as lost when dropped, unless it was disarmed.
struct LossGuard<'a>(Option<&'a AtomicBool>);

impl Drop for LossGuard<'_> {
    fn drop(&mut self) {
        if let Some(failing) = self.0 {
            lost(failing);
        }
    }
}

/// Counts a lost record, and logs the first of a series.
fn lost(failing: &AtomicBool) {
    counter!("rockbot_audit_records_total", "outcome" => "lost").increment(1);
    if !failing.swap(true, Ordering::Relaxed) {
        error!("audit record lost: the queue of the writer is full or closed");
    }
}

/// Appends lines to the file, in a thread of its own.
#[derive(Debug)]
struct Writer {
    path: PathBuf,
    file: Option<File>,
    failing: Arc<AtomicBool>,
}

impl Writer {
    fn open(path: PathBuf, failing: Arc<AtomicBool>) -> io::Result<Self> {
        let file = append(&path)?;
        Ok(Self { path, file: Some(file), failing })
    }

    fn start(self) -> io::Result<(mpsc::Sender<String>, oneshot::Receiver<()>)> {
        let (sender, receiver) = mpsc::channel(QUEUED_RECORDS);
        let (done, finished) = oneshot::channel();
        thread::Builder::new().name("audit".to_owned()).spawn(move || {
            self.run(receiver);
            let _ = done.send(());
        })?;
        Ok((sender, finished))
    }

    fn run(mut self, mut records: mpsc::Receiver<String>) {
        while let Some(line) = records.blocking_recv() {
            match self.write(&line) {
                Ok(()) => {
                    counter!("rockbot_audit_records_total", "outcome" => "written").increment(1);
                    if self.failing.swap(false, Ordering::Relaxed) {
                        info!("audit log writable again");
                    }
                }
                Err(error) => {
                    self.file = None;
                    counter!("rockbot_audit_records_total", "outcome" => "lost").increment(1);
                    if !self.failing.swap(true, Ordering::Relaxed) {
                        error!(path = %self.path.display(), %error, "audit record not written");
                    }
                }
            }
        }
    }

    fn write(&mut self, line: &str) -> io::Result<()> {
        let mut file = match self.file.take() {
            Some(file) if self.is_current(&file) => file,
            _ => append(&self.path)?,
        };
        file.write_all(format!("{line}\n").as_bytes())?;
        self.file = Some(file);
        Ok(())
    }

    /// Returns whether `file` is still what its path names.
    fn is_current(&self, file: &File) -> bool {
        let identity = |metadata: std::fs::Metadata| (metadata.dev(), metadata.ino());
        match (file.metadata(), std::fs::metadata(&self.path)) {
            (Ok(open), Ok(named)) => identity(open) == identity(named),
            _ => false,
        }
    }
}

/// Opens a file for appending; a new one is readable by its owner only. Completes a line that a killed
/// process or a full disk left unfinished.
fn append(path: &PathBuf) -> io::Result<File> {
    let options = OpenOptions::new().create(true).append(true).read(true).mode(0o600).open(path);
    let mut file = options?;
    let length = file.metadata()?.len();
    if length > 0 {
        let mut last = [0];
        file.read_exact_at(&mut last, length - 1)?;
        if last != *b"\n" {
            file.write_all(b"\n")?;
        }
    }
    Ok(file)
}
