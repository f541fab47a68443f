//! Calls with side effects, 50 in flight, and their outcomes.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex},
    time::Duration,
};

use rand::{RngExt, SeedableRng, rngs::StdRng};
use rockbot_bus::Bus;
use rockbot_contracts::Executed;
use rockbot_testkit::FaultProxy;
use rockbot_tools::{ToolContext, ToolFailure, ToolResult};
use serde_json::{Value, json};
use tokio::{task::JoinSet, time::timeout};

use super::{services::Services, timeline::Timeline};
use crate::caller::Caller;

/// Calls in flight.
pub(super) const IN_FLIGHT: usize = 50;
/// Time after its deadline within which a call ends: 3 s of the requester for the handler's own timeout,
/// and the rest for a busy machine.
pub(super) const GRACE: Duration = Duration::from_secs(6);
/// File to which each command appends a line.
pub(super) const LINES: &str = "lines";
/// File of the read-only calls.
pub(super) const NOTES: &str = "notes.md";
/// Client name of the caller's connections.
pub(super) const CALLER: &str = "chaos-caller";
/// Pause after a call that was refused at once, for example while the database is down.
const BACKOFF: Duration = Duration::from_millis(250);
/// Calls of a caller that is cut.
const CALLS_OF_CUT_CALLER: usize = 6;

/// The kinds of calls of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Mix {
    /// With short deadlines and cancels.
    Full,
    /// With deadlines that outlast every fault.
    Patient,
}

/// A call and its outcome, as its caller knows them.
#[derive(Debug, Clone)]
pub(super) struct CallRecord {
    pub(super) id: String,
    pub(super) tool: &'static str,
    pub(super) caller: String,
    pub(super) sent: Duration,
    pub(super) timeout: Duration,
    pub(super) cancelled: Option<Duration>,
    pub(super) end: Option<CallEnd>,
}

#[derive(Debug, Clone)]
pub(super) struct CallEnd {
    pub(super) at: Duration,
    pub(super) executed: Executed,
    /// Error code; `None` after a success.
    pub(super) code: Option<String>,
    pub(super) text: String,
}

impl CallRecord {
    /// Returns whether it belongs to the caller that lives throughout the run.
    pub(super) fn expects_outcome(&self) -> bool {
        self.caller == CALLER
    }

    pub(super) fn has_side_effect(&self) -> bool {
        self.tool == "bash"
    }
}

impl CallEnd {
    fn new(at: Duration, outcome: &Result<ToolResult, ToolFailure>) -> Self {
        match outcome {
            Ok(result) if result.is_error => Self {
                at,
                executed: Executed::Yes,
                code: Some("tool error".to_owned()),
                text: result.to_text().into_owned(),
            },
            Ok(result) => Self {
                at,
                executed: Executed::Yes,
                code: None,
                text: format!("ran on {:?}", result.ran_on),
            },
            Err(failure) => Self {
                at,
                executed: failure.executed(),
                code: Some(failure.code().to_string()),
                text: format!("{failure} (from {:?})", failure.ran_on()),
            },
        }
    }
}

/// The callers of a run and the records of their calls.
pub(super) struct Load {
    seed: u64,
    mix: Mix,
    timeline: Arc<Timeline>,
    calls: Mutex<BTreeMap<String, CallRecord>>,
    pub(super) caller: Caller,
}

impl Load {
    pub(super) fn new(seed: u64, mix: Mix, bus: Arc<dyn Bus>, timeline: Arc<Timeline>) -> Self {
        // Each call has its own timeout.
        let caller = Caller::for_agent(CALLER, bus, Duration::ZERO);
        Self { seed, mix, timeline, calls: Mutex::default(), caller }
    }

    /// Returns the records of all calls so far.
    pub(super) fn records(&self) -> Vec<CallRecord> {
        self.calls.lock().expect("not poisoned").values().cloned().collect()
    }

    /// Keeps 50 calls in flight until `end`, and returns when each has its outcome.
    pub(super) async fn run(self: Arc<Self>, end: Duration) {
        let mut tasks = JoinSet::new();
        for number in 0..IN_FLIGHT {
            let load = self.clone();
            // A seed of its own for each sequence of calls, in any order of the tasks.
            let mut random = StdRng::seed_from_u64(self.seed ^ ((number as u64 + 1) << 32));
            tasks.spawn(async move {
                while load.timeline.now() < end {
                    load.call(&load.caller, CALLER, &mut random).await;
                }
            });
        }
        while let Some(task) = tasks.join_next().await {
            task.expect("no panic");
        }
    }

    /// Makes a random call and records its outcome.
    async fn call(&self, caller: &Caller, name: &str, random: &mut StdRng) {
        let plan = CallPlan::random(random, self.mix);
        let context = caller.context(plan.tool, plan.timeout);
        let id = context.tool_call_id.to_string();
        let arguments = plan.arguments(&context);
        let sent = self.timeline.now();
        let record = CallRecord {
            id: id.clone(),
            tool: plan.tool,
            caller: name.to_owned(),
            sent,
            timeout: plan.timeout,
            cancelled: None,
            end: None,
        };
        self.calls.lock().expect("not poisoned").insert(id.clone(), record);
        let cancellation = context.cancellation.clone();
        let outcome = async {
            let call = caller.execute(context, &arguments);
            tokio::pin!(call);
            if let Some(after) = plan.cancel_after {
                tokio::select! {
                    outcome = &mut call => return outcome,
                    () = self.timeline.pass(after) => {}
                }
                cancellation.cancel();
                self.update(&id, |record| record.cancelled = Some(self.timeline.now()));
            }
            call.await
        };
        if let Ok(outcome) = timeout(plan.timeout + GRACE, outcome).await {
            let end = CallEnd::new(self.timeline.now(), &outcome);
            let refused = end.executed == Executed::No && end.at < sent + BACKOFF;
            self.update(&id, |record| record.end = Some(end));
            if refused {
                self.timeline.pass(BACKOFF).await;
            }
        }
    }

    fn update(&self, id: &str, change: impl FnOnce(&mut CallRecord)) {
        if let Some(record) = self.calls.lock().expect("not poisoned").get_mut(id) {
            change(record);
        }
    }

    /// Sends calls from another caller, which ends after `time` without waiting for them. A caller that is
    /// cut loses its connection first, so that it cannot cancel its calls.
    pub(super) async fn run_short_lived(
        self: Arc<Self>,
        services: &Services,
        time: Duration,
        seed: u64,
        is_cut: bool,
    ) {
        let proxy = FaultProxy::start(&services.amqp_url).await;
        let Some(bus) = services.connect(proxy.url(), "chaos-short-lived").await else { return };
        let caller = Caller::for_agent("short-lived", bus, Duration::ZERO);
        let mut calls = JoinSet::new();
        for number in 0..CALLS_OF_CUT_CALLER {
            let (load, caller) = (self.clone(), caller.clone());
            let mut random = StdRng::seed_from_u64(seed.wrapping_add(number as u64));
            calls.spawn(async move { load.call(&caller, "short-lived", &mut random).await });
        }
        self.timeline.pass(time).await;
        if is_cut {
            proxy.refuse();
            proxy.cut_all();
        }
        calls.shutdown().await;
    }
}

/// A call to make.
struct CallPlan {
    tool: &'static str,
    timeout: Duration,
    cancel_after: Option<Duration>,
    /// Run time of the command after its side effect, in seconds.
    runs_for: f64,
}

impl CallPlan {
    fn random(random: &mut StdRng, mix: Mix) -> Self {
        let tool = if random.random_bool(0.8) { "bash" } else { "read_file" };
        let runs_for = match random.random_range(0..10) {
            0..5 => 0.0,
            5..9 => random.random_range(0.05..0.6),
            _ => random.random_range(0.6..3.0),
        };
        let timeout = match random.random_range(0..20) {
            _ if mix == Mix::Patient => 60.0,
            0..3 => random.random_range(0.2..3.0),
            3..7 => random.random_range(3.0..10.0),
            _ => 20.0,
        };
        let cancel_after = match random.random_range(0..20) {
            _ if mix == Mix::Patient => None,
            0 => Some(random.random_range(0.0..0.03)),
            1 => Some(random.random_range(0.03..2.0)),
            _ => None,
        };
        Self {
            tool,
            timeout: Duration::from_secs_f64(timeout),
            cancel_after: cancel_after.map(Duration::from_secs_f64),
            runs_for,
        }
    }

    /// Returns arguments with a command that first appends one line: the call, the time and the handler.
    fn arguments(&self, context: &ToolContext) -> Value {
        if self.tool != "bash" {
            return json!({"path": NOTES});
        }
        let mut command = format!("echo {} $EPOCHREALTIME $PPID >> {LINES}", context.tool_call_id);
        if self.runs_for > 0.0 {
            command += &format!("; sleep {:.3}", self.runs_for);
        }
        json!({"command": command})
    }
}
