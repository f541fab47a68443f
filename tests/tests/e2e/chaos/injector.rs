//! Injection of the scheduled faults, and their repair.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use rockbot_testkit::{broker::PrivateBroker, postgres::PrivatePostgres};
use rustix::process::Signal;
use tokio::task::JoinSet;

use super::{
    load::{CALLER, Load},
    processes::Processes,
    schedule::{Fault, ScheduledFault},
    services::Services,
    timeline::Timeline,
};
use crate::clocks::Clocks;

/// Client name of the handlers' connections, before their instance.
const HANDLER_CONNECTIONS: &str = "tool-handler/";

/// Injects faults into a run.
pub(super) struct Injector {
    pub(super) services: Arc<Services>,
    pub(super) handlers: Arc<Processes>,
    pub(super) load: Arc<Load>,
    /// Set if faults change clocks.
    pub(super) clocks: Option<Arc<Clocks>>,
    pub(super) timeline: Arc<Timeline>,
}

/// Outcome of an injection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Injection {
    Done,
    /// What it affects had another fault.
    Skipped,
}

impl Injector {
    /// Injects all faults in time, and returns their numbers by kind when all are repaired.
    pub(super) async fn run(
        self: Arc<Self>,
        faults: Vec<ScheduledFault>,
    ) -> BTreeMap<&'static str, usize> {
        let mut tasks = JoinSet::new();
        for ScheduledFault { at, fault } in faults {
            self.timeline.wait_until(at).await;
            let injector = self.clone();
            tasks.spawn(async move { (fault, injector.inject(fault).await) });
        }
        let mut counts = BTreeMap::new();
        while let Some(task) = tasks.join_next().await {
            let (fault, injection) = task.expect("no panic");
            if injection == Injection::Done {
                *counts.entry(fault.kind()).or_default() += 1;
            }
        }
        counts
    }

    async fn inject(&self, fault: Fault) -> Injection {
        match fault {
            Fault::KillHandler(index, time) | Fault::TerminateHandler(index, time) => {
                let Some(mut slot) = self.handlers.reserve(index) else {
                    return Injection::Skipped;
                };
                slot.revive().await;
                if matches!(fault, Fault::KillHandler(..)) {
                    slot.kill().await;
                } else {
                    slot.terminate().await;
                }
                self.timeline.pass(time).await;
                slot.launch();
            }
            Fault::HangHandler(index, time) | Fault::HangDisconnectedHandler(index, time) => {
                let Some(mut slot) = self.handlers.reserve(index) else {
                    return Injection::Skipped;
                };
                slot.revive().await;
                slot.send(Signal::STOP, "SIGSTOP");
                if matches!(fault, Fault::HangDisconnectedHandler(..)) {
                    let prefix = format!("{HANDLER_CONNECTIONS}{}", slot.name);
                    self.close_connections(&prefix).await;
                }
                self.timeline.pass(time).await;
                slot.send(Signal::CONT, "SIGCONT");
            }
            Fault::ChangeClock(index, offset, time) => self.change_clock(index, offset, time).await,
            Fault::DisconnectHandler(index) => {
                let prefix = format!("{HANDLER_CONNECTIONS}handler-{}", index + 1);
                self.close_connections(&prefix).await;
            }
            Fault::DisconnectCaller => self.close_connections(CALLER).await,
            Fault::DisconnectAll => self.close_connections("").await,
            Fault::StopBroker(time) | Fault::CrashBroker(time) => {
                return self.interrupt_broker(fault, time).await;
            }
            Fault::PauseDatabase(time) | Fault::CrashDatabase(time) => {
                return self.interrupt_database(fault, time).await;
            }
            Fault::DeleteReplyQueue => {
                let queue = self.load.caller.requester.address().queue().name;
                let deleted = self.services.delete_queue(queue.as_str()).await;
                self.timeline.record(format!("reply queue deleted: {deleted}"));
            }
            Fault::CutCaller(time, seed) | Fault::DropCaller(time, seed) => {
                let is_cut = matches!(fault, Fault::CutCaller(..));
                self.load.clone().run_short_lived(&self.services, time, seed, is_cut).await;
                self.timeline.record(fault.to_string());
            }
        }
        Injection::Done
    }

    /// Sets the clock of a handler, also of one that is started meanwhile.
    async fn change_clock(&self, index: usize, offset: i64, time: Duration) {
        let clocks = self.clocks.as_ref().expect("scheduled with clocks only");
        let handler = format!("handler-{}", index + 1);
        self.timeline.record(format!("clock of {handler} {offset:+} s"));
        clocks.set(&handler, offset);
        self.timeline.pass(time).await;
        clocks.set(&handler, 0);
        self.timeline.record(format!("clock of {handler} correct"));
    }

    async fn close_connections(&self, prefix: &str) {
        let closed = self.services.close_connections(prefix).await;
        self.timeline.record(format!("{closed} connections of {prefix:?} closed"));
    }

    async fn interrupt_broker(&self, fault: Fault, time: Duration) -> Injection {
        let broker = self.services.broker();
        let Some(_fault) = broker.reserve() else { return Injection::Skipped };
        self.timeline.record(fault.to_string());
        if matches!(fault, Fault::StopBroker(_)) {
            broker.run(PrivateBroker::shut_down).await;
        } else {
            broker.run(PrivateBroker::crash).await;
        }
        self.timeline.record("broker is down");
        self.timeline.pass(time).await;
        broker.run(PrivateBroker::restart).await;
        self.timeline.record("broker is up");
        Injection::Done
    }

    async fn interrupt_database(&self, fault: Fault, time: Duration) -> Injection {
        let database = self.services.database();
        let Some(_fault) = database.reserve() else { return Injection::Skipped };
        self.timeline.record(fault.to_string());
        if matches!(fault, Fault::PauseDatabase(_)) {
            database.run(PrivatePostgres::pause).await;
            self.timeline.pass(time).await;
            database.run(PrivatePostgres::resume).await;
        } else {
            database.run(PrivatePostgres::crash).await;
            self.timeline.pass(time).await;
            database.run(PrivatePostgres::restart).await;
        }
        self.timeline.record("database is up");
        Injection::Done
    }
}
