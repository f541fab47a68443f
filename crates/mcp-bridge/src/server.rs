//! One server, and the task that owns its connection.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use metrics::counter;
use parking_lot::Mutex;
use rmcp::{
    RoleClient,
    model::SubscriptionFilter,
    service::{RunningService, Subscription},
};
use rockbot_contracts::{Executed, mcp::McpToolDefinition};
use rockbot_llm::ChatModel;
use rockbot_tools::{CallPolicy, ToolContext, ToolFailure, ToolResult};
use serde_json::Value;
use tokio::{
    sync::{Semaphore, watch},
    task::JoinHandle,
    time::{Instant, MissedTickBehavior, interval_at, sleep, timeout, timeout_at},
};
use tokio_util::sync::CancellationToken;
use tracing::{debug, error, info, warn};

use crate::{
    backoff::{Backoff, STABLE_AFTER},
    client::Client,
    config::ServerConfig,
    connect::{self, Era},
    definitions::Definitions,
    oauth::OAuthTokens,
    offer::Offer,
    ownership::{Owned, Ownership},
    queue::Queues,
    session::{DEFAULT_IDLE, Session},
    summary,
    telemetry::Told,
};

/// How long a call waits for a session that is being opened.
const SESSION_WITHIN: Duration = Duration::from_secs(5);
/// How often a server is asked for a sign of life.
const PROBE_EVERY: Duration = Duration::from_secs(30);
/// So many signs that did not come in a row, and the session is given up.
const MOST_MISSED: u32 = 3;
/// A server whose tools changed is left alone for this long before it is asked for them: changes
/// come in swarms.
const DEBOUNCE: Duration = Duration::from_millis(250);
/// How often at most it is asked.
const LIST_EVERY: Duration = Duration::from_secs(1);
/// How long a session may take to end in good order.
const CLOSE_WITHIN: Duration = Duration::from_secs(6);
/// So many attempts in vain, and the tools of a server that was there before are not offered any
/// more.
const FORGET_AFTER: u32 = 3;

/// What every server of a bridge has in common.
pub(crate) struct Surroundings {
    pub(crate) offer: Offer,
    pub(crate) queues: Queues,
    pub(crate) dialling: connect::Dialling,
    pub(crate) ownership: Option<Ownership>,
    pub(crate) told: Told,
    /// Who says what a server is for; a fixed text when absent.
    pub(crate) model: Option<Arc<dyn ChatModel>>,
    /// How many servers are being connected for the first time at once.
    pub(crate) starting: Arc<Semaphore>,
}

/// Where a server is in its life.
#[derive(Clone)]
pub(crate) enum State {
    /// It is being connected for the first time, or after so many attempts in vain.
    Connecting { failed: u32, why: Option<Arc<str>> },
    /// Another bridge serves it.
    Elsewhere { owner: Arc<str> },
    /// It serves.
    Ready(Arc<Serving>),
    /// It was removed.
    Stopped,
}

/// A session and what may be called in it.
pub(crate) struct Serving {
    pub(crate) session: Arc<Session>,
    /// The tools, by their names on the server.
    pub(crate) tools: BTreeMap<String, McpToolDefinition>,
}

/// A server of the bridge.
pub(crate) struct Server {
    caller: Caller,
    tokens: Option<OAuthTokens>,
    stop: CancellationToken,
    task: Mutex<Option<JoinHandle<()>>>,
}

impl Server {
    pub(crate) fn start(config: ServerConfig, surroundings: Arc<Surroundings>) -> Self {
        let era = Era::configured(&config);
        let config = Arc::new(config);
        let (sender, state) = watch::channel(State::Connecting { failed: 0, why: None });
        let policy = policy(&config, &surroundings.queues);
        let caller = Caller { config, state, policy };
        let tokens = surroundings.dialling.tokens(&caller.config);
        let stop = CancellationToken::new();
        let owner = Owner {
            caller: caller.clone(),
            tokens: tokens.clone(),
            state: sender,
            surroundings,
            stop: stop.clone(),
            era,
            owned: None,
            backoff: Backoff::new(),
        };
        let task = Mutex::new(Some(tokio::spawn(owner.run())));
        Self { caller, tokens, stop, task }
    }

    pub(crate) fn config(&self) -> &ServerConfig {
        &self.caller.config
    }

    pub(crate) fn state(&self) -> State {
        self.caller.state.borrow().clone()
    }

    pub(crate) fn states(&self) -> watch::Receiver<State> {
        self.caller.state.clone()
    }

    /// Its tokens, when it wants any.
    pub(crate) fn tokens(&self) -> Option<&OAuthTokens> {
        self.tokens.as_ref()
    }

    pub(crate) fn caller(&self) -> &Caller {
        &self.caller
    }

    /// Ends the session and what belongs to it. Bounded.
    pub(crate) async fn stop(&self) {
        self.stop.cancel();
        let task = self.task.lock().take();
        if let Some(mut task) = task
            && timeout(CLOSE_WITHIN * 2, &mut task).await.is_err()
        {
            warn!(server = %self.config().name, "a server could not be stopped in good order");
            task.abort();
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.stop.cancel();
        if let Some(task) = self.task.lock().take() {
            task.abort();
        }
    }
}

/// What the configuration of a server says about calls of its tools.
fn policy(config: &ServerConfig, queues: &Queues) -> CallPolicy {
    CallPolicy {
        cache: config.cache,
        queue: config.queue.as_ref().and_then(|queue| queues.get(queue)).cloned(),
        ..CallPolicy::default()
    }
}

/// Calls tools of a server, whatever session it has.
#[derive(Clone)]
pub(crate) struct Caller {
    config: Arc<ServerConfig>,
    state: watch::Receiver<State>,
    policy: CallPolicy,
}

impl Caller {
    /// What holds for calls of the server's tools.
    pub(crate) fn policy(&self) -> CallPolicy {
        self.policy.clone()
    }

    /// Calls a tool by its name on the server.
    ///
    /// # Errors
    /// See [`ToolFailure`].
    pub(crate) async fn call(
        &self,
        tool: &str,
        arguments: Value,
        context: &ToolContext,
    ) -> Result<ToolResult, ToolFailure> {
        let serving = self.serving(context).await?;
        let not_found = || ToolFailure::NotFound { name: tool.chars().take(128).collect() };
        // Listed tools are permitted ones; asked again, so that no list can be wrong about it.
        let definition = serving.tools.get(tool).filter(|_| self.config.permits(tool));
        let definition = definition.ok_or_else(not_found)?;
        let idle = self.config.request_timeout.unwrap_or(DEFAULT_IDLE);
        serving.session.call(definition, arguments, context, idle).await
    }

    /// The session; waits a little for one that is being opened.
    async fn serving(&self, context: &ToolContext) -> Result<Arc<Serving>, ToolFailure> {
        let mut state = self.state.clone();
        let until = context.deadline.min(Instant::now() + SESSION_WITHIN);
        let ready = state.wait_for(|state| !matches!(state, State::Connecting { failed: 0, .. }));
        let executed = Executed::No;
        let state = tokio::select! {
            state = timeout_at(until, ready) => state,
            () = context.cancellation.cancelled() => {
                return Err(ToolFailure::Cancelled { executed });
            }
        };
        let name = &self.config.name;
        let message = match state {
            Ok(Ok(state)) => match &*state {
                State::Ready(serving) => return Ok(serving.clone()),
                State::Elsewhere { .. } => format!("{name} is served by another bridge now"),
                State::Stopped => format!("{name} is served no longer"),
                State::Connecting { .. } => format!("{name} can't be reached now"),
            },
            _ => format!("{name} can't be reached now"),
        };
        Err(ToolFailure::Unavailable { message, executed })
    }
}

/// The task's side of a server.
struct Owner {
    caller: Caller,
    tokens: Option<OAuthTokens>,
    state: watch::Sender<State>,
    surroundings: Arc<Surroundings>,
    stop: CancellationToken,
    era: Era,
    owned: Option<Owned>,
    backoff: Backoff,
}

/// Why a session ended.
enum Ended {
    Stopped,
    Lost,
    /// It does not list its tools, for this reason, so it can't serve.
    Useless(String),
    /// It is somebody else's server now.
    Disowned,
}

impl Owner {
    async fn run(mut self) {
        let stop = self.stop.clone();
        while let Some(prepared) = stop.run_until_cancelled(self.prepare()).await {
            let Some((running, client, session)) = prepared else { continue };
            let began = Instant::now();
            let name = self.name();
            match self.serve(running, &client, session).await {
                Ended::Stopped => break,
                Ended::Disowned => {
                    warn!(server = %name, "another bridge may serve it now");
                    self.surroundings.offer.withdraw(&name);
                    self.owned = None;
                    self.backoff.reset();
                }
                Ended::Useless(why) => {
                    self.failed(&why);
                    continue;
                }
                Ended::Lost => {
                    info!(server = %name, lasted = ?began.elapsed(), "a session ended");
                    let told = &self.surroundings.told;
                    counter!("rockbot_mcp_server_restarts_total", "server" => told.label(&name).to_owned())
                        .increment(1);
                    if began.elapsed() >= STABLE_AFTER {
                        self.backoff.reset();
                    } else {
                        self.backoff.record_failure();
                    }
                }
            }
            // Calls wait for the next session, which is on its way, unless none ever lasts.
            let failed = self.backoff.failures();
            let waits = failed < FORGET_AFTER;
            if !waits {
                self.surroundings.offer.withdraw(&name);
            }
            let failed = if waits { 0 } else { failed };
            self.state.send_replace(State::Connecting { failed, why: None });
        }
        self.surroundings.offer.withdraw(&self.name());
        self.state.send_replace(State::Stopped);
        if let Some(owned) = self.owned.take() {
            owned.give_back().await;
        }
    }

    fn name(&self) -> String {
        self.caller.config.name.clone()
    }

    /// Waits for its turn, and connects. None when that failed.
    async fn prepare(&mut self) -> Option<connect::Opened> {
        sleep(self.backoff.delay()).await;
        self.own().await;
        let config = self.caller.config.clone();
        let starting = self.surroundings.starting.clone();
        let turn =
            if self.backoff.failures() == 0 { starting.acquire_owned().await.ok() } else { None };
        let policy = &self.surroundings.dialling.policy;
        let opened = connect::open(&config, self.era, policy, self.tokens.as_ref()).await;
        drop(turn);
        match opened {
            Ok(opened) => {
                self.era = Era::of(&opened.2);
                Some(opened)
            }
            Err(failure) => {
                if config.protocol.is_none() {
                    self.era = failure.next_era(self.era);
                }
                self.failed(&failure.to_string());
                None
            }
        }
    }

    /// Waits until the server is ours, where only one bridge can serve it.
    async fn own(&mut self) {
        let config = &self.caller.config;
        let Some(ownership) = &self.surroundings.ownership else { return };
        if !config.has_one_owner() || self.owned.as_ref().is_some_and(|owned| !owned.is_lost()) {
            return;
        }
        let owned = ownership.of(&config.name, |owner| {
            self.surroundings.offer.withdraw(&config.name);
            self.state.send_replace(State::Elsewhere { owner: owner.into() });
        });
        self.owned = Some(owned.await);
        self.state.send_replace(State::Connecting { failed: 0, why: None });
    }

    fn failed(&mut self, why: &str) {
        self.backoff.record_failure();
        let (failed, again) = (self.backoff.failures(), self.backoff.delay());
        let name = self.name();
        if self.caller.config.required {
            error!(server = %name, %failed, ?again, why, "a required server can't be connected");
        } else {
            warn!(server = %name, %failed, ?again, %why, "a server can't be connected");
        }
        if failed >= FORGET_AFTER {
            self.surroundings.offer.withdraw(&name);
        }
        let why = Some(why.into());
        self.state.send_replace(State::Connecting { failed, why });
    }

    /// Serves until the session ends.
    async fn serve(
        &self,
        running: RunningService<RoleClient, Client>,
        client: &Client,
        session: Session,
    ) -> Ended {
        let session = Arc::new(session);
        let cancel = running.cancellation_token();
        let closed = running.waiting();
        tokio::pin!(closed);
        let disowned = async {
            match &self.owned {
                Some(owned) => owned.lost().await,
                None => std::future::pending().await,
            }
        };
        let ended = tokio::select! {
            _ = &mut closed => return Ended::Lost,
            () = self.stop.cancelled() => Ended::Stopped,
            () = disowned => Ended::Disowned,
            ended = self.keep(&session, client) => ended,
        };
        cancel.cancel();
        // Closing tells the server, and waits for its program to end.
        let _ = timeout(CLOSE_WITHIN, closed).await;
        ended
    }

    /// Offers the tools and keeps them up to date. Returns when the server does not answer any more.
    async fn keep(&self, session: &Arc<Session>, client: &Client) -> Ended {
        if let Err(error) = self.list(session).await {
            return Ended::Useless(format!("it does not list its tools: {error}"));
        }
        info!(server = %self.name(), protocol = %session.protocol_version, "a server is connected");
        let mut changes = Changes::of(session).await;
        let mut probe = interval_at(Instant::now() + PROBE_EVERY, PROBE_EVERY);
        probe.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut missed = 0;
        let summary = self.summarise();
        tokio::pin!(summary);
        let mut summarised = false;
        loop {
            tokio::select! {
                () = client.tools_changed() => {}
                () = changes.next() => {}
                () = &mut summary, if !summarised => {
                    summarised = true;
                    continue;
                }
                _ = probe.tick() => {
                    if session.answers().await {
                        missed = 0;
                    } else {
                        missed += 1;
                        warn!(server = %self.name(), missed, "a server gave no sign of life");
                    }
                    // A call that runs has its own time-out; it is not cut short by ours.
                    if missed >= MOST_MISSED && session.calls() == 0 {
                        return Ended::Lost;
                    }
                    continue;
                }
            }
            sleep(DEBOUNCE).await;
            changes.drain();
            if let Err(error) = self.list(session).await {
                // What was offered before still is.
                warn!(server = %self.name(), %error, "a server does not list its tools again");
            }
            sleep(LIST_EVERY - DEBOUNCE).await;
        }
    }

    async fn list(&self, session: &Arc<Session>) -> Result<(), rmcp::ServiceError> {
        let config = &self.caller.config;
        let Definitions { tools, left_out } = Definitions::of(config, session.tools().await?);
        for why in &left_out {
            warn!(server = %config.name, tool = %why, "a tool of a server is left out");
        }
        self.take(session, tools);
        Ok(())
    }

    fn take(&self, session: &Arc<Session>, tools: BTreeMap<String, McpToolDefinition>) {
        let config = &self.caller.config;
        debug!(server = %config.name, tools = tools.len(), "took over the tools of a server");
        // Ready before it is told: whoever hears of a tool can call it.
        let serving = Arc::new(Serving { session: session.clone(), tools });
        self.state.send_replace(State::Ready(serving.clone()));
        self.surroundings.offer.put(&config.name, session, &serving.tools, &self.caller);
    }

    /// Has a model say what the server is for.
    async fn summarise(&self) {
        let Some(model) = &self.surroundings.model else { return std::future::pending().await };
        let name = self.name();
        let Some(details) = self.surroundings.offer.details(&name) else { return };
        if let Some(words) = summary::by(model.as_ref(), &details).await {
            self.surroundings.offer.describe(&name, words);
        }
    }
}

/// What a server of the later revisions says about changes, on a stream of its own.
struct Changes(Option<Subscription>);

impl Changes {
    async fn of(session: &Session) -> Self {
        if session.has_handshake {
            return Self(None);
        }
        let filter = SubscriptionFilter::builder().tools_list_changed().build();
        let opened = timeout(SESSION_WITHIN, session.peer().listen(filter)).await;
        Self(opened.ok().and_then(Result::ok))
    }

    /// Returns at the next change; never when the server does not tell.
    async fn next(&mut self) {
        if let Some(subscription) = &mut self.0 {
            match subscription.next().await {
                Ok(Some(_)) => return,
                // What changed meanwhile is found by asking.
                Ok(None) | Err(_) => self.0 = None,
            }
        }
        std::future::pending::<()>().await;
    }

    /// Forgets changes that one look covers.
    fn drain(&mut self) {
        use futures_util::FutureExt;
        while let Some(Some(Ok(Some(_)))) =
            self.0.as_mut().map(|subscription| subscription.next().now_or_never())
        {}
    }
}
