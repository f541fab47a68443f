//! Random faults under load, checked against the promises of a call.
//!
//! Three handlers share a journal, and a caller has 50 calls in flight whose commands append one line
//! each. A seed determines faults and calls, but not their interleaving. As a test it runs for seconds,
//! on the services of the tests, with faults that others do not notice. `cargo xtask chaos` gives it a
//! seed and a duration, and then it has a broker and a database of its own to stop and crash.

mod checks;
mod handlers;
mod injector;
mod load;
mod observer;
mod processes;
mod report;
mod schedule;
mod services;
mod timeline;
mod turns;
mod violation;

use std::{env, fs, path::PathBuf, sync::Arc, time::Duration};

use rockbot_bus::Bus;
use rockbot_testkit::fixture;
use tempfile::TempDir;
use tokio::{
    task::JoinHandle,
    time::{Instant, MissedTickBehavior},
};

use self::{
    checks::{Observations, check},
    handlers::{HANDLERS, HandlerSettings},
    injector::Injector,
    load::{CALLER, Load, Mix},
    observer::ReplyObserver,
    processes::Processes,
    report::Report,
    services::Services,
    timeline::Timeline,
};
use crate::clocks::Clocks;

/// Variables of `cargo xtask chaos`.
const SEED: &str = "ROCKBOT_CHAOS_SEED";
const SECONDS: &str = "ROCKBOT_CHAOS_SECONDS";
/// Folder for the report, the timelines of violations and the logs.
const FOLDER: &str = "ROCKBOT_CHAOS_FOLDER";

/// Duration of the faults of a test run.
const TEST_DURATION: Duration = Duration::from_secs(12);
/// Calls that a handler runs at a time: few, so that calls wait.
const CONCURRENCY: usize = 10;
/// Backlog of a handler that refuses calls while others are down.
const SMALL_BACKLOG: usize = 30;
/// Backlog of a handler that refuses no call.
const LARGE_BACKLOG: usize = 10 * load::IN_FLIGHT;
/// Interval of progress lines.
const PROGRESS: Duration = Duration::from_secs(10);
/// Time after the last outcome within which queues and processes are empty.
const SETTLE_LIMIT: Duration = Duration::from_secs(60);

/// What to run, from the environment.
struct Options {
    seed: u64,
    duration: Duration,
    /// Set for a run with services of its own.
    folder: Option<PathBuf>,
}

impl Options {
    fn from_environment() -> Self {
        let number = |name| env::var(name).ok().map(|text| text.parse().expect("a number"));
        let folder = env::var_os(FOLDER).map(PathBuf::from);
        let duration = number(SECONDS).map_or(TEST_DURATION, Duration::from_secs);
        Self { seed: number(SEED).unwrap_or(1), duration, folder }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn calls_keep_their_promises_under_random_faults() {
    let options = Options::from_environment();
    let files = TempDir::new().expect("a folder");
    let root = files.path().canonicalize().expect("it exists");
    fs::write(root.join(load::NOTES), "buy milk\n").expect("written");
    let namespace = fixture::fresh_namespace();
    let services = if options.folder.is_some() {
        Services::private(&namespace).await
    } else {
        Services::shared(&namespace, &files.path().join("calls.db"))
    };
    let run = Run::start(options, root, services).await;
    let (report, description) = run.finish().await;
    println!("{description}{:#}", report.to_json());
    assert!(report.counts.succeeded > 0 && !report.faults.is_empty(), "nothing was tested");
    let violations = report.violations.len();
    assert!(violations == 0, "{violations} violations with seed {}", report.seed);
}

/// A run: its processes, callers and observers.
struct Run {
    options: Options,
    /// The folder of the commands.
    root: PathBuf,
    services: Arc<Services>,
    timeline: Arc<Timeline>,
    handlers: Arc<Processes>,
    load: Arc<Load>,
    /// Set for a run with services of its own.
    clocks: Option<Arc<Clocks>>,
    bus: Arc<dyn Bus>,
    observer: ReplyObserver,
}

impl Run {
    async fn start(options: Options, root: PathBuf, services: Services) -> Self {
        let timeline = Arc::new(Timeline::start());
        let is_full = options.folder.is_some();
        let (mix, backlog) =
            if is_full { (Mix::Full, SMALL_BACKLOG) } else { (Mix::Patient, LARGE_BACKLOG) };
        let clocks = if is_full { Some(Arc::new(Clocks::start().await)) } else { None };
        let settings = HandlerSettings {
            folder: &root,
            concurrency: CONCURRENCY,
            backlog,
            clocks: clocks.clone(),
        };
        let launcher = handlers::launcher(&services, &settings);
        let handlers = Arc::new(Processes::start("handler", HANDLERS, launcher, &timeline).await);
        let bus = services.connect(&services.amqp_url, CALLER).await.expect("connected");
        let load = Arc::new(Load::new(options.seed, mix, bus, timeline.clone()));
        let bus = services.connect(&services.amqp_url, "chaos-observer").await.expect("connected");
        let observer = ReplyObserver::start(&bus, timeline.clone()).await;
        let services = Arc::new(services);
        Self { options, root, services, timeline, handlers, load, clocks, bus, observer }
    }

    /// Injects the faults, and returns the report and the description of its violations.
    async fn finish(self) -> (Report, String) {
        let begin = self.timeline.now();
        let end = begin + self.options.duration;
        let schedule =
            if self.options.folder.is_some() { schedule::full } else { schedule::gentle };
        let mut faults = schedule(self.options.seed, self.options.duration);
        faults.iter_mut().for_each(|fault| fault.at += begin);
        let injector = Arc::new(Injector {
            services: self.services.clone(),
            handlers: self.handlers.clone(),
            load: self.load.clone(),
            clocks: self.clocks.clone(),
            timeline: self.timeline.clone(),
        });
        let injected = tokio::spawn(injector.run(faults));
        let loaded = tokio::spawn(self.load.clone().run(end));
        let faults = complete(injected, loaded, async || {
            self.print_progress();
            self.handlers.revive().await;
        })
        .await;
        self.report(faults).await
    }

    /// Prints the numbers so far, and violations that no later event can explain.
    fn print_progress(&self) {
        let observations = self.observe();
        let (counts, violations) = check(&observations);
        let pending = observations.calls.iter().filter(|call| call.expects_outcome());
        let pending = pending.filter(|call| call.end.is_none()).count();
        let early = violations.iter().filter(|violation| violation.kind != "no outcome").count();
        println!(
            "[{:4.0} s] {} calls, {pending} in flight, {} not executed, {} unknown; {early} violations",
            self.timeline.now().as_secs_f64(),
            counts.calls,
            counts.not_executed,
            counts.unknown,
        );
    }

    fn observe(&self) -> Observations {
        Observations {
            calls: self.load.records(),
            lines: observer::read_lines(&self.root.join(load::LINES), &self.timeline),
            replies: self.observer.replies(),
            ..Observations::default()
        }
    }

    async fn report(
        self,
        faults: std::collections::BTreeMap<&'static str, usize>,
    ) -> (Report, String) {
        self.handlers.revive().await;
        self.timeline.record("all faults repaired, all outcomes known");
        let leftovers = self.wait_until_settled().await;
        let requester = &self.load.caller.requester;
        let (late_replies, retries) = (requester.stats().late(), requester.stats().retries());
        let dead_letters = observer::take_dead_letters(&self.bus).await;
        let store = self.services.open_store().await;
        let ids = self.load.records().into_iter().map(|call| call.id);
        let running = observer::running_in_journal(&*store, ids).await;
        store.close().await;
        let records = self.handlers.finish().await;
        let mut observations = self.observe();
        observations.running = running;
        observations.leftovers = leftovers;
        observations.dead_letters = dead_letters;
        observations.handler_problems = records.problems;

        let (counts, violations) = check(&observations);
        let broker = self.bus.inspect(&[]).await.map_or_else(|_| "?".to_owned(), |bus| bus.product);
        let (seed, duration) = (self.options.seed, self.options.duration);
        let report =
            Report { seed, duration, broker, faults, counts, violations, late_replies, retries };
        let description = report.describe(&observations, &self.timeline, &records.logs);
        if let Some(folder) = &self.options.folder {
            report::write_files(
                folder,
                &report.to_json(),
                &description,
                &records.logs,
                &self.timeline,
            );
        }
        (report, description)
    }

    /// Waits until nothing is left of the calls. Returns the rest at the time limit.
    async fn wait_until_settled(&self) -> Vec<String> {
        let limit = Instant::now() + SETTLE_LIMIT;
        let mut ticks = tokio::time::interval(Duration::from_millis(500));
        let mut empty = 0;
        loop {
            ticks.tick().await;
            let left = self.left().await;
            // Twice, because the broker counts once a second.
            empty = if left.is_empty() { empty + 1 } else { 0 };
            if empty == 3 || Instant::now() > limit {
                return left;
            }
        }
    }

    async fn left(&self) -> Vec<String> {
        let mut left = Vec::new();
        match self.services.queues().await {
            None => left.push("the management API is unavailable".to_owned()),
            Some(queues) => left.extend(
                queues
                    .into_iter()
                    // Checked by call; and replies to callers that were cut.
                    .filter(|(name, ..)| !name.ends_with(".dlq") && !name.contains("short-lived"))
                    .map(|(name, ready, unsettled)| {
                        format!("{ready} messages ready and {unsettled} unsettled in {name}")
                    }),
            ),
        }
        let pending = self.load.caller.requester.pending();
        if pending > 0 {
            left.push(format!("{pending} pending requests in the caller"));
        }
        let processes = observer::processes_in(&self.root);
        if !processes.is_empty() {
            left.push(format!("commands still run: {processes:?}"));
        }
        let not_ready = self.handlers.not_ready().await;
        if !not_ready.is_empty() {
            left.push(format!("not ready: {not_ready:?}"));
        }
        left
    }
}

/// Waits for the faults and the load, calls `tick` meanwhile, and returns the injected faults.
async fn complete<F>(
    injected: JoinHandle<F>,
    loaded: JoinHandle<()>,
    mut tick: impl AsyncFnMut(),
) -> F {
    let work = async { (injected.await.expect("no panic"), loaded.await.expect("no panic")) };
    tokio::pin!(work);
    let mut ticks = tokio::time::interval_at(Instant::now() + PROGRESS, PROGRESS);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        tokio::select! {
            (faults, ()) = &mut work => return faults,
            _ = ticks.tick() => tick().await,
        }
    }
}
