//! Processes of one kind that are killed, stopped and started again.

use std::{sync::Arc, time::Duration};

use rustix::process::Signal;
use tokio::{
    process::Command,
    sync::{Mutex, OwnedMutexGuard},
    time::timeout,
};

use super::timeline::Timeline;
use crate::process::Running;

/// Time after SIGTERM within which a process exits: an agent without a broker gives its turns 6 s, cancels the rest
/// within 10 s, and waits 20 s to publish.
const EXIT_LIMIT: Duration = Duration::from_secs(45);

/// Returns the command that starts the process of a name.
pub(super) type Launcher = dyn Fn(&str) -> Command + Send + Sync;

/// The processes of one kind. A fault reserves the process that it affects.
pub(super) struct Processes {
    slots: Vec<Arc<Mutex<ProcessSlot>>>,
}

/// A process, its incarnations one after another.
pub(super) struct ProcessSlot {
    pub(super) name: String,
    launcher: Arc<Launcher>,
    timeline: Arc<Timeline>,
    running: Option<Running>,
    launches: usize,
    /// Logs of the incarnations that have ended.
    logs: Vec<(String, String)>,
    problems: Vec<String>,
}

/// Logs and exits of all incarnations.
#[derive(Default)]
pub(super) struct ProcessRecords {
    /// Name and log of each incarnation.
    pub(super) logs: Vec<(String, String)>,
    /// Exits that no fault explains, and panics.
    pub(super) problems: Vec<String>,
}

impl Processes {
    /// Starts `<kind>-1` to `<kind>-<count>`, and waits until each is ready.
    pub(super) async fn start(
        kind: &str,
        count: usize,
        launcher: impl Fn(&str) -> Command + Send + Sync + 'static,
        timeline: &Arc<Timeline>,
    ) -> Self {
        let launcher: Arc<Launcher> = Arc::new(launcher);
        let mut slots = Vec::new();
        for number in 1..=count {
            let mut slot = ProcessSlot {
                name: format!("{kind}-{number}"),
                launcher: launcher.clone(),
                timeline: timeline.clone(),
                running: None,
                launches: 0,
                logs: Vec::new(),
                problems: Vec::new(),
            };
            slot.launch();
            slot.running.as_mut().expect("launched").expect_log("ready").await;
            slots.push(Arc::new(Mutex::new(slot)));
        }
        Self { slots }
    }

    /// Reserves a process, or the next one without a fault; `None` if each has one.
    pub(super) fn reserve(&self, index: usize) -> Option<OwnedMutexGuard<ProcessSlot>> {
        let count = self.slots.len();
        (0..count)
            .find_map(|offset| self.slots[(index + offset) % count].clone().try_lock_owned().ok())
    }

    /// Replaces processes that exited without a fault.
    pub(super) async fn revive(&self) {
        for slot in &self.slots {
            if let Ok(mut slot) = slot.clone().try_lock_owned() {
                slot.revive().await;
            }
        }
    }

    /// Returns the names of the processes whose log does not show that they serve.
    pub(super) async fn not_ready(&self) -> Vec<String> {
        let mut names = Vec::new();
        for slot in &self.slots {
            let slot = slot.lock().await;
            let ready =
                slot.running.as_ref().is_some_and(|running| running.log().contains("ready"));
            if !ready {
                names.push(slot.name.clone());
            }
        }
        names
    }

    /// Terminates all processes, and returns their records.
    pub(super) async fn finish(&self) -> ProcessRecords {
        let mut records = ProcessRecords::default();
        for slot in &self.slots {
            let mut slot = slot.lock().await;
            slot.terminate().await;
            records.logs.append(&mut slot.logs);
            records.problems.append(&mut slot.problems);
        }
        records
    }
}

impl ProcessSlot {
    pub(super) fn launch(&mut self) {
        let command = (self.launcher)(&self.name);
        self.running = Some(Running::start(command));
        self.launches += 1;
        self.timeline.record(format!("{} started ({})", self.name, self.launches));
    }

    pub(super) fn send(&self, signal: Signal, name: &str) {
        if let Some(running) = &self.running {
            running.send(signal);
            self.timeline.record_signal(&self.name, running.pid(), name);
        }
    }

    pub(super) async fn kill(&mut self) {
        self.send(Signal::KILL, "SIGKILL");
        self.collect().await;
    }

    /// Terminates the process in order, which must succeed in time.
    pub(super) async fn terminate(&mut self) {
        self.revive().await;
        self.send(Signal::TERM, "SIGTERM");
        let Some(running) = &mut self.running else { return };
        if timeout(EXIT_LIMIT, running.wait_for_exit()).await.is_err() {
            self.problem(format!("did not exit within {} s of SIGTERM", EXIT_LIMIT.as_secs()));
            return self.kill().await;
        }
        if let Some(code) = self.collect().await.filter(|code| *code != 0) {
            self.problem(format!("exited with {code} after SIGTERM"));
        }
        self.timeline.record(format!("{} exited", self.name));
    }

    /// Replaces the process if it exited without a fault.
    pub(super) async fn revive(&mut self) {
        if self.running.as_mut().is_some_and(|running| !running.is_alive()) {
            let code = self.collect().await;
            self.problem(format!("exited without a fault, code {code:?}"));
            self.launch();
        }
    }

    /// Waits for the exit, keeps the log and returns the exit code.
    async fn collect(&mut self) -> Option<i32> {
        let exit = self.running.take()?.finish().await;
        if let Some(line) = exit.stderr.lines().find(|line| line.contains("panicked")) {
            let line = line.to_owned();
            self.problem(line);
        }
        self.logs.push((format!("{}.{}", self.name, self.launches), exit.stderr));
        exit.code
    }

    fn problem(&mut self, text: impl AsRef<str>) {
        let text = format!("{}.{}: {}", self.name, self.launches, text.as_ref());
        self.timeline.record(text.clone());
        self.problems.push(text);
    }
}
