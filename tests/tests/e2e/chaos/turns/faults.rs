//! Random kills of the processes that a turn needs, which a seed determines.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use anyhow::Result;
use rand::{RngExt, SeedableRng, rngs::StdRng};
use rockbot_testkit::{broker::PrivateBroker, postgres::PrivatePostgres};
use rustix::process::Signal;
use tokio::task::JoinSet;

use super::agents::REPLICAS;
use crate::chaos::{
    processes::{ProcessSlot, Processes},
    services::{Controlled, Services},
    timeline::Timeline,
};

/// Time before the first fault.
const WARM_UP: Duration = Duration::from_secs(2);
/// Interval of the faults.
const INTERVAL: Duration = Duration::from_secs(2);
/// Handlers of a run.
pub(super) const HANDLERS: usize = 2;

/// A process or service that a fault affects.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Target {
    Agent(usize),
    Handler(usize),
    Broker,
    Database,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Method {
    /// SIGKILL, and a start after the time.
    Kill,
    /// SIGSTOP, and SIGCONT after the time.
    Stop,
    /// SIGTERM, and a start after the exit and the time.
    Terminate,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct TurnFault {
    target: Target,
    method: Method,
    time: Duration,
}

impl TurnFault {
    /// Returns the name of its kind.
    fn kind(self) -> &'static str {
        match (self.method, self.target) {
            (_, Target::Broker) => "kill broker",
            (_, Target::Database) => "kill database",
            (Method::Kill, Target::Agent(_)) => "kill agent",
            (Method::Kill, Target::Handler(_)) => "kill handler",
            (Method::Stop, Target::Agent(_)) => "stop agent",
            (Method::Stop, Target::Handler(_)) => "stop handler",
            (Method::Terminate, Target::Agent(_)) => "terminate agent",
            (Method::Terminate, Target::Handler(_)) => "terminate handler",
        }
    }
}

/// Returns the faults of a run, one each 2 s. `with_services` includes the broker and the database.
pub(super) fn schedule(seed: u64, duration: Duration, with_services: bool) -> Vec<TurnFault> {
    let mut random = StdRng::seed_from_u64(seed);
    let count = duration.saturating_sub(WARM_UP).as_millis() / INTERVAL.as_millis();
    (0..count).map(|_| random_fault(&mut random, with_services)).collect()
}

fn random_fault(random: &mut StdRng, with_services: bool) -> TurnFault {
    let agent = Target::Agent(random.random_range(0..REPLICAS));
    let handler = Target::Handler(random.random_range(0..HANDLERS));
    let kinds = if with_services { 20 } else { 18 };
    let (target, method, range) = match random.random_range(0..kinds) {
        0..7 => (agent, Method::Kill, 0.1..3.0),
        // Longer than a lease.
        7..9 => (agent, Method::Stop, 1.0..9.0),
        9..11 => (agent, Method::Terminate, 0.1..2.0),
        11..15 => (handler, Method::Kill, 0.1..3.0),
        15..16 => (handler, Method::Stop, 0.5..6.0),
        16..18 => (handler, Method::Terminate, 0.1..2.0),
        18..19 => (Target::Broker, Method::Kill, 0.1..2.0),
        _ => (Target::Database, Method::Kill, 0.1..2.0),
    };
    TurnFault { target, method, time: Duration::from_secs_f64(random.random_range(range)) }
}

/// Injects the faults of a run.
pub(super) struct FaultInjector {
    pub(super) services: Arc<Services>,
    pub(super) agents: Arc<Processes>,
    pub(super) handlers: Arc<Processes>,
    pub(super) timeline: Arc<Timeline>,
}

impl FaultInjector {
    /// Injects all faults in time, and returns their numbers by kind when all are repaired.
    pub(super) async fn run(
        self: Arc<Self>,
        faults: Vec<TurnFault>,
    ) -> BTreeMap<&'static str, usize> {
        let mut tasks = JoinSet::new();
        self.timeline.pass(WARM_UP).await;
        for fault in faults {
            let injector = self.clone();
            tasks.spawn(async move { (fault, injector.inject(fault).await) });
            self.timeline.pass(INTERVAL).await;
        }
        let mut counts = BTreeMap::new();
        while let Some(task) = tasks.join_next().await {
            let (fault, is_injected) = task.expect("no panic");
            if is_injected {
                *counts.entry(fault.kind()).or_default() += 1;
            }
        }
        counts
    }

    /// Returns `false` if the service, or each process of the kind, has another fault.
    async fn inject(&self, fault: TurnFault) -> bool {
        let slot = match fault.target {
            Target::Agent(index) => self.agents.reserve(index),
            Target::Handler(index) => self.handlers.reserve(index),
            Target::Broker => {
                let broker = Service {
                    name: "broker",
                    server: self.services.broker(),
                    crash: PrivateBroker::crash,
                    restart: PrivateBroker::restart,
                };
                return broker.interrupt(fault.time, &self.timeline).await;
            }
            Target::Database => {
                let database = Service {
                    name: "database",
                    server: self.services.database(),
                    crash: PrivatePostgres::crash,
                    restart: PrivatePostgres::restart,
                };
                return database.interrupt(fault.time, &self.timeline).await;
            }
        };
        let Some(mut slot) = slot else { return false };
        interrupt(&mut slot, fault, &self.timeline).await;
        true
    }
}

/// A service and how it is killed and started again.
struct Service<'a, S> {
    name: &'static str,
    server: &'a Controlled<S>,
    crash: fn(&mut S) -> Result<()>,
    restart: fn(&mut S) -> Result<()>,
}

impl<S: Send + 'static> Service<'_, S> {
    /// Returns `false` if the service has another fault.
    async fn interrupt(&self, time: Duration, timeline: &Timeline) -> bool {
        let Some(_fault) = self.server.reserve() else { return false };
        timeline.record_outage(self.name);
        self.server.run(self.crash).await;
        timeline.pass(time).await;
        self.server.run(self.restart).await;
        timeline.record_end_of_outage(self.name);
        true
    }
}

async fn interrupt(slot: &mut ProcessSlot, fault: TurnFault, timeline: &Timeline) {
    slot.revive().await;
    match fault.method {
        Method::Kill => slot.kill().await,
        Method::Terminate => slot.terminate().await,
        Method::Stop => {
            slot.send(Signal::STOP, "SIGSTOP");
            timeline.pass(fault.time).await;
            slot.send(Signal::CONT, "SIGCONT");
            return;
        }
    }
    timeline.pass(fault.time).await;
    slot.launch();
}

#[test]
fn seed_determines_turn_faults() {
    let faults = |seed| schedule(seed, Duration::from_secs(60), true);
    assert_eq!(faults(1), faults(1));
    assert_ne!(faults(1), faults(2));
    assert_eq!(faults(1).len(), 29);
}
