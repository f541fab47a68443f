//! Three tool handlers that share a journal, and are killed, stopped and started again.

use std::{path::Path, sync::Arc, time::Duration};

use rustix::process::Signal;
use tokio::{
    sync::{Mutex, OwnedMutexGuard},
    time::timeout,
};

use super::{services::Services, timeline::Timeline};
use crate::{binaries, process::Running};

pub(super) const HANDLERS: usize = 3;

/// Time that a handler takes for its running calls after SIGTERM.
const DRAIN: &str = "6s";
/// Time after SIGTERM within which a handler exits.
const EXIT_LIMIT: Duration = Duration::from_secs(20);

/// The handlers. A fault reserves the handler that it affects.
pub(super) struct Handlers {
    slots: Vec<Arc<Mutex<HandlerSlot>>>,
}

/// A handler, its incarnations one after another.
pub(super) struct HandlerSlot {
    pub(super) name: String,
    settings: Arc<Settings>,
    timeline: Arc<Timeline>,
    running: Option<Running>,
    launches: usize,
    /// Logs of the incarnations that have ended.
    logs: Vec<(String, String)>,
    problems: Vec<String>,
}

struct Settings {
    folder: std::path::PathBuf,
    amqp_url: String,
    namespace: String,
    store_url: String,
    /// Calls that a handler holds in addition to the running ones.
    backlog: usize,
}

/// Logs and exits of all incarnations.
#[derive(Default)]
pub(super) struct HandlerRecords {
    /// Name and log of each incarnation.
    pub(super) logs: Vec<(String, String)>,
    /// Exits that no fault explains, and panics.
    pub(super) problems: Vec<String>,
}

impl Handlers {
    pub(super) async fn start(
        folder: &Path,
        services: &Services,
        backlog: usize,
        timeline: &Arc<Timeline>,
    ) -> Self {
        let settings = Arc::new(Settings {
            folder: folder.to_owned(),
            amqp_url: services.amqp_url.clone(),
            namespace: services.namespace.clone(),
            store_url: services.store_url.clone(),
            backlog,
        });
        let mut slots = Vec::new();
        for number in 1..=HANDLERS {
            let mut slot = HandlerSlot {
                name: format!("handler-{number}"),
                settings: settings.clone(),
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

    /// Reserves a handler, or the next one without a fault; `None` if each has one.
    pub(super) fn reserve(&self, index: usize) -> Option<OwnedMutexGuard<HandlerSlot>> {
        (0..HANDLERS).find_map(|offset| {
            self.slots[(index + offset) % HANDLERS].clone().try_lock_owned().ok()
        })
    }

    /// Replaces handlers that exited without a fault.
    pub(super) async fn revive(&self) {
        for slot in &self.slots {
            if let Ok(mut slot) = slot.clone().try_lock_owned() {
                slot.revive().await;
            }
        }
    }

    /// Returns the names of the handlers whose log does not show that they serve.
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

    /// Terminates all handlers, and returns their records.
    pub(super) async fn finish(&self) -> HandlerRecords {
        let mut records = HandlerRecords::default();
        for slot in &self.slots {
            let mut slot = slot.lock().await;
            slot.terminate().await;
            records.logs.append(&mut slot.logs);
            records.problems.append(&mut slot.problems);
        }
        records
    }
}

impl HandlerSlot {
    pub(super) fn launch(&mut self) {
        let settings = &self.settings;
        let mut command = tokio::process::Command::new(binaries::path("rockbot-tool-handler"));
        command
            .current_dir("/")
            .env_clear()
            .env("PATH", std::env::var_os("PATH").unwrap_or_default())
            .env("ROCKBOT_LOG__FORMAT", "text")
            .env("ROCKBOT_LOG__LEVEL", "info,rockbot_tool_rpc=debug,rockbot_bus=debug")
            .env("ROCKBOT_SERVICE__INSTANCE", &self.name)
            .env("ROCKBOT_SERVICE__DRAIN", DRAIN)
            .env("ROCKBOT_BUS__URL", &settings.amqp_url)
            .env("ROCKBOT_BUS__NAMESPACE", &settings.namespace)
            .env("ROCKBOT_STORE__URL", &settings.store_url)
            .env("ROCKBOT_STORE__SHARED", "true")
            .env("ROCKBOT_FILES__ROOT", &settings.folder)
            // Few permits, so that calls wait.
            .env("ROCKBOT_HANDLER__CONCURRENCY", "10")
            .env("ROCKBOT_HANDLER__BACKLOG", settings.backlog.to_string());
        self.running = Some(Running::start(command));
        self.launches += 1;
        self.timeline.record(format!("{} started ({})", self.name, self.launches));
    }

    pub(super) fn send(&self, signal: Signal, name: &str) {
        if let Some(running) = &self.running {
            running.send(signal);
            self.timeline.record(format!("{} {name}", self.name));
        }
    }

    pub(super) async fn kill(&mut self) {
        self.send(Signal::KILL, "SIGKILL");
        self.collect().await;
    }

    /// Terminates the handler in order, which must succeed in time.
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

    /// Replaces the handler if it exited without a fault.
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
