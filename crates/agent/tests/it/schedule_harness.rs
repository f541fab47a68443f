//! Processes of an agent with scheduled tasks, on a clock that the test controls.

use std::{
    sync::{
        Arc,
        atomic::{AtomicI64, Ordering},
    },
    time::Duration,
};

use futures_util::future::BoxFuture;
use rockbot_agent::{
    Agent, AgentClient, AgentInbox, ConversationOptions, ConversationService,
    ConversationServiceBuilder, Conversations, Schedule, ScheduleSection, Scheduler, Sharing,
    serve_shared,
};
use rockbot_bus::{Bus, MemoryBus};
use rockbot_contracts::{
    AgentName, InstanceId, ScheduleRequest, ScheduleResponse,
    schedule::{NewTask, ScheduledTaskInfo},
};
use rockbot_store::{ManualClock, Store, StoreError, Stores, Timestamp, Write, Written};
use rockbot_testkit::{InterceptedStore, StoreInterceptor, fixture::wait_until};
use tokio::time::sleep;

use crate::harness::{AgentFixture, RecordingModel};

/// The bus, the stores and the clock of all processes.
pub(crate) struct Site {
    pub(crate) clock: ManualClock,
    pub(crate) stores: Stores,
    pub(crate) bus: Arc<dyn Bus>,
}

/// A process of the agent. Dropping it is a crash.
pub(crate) struct Process {
    pub(crate) agent: Agent,
    pub(crate) model: Arc<RecordingModel>,
    pub(crate) client: AgentClient,
    _scheduler: Scheduler,
    _inbox: AgentInbox,
    _service: ConversationService,
}

impl Site {
    /// Creates a site whose clock shows `now`, in UTC.
    pub(crate) fn at(now: &str) -> Self {
        let clock = ManualClock::new();
        let stores = Stores::memory((&clock).into());
        let site = Self { clock, stores, bus: Arc::new(MemoryBus::new()) };
        site.set(now);
        site
    }

    /// Sets the clock to a later time, in UTC.
    pub(crate) fn set(&self, now: &str) {
        let now: jiff::Timestamp = now.parse().unwrap();
        let now = Timestamp::from_millis(now.as_millisecond());
        self.clock.advance(now.since(self.clock.now()));
    }

    pub(crate) async fn start(&self, name: &str, model: &Arc<RecordingModel>) -> Process {
        self.start_with(name, model, ScheduleSection::default(), self.stores.store.clone()).await
    }

    /// Starts a process whose tasks and leases are in `store`.
    pub(crate) async fn start_with(
        &self,
        name: &str,
        model: &Arc<RecordingModel>,
        section: ScheduleSection,
        store: Arc<dyn Store>,
    ) -> Process {
        let instance = InstanceId::new(name).unwrap();
        let options =
            ConversationOptions { instance: instance.clone(), ..ConversationOptions::default() };
        let log = self.stores.log.clone();
        let conversations = Conversations::new(log, store.clone(), tester(), options);
        let schedule = Schedule::new(&conversations, section, None);
        let mut fixture = AgentFixture::new();
        for tool in schedule.tools() {
            fixture.registry.register(tool).unwrap();
        }
        fixture.context.push(schedule.clone());
        fixture.conversations = Some(conversations);
        let agent = fixture.agent(model);
        let (bus, sharing) = (self.bus.clone(), Sharing::new(store, instance.clone()));
        let inbox = serve_shared(agent.clone(), bus.clone(), 16, sharing).await.unwrap();
        let server = ConversationServiceBuilder::for_agent(agent.clone());
        let server = server.with_schedule(Some(schedule.clone()));
        let service = server.serve(bus.clone()).await.unwrap();
        let scheduler = Scheduler::start(schedule, agent.clone(), bus.clone(), &inbox);
        let client = AgentClient::connect(bus, &instance).await.unwrap();
        Process {
            agent,
            model: model.clone(),
            client,
            _scheduler: scheduler,
            _inbox: inbox,
            _service: service,
        }
    }
}

impl Process {
    /// Sends a request. Returns the text of the response, also of a refusal.
    pub(crate) async fn request(&self, request: ScheduleRequest) -> Result<String, String> {
        match self.client.request_schedule(&tester(), &request).await {
            Ok(ScheduleResponse::Done { message }) => Ok(message),
            Ok(other) => panic!("{other:?}"),
            Err(error) => Err(error.to_string()),
        }
    }

    pub(crate) async fn add(&self, name: &str, cron: &str) {
        self.request(ScheduleRequest::Add { task: new_task(name, cron) }).await.unwrap();
    }

    pub(crate) async fn tasks(&self) -> Vec<ScheduledTaskInfo> {
        match self.client.request_schedule(&tester(), &ScheduleRequest::List {}).await.unwrap() {
            ScheduleResponse::Tasks { tasks, .. } => tasks,
            other => panic!("{other:?}"),
        }
    }

    pub(crate) async fn task(&self, name: &str) -> ScheduledTaskInfo {
        let tasks = self.tasks().await;
        tasks.into_iter().find(|task| task.name == name).expect("the task exists")
    }

    /// Waits until the tasks are as expected.
    pub(crate) async fn wait_for(&self, is_met: impl Fn(&[ScheduledTaskInfo]) -> bool) {
        for _ in 0..600 {
            if is_met(&self.tasks().await) {
                return;
            }
            sleep(Duration::from_millis(100)).await;
        }
        panic!("not reached within a minute: {:#?}", self.tasks().await);
    }

    /// Waits until the model got this number of requests.
    pub(crate) async fn wait_for_requests(&self, count: usize) {
        wait_until("requests to the model", || self.model.request_count() >= count).await;
    }
}

/// Lets every process scan the tasks several times.
pub(crate) async fn several_scans() {
    sleep(Duration::from_secs(20)).await;
}

pub(crate) fn tester() -> AgentName {
    AgentName::new("tester").unwrap()
}

/// Returns a task of UTC.
pub(crate) fn new_task(name: &str, cron: &str) -> NewTask {
    NewTask {
        name: name.to_owned(),
        cron: cron.to_owned(),
        description: "Check the disk.".to_owned(),
        run_once: false,
        timezone: Some("UTC".to_owned()),
    }
}

/// The n-th write of a scheduled task is not confirmed.
pub(crate) struct UnconfirmedWrite {
    /// The write is made all the same.
    is_made: bool,
    left: AtomicI64,
}

impl UnconfirmedWrite {
    /// Wraps `store`, whose write `number`, from 0, is not confirmed.
    pub(crate) fn wrap(
        store: Arc<dyn Store>,
        number: i64,
        is_made: bool,
    ) -> Arc<InterceptedStore<Self>> {
        InterceptedStore::wrap(store, Self { is_made, left: number.into() })
    }
}

impl StoreInterceptor for UnconfirmedWrite {
    fn write<'a>(
        &'a self,
        store: &'a dyn Store,
        write: Write,
    ) -> BoxFuture<'a, Result<Written, StoreError>> {
        Box::pin(async move {
            let is_of_task =
                write.key.segments().next().is_some_and(|space| space.starts_with("schedule"));
            if !is_of_task || self.left.fetch_sub(1, Ordering::SeqCst) != 0 {
                return store.write(write).await;
            }
            if self.is_made {
                store.write(write).await?;
            }
            Err(StoreError::Unconfirmed { reason: "a test".to_owned() })
        })
    }
}
