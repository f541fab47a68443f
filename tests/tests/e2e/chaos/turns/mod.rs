//! Random kills under turns, checked against the promises of a turn.
//!
//! Three replicas of an agent share its conversations, and two handlers share a journal. The model is a
//! server whose answers depend on the request alone. Users of many conversations have turns of 1 to 8
//! steps in flight, whose commands append one line each. As a test it runs for seconds on the broker of
//! the tests. `cargo xtask chaos --turns` gives it a seed and a duration, and then it has a broker and a
//! database of its own to kill.

mod agents;
mod answers;
mod checks;
mod explanation;
mod faults;
mod load;
mod model_server;
mod plan;
mod recorded;
mod report;

use std::{collections::BTreeMap, fs, path::Path, sync::Arc, time::Duration};

use rockbot_bus::Bus;
use rockbot_store::{Clock, StoreUrl, Stores};
use rockbot_testkit::fixture;
use tempfile::TempDir;
use tokio::time::Instant;

use self::{
    agents::REPLICAS,
    answers::AnswerObserver,
    checks::{Observations, check},
    faults::{FaultInjector, HANDLERS},
    load::{Load, LoadSize},
    model_server::ModelServer,
    report::Report,
};
use super::{
    Options, SETTLE_LIMIT, complete,
    handlers::{self, HandlerSettings},
    load::{LINES, NOTES},
    observer,
    processes::Processes,
    services::Services,
    timeline::Timeline,
};

/// The load of a run with services of its own.
const FULL: LoadSize = LoadSize { conversations: 200, in_flight: 200 };
/// The load of a run that shares its machine with other tests.
const GENTLE: LoadSize = LoadSize { conversations: 24, in_flight: 8 };
/// Calls that a handler runs at a time, and holds in addition.
const CONCURRENCY: usize = 32;
const BACKLOG: usize = 200;

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn turns_keep_their_promises_under_random_kills() {
    let options = Options::from_environment();
    let files = TempDir::new().expect("a folder");
    let root = files.path().canonicalize().expect("it exists");
    fs::write(root.join(NOTES), "buy milk\n").expect("written");
    let namespace = fixture::fresh_namespace();
    let services = if options.folder.is_some() {
        Services::private(&namespace).await
    } else {
        Services::shared(&namespace, &files.path().join("calls.db"))
    };
    let run = Run::start(options, &root, services).await;
    let (report, description) = run.finish().await;
    println!("{description}{:#}", report.to_json());
    assert!(report.counts.completed > 0 && !report.faults.is_empty(), "nothing was tested");
    let violations = report.violations.len();
    assert!(violations == 0, "{violations} violations with seed {}", report.seed);
}

/// A run: its processes, users and observers.
struct Run {
    options: Options,
    root: std::path::PathBuf,
    services: Arc<Services>,
    timeline: Arc<Timeline>,
    agents: Arc<Processes>,
    handlers: Arc<Processes>,
    model: ModelServer,
    load: Arc<Load>,
    bus: Arc<dyn Bus>,
    observer: AnswerObserver,
    conversations: String,
}

impl Run {
    async fn start(options: Options, root: &Path, services: Services) -> Self {
        let timeline = Arc::new(Timeline::start());
        let is_full = options.folder.is_some();
        let conversations = if is_full {
            services.store_url.clone()
        } else {
            format!("sqlite:{}", root.join("conversations.db").display())
        };
        let settings = HandlerSettings {
            folder: root,
            concurrency: CONCURRENCY,
            backlog: BACKLOG,
            clocks: None,
        };
        let launcher = handlers::launcher(&services, &settings);
        let handlers = Processes::start("handler", HANDLERS, launcher, &timeline).await;
        let model = ModelServer::start(timeline.clone()).await;
        let launcher = agents::launcher(&services, &conversations, &model.base_url());
        let agents = Processes::start("agent", REPLICAS, launcher, &timeline).await;
        let connect = async |name| services.connect(&services.amqp_url, name).await;
        let bus = connect("chaos-user").await.expect("connected");
        let size = if is_full { FULL } else { GENTLE };
        let load = Load::start(options.seed, size, bus, timeline.clone()).await;
        let bus = connect("chaos-observer").await.expect("connected");
        let observer = AnswerObserver::start(&bus).await;
        Self {
            options,
            root: root.to_owned(),
            services: Arc::new(services),
            timeline,
            agents: Arc::new(agents),
            handlers: Arc::new(handlers),
            model,
            load: Arc::new(load),
            bus,
            observer,
            conversations,
        }
    }

    /// Injects the faults, and returns the report and the description of its violations.
    async fn finish(self) -> (Report, String) {
        let Options { seed, duration, folder } = &self.options;
        let faults = faults::schedule(*seed, *duration, folder.is_some());
        let end = self.timeline.now() + *duration;
        let injector = Arc::new(FaultInjector {
            services: self.services.clone(),
            agents: self.agents.clone(),
            handlers: self.handlers.clone(),
            timeline: self.timeline.clone(),
        });
        let injected = tokio::spawn(injector.run(faults));
        let loaded = tokio::spawn(self.load.clone().run(end));
        let faults = complete(injected, loaded, async || {
            self.print_progress();
            self.agents.revive().await;
            self.handlers.revive().await;
        })
        .await;
        self.report(faults).await
    }

    fn print_progress(&self) {
        let records = self.load.records();
        let answered = records.iter().filter(|record| record.answer.is_some()).count();
        let resumed: usize = records.iter().map(|record| record.resumed).sum();
        let lines = observer::read_lines(&self.root.join(LINES), &self.timeline);
        let twice = lines.values().filter(|lines| lines.len() > 1).count();
        println!(
            "[{:4.0} s] {} turns, {answered} answered, {resumed} resumed, {} lines, {twice} twice",
            self.timeline.now().as_secs_f64(),
            records.len(),
            lines.len(),
        );
    }

    async fn report(self, faults: BTreeMap<&'static str, usize>) -> (Report, String) {
        self.agents.revive().await;
        self.handlers.revive().await;
        self.timeline.record("all faults repaired, all answers read");
        let stores = self.open_stores().await;
        let leftovers = self.wait_until_settled(&stores).await;
        let conversations = recorded::read_conversations(&*stores.log, &self.timeline).await;
        stores.close().await;
        let mut records = self.agents.finish().await;
        let of_handlers = self.handlers.finish().await;
        records.logs.extend(of_handlers.logs);
        records.problems.extend(of_handlers.problems);
        let observations = Observations {
            turns: self.load.records(),
            conversations,
            lines: observer::read_lines(&self.root.join(LINES), &self.timeline),
            answers: self.observer.replies(),
            model: self.model.seen(),
            signals: self.timeline.signals(),
            leftovers,
            process_problems: records.problems,
        };
        let (counts, violations) = check(&observations);
        let broker = self.bus.inspect(&[]).await.map_or_else(|_| "?".to_owned(), |bus| bus.product);
        let Options { seed, duration, folder } = self.options;
        let report = Report { seed, duration, broker, faults, counts, violations };
        let description = report.describe(&observations, &self.timeline, &records.logs);
        if let Some(folder) = &folder {
            let json = report.to_json();
            super::report::write_files(folder, &json, &description, &records.logs, &self.timeline);
        }
        (report, description)
    }

    async fn open_stores(&self) -> Stores {
        let url = StoreUrl::parse(&self.conversations.clone().into()).expect("its URL");
        rockbot_store_sql::connect_stores(&url, Clock::System).await.expect("the store")
    }

    /// Waits until nothing is left of the turns. Returns the rest at the time limit.
    async fn wait_until_settled(&self, stores: &Stores) -> Vec<String> {
        let limit = Instant::now() + SETTLE_LIMIT;
        let mut ticks = tokio::time::interval(Duration::from_millis(500));
        let mut empty = 0;
        loop {
            ticks.tick().await;
            let left = self.left(stores).await;
            // Twice, because the broker counts once a second.
            empty = if left.is_empty() { empty + 1 } else { 0 };
            if empty == 3 || Instant::now() > limit {
                return left;
            }
        }
    }

    async fn left(&self, stores: &Stores) -> Vec<String> {
        let mut left = recorded::unfinished_turns(&*stores.store).await;
        match self.services.queues().await {
            None => left.push("the management API is unavailable".to_owned()),
            Some(queues) => left.extend(queues.into_iter().map(|(name, ready, unsettled)| {
                format!("{ready} messages ready and {unsettled} unsettled in {name}")
            })),
        }
        let processes = observer::processes_in(&self.root);
        if !processes.is_empty() {
            left.push(format!("commands still run: {processes:?}"));
        }
        for processes in [&self.agents, &self.handlers] {
            let not_ready = processes.not_ready().await;
            if !not_ready.is_empty() {
                left.push(format!("not ready: {not_ready:?}"));
            }
        }
        left
    }
}
