//! One watch of the calls for all viewers. It starts with the first of them and ends some time after the last, so
//! that a gateway without viewers costs the broker nothing.

use std::{
    collections::{BTreeMap, HashMap, VecDeque},
    pin::pin,
    sync::Arc,
    time::{Duration, SystemTime},
};

use parking_lot::Mutex;
use rockbot_bus::{Bus, Publication};
use rockbot_contracts::{Envelope, ToolCallId, ToolCatalogRefresh, topology::tool_catalog_refresh};
use rockbot_monitor::{Call, Calls, Feed, Filter, Observed};
use rockbot_tool_rpc::catalog::CatalogSnapshot;
use serde::Serialize;
use tokio::{
    sync::watch,
    task::JoinHandle,
    time::{Instant, MissedTickBehavior, interval, sleep},
};
use tracing::{debug, info, warn};

use super::{
    content::{ContentView, Contents},
    rates::{Rates, RatesView},
    view::{CallDetails, CallPage, CallView, TallyView},
};
use crate::clock::unix_ms;

/// Time after the last viewer at which the watch ends.
const LINGER: Duration = Duration::from_secs(60);
/// Interval between two checks for expired calls and viewers.
const TICK: Duration = Duration::from_millis(500);
/// Pause before a feed that could not be opened is opened again.
const RETRY: Duration = Duration::from_millis(500);
/// Time after which viewers see why the feed cannot be opened. A connection that starts takes a moment.
const REPORT_AFTER: Duration = Duration::from_secs(5);
/// Number of forgotten changes that are remembered, to tell slow viewers what they lost.
const MAX_FORGOTTEN: usize = 10_000;
/// Largest number of calls in a frame.
pub(super) const FRAME_CALLS: usize = 500;
/// Largest size of a frame, in bytes.
const FRAME_BYTES: usize = 256 * 1024;

/// The watch of all calls.
pub(crate) struct CallBoard {
    shared: Arc<Shared>,
    task: Mutex<Option<JoinHandle<()>>>,
}

struct Shared {
    bus: Arc<dyn Bus>,
    /// Requests announcements of handlers, which the user of `bus` may not.
    caller: Arc<dyn Bus>,
    watch: Mutex<Option<Watch>>,
    /// Notified of each change, with its number.
    changed: watch::Sender<u64>,
    viewers: watch::Sender<usize>,
}

/// A running watch.
struct Watch {
    started: SystemTime,
    clock: Instant,
    calls: Calls,
    contents: Contents,
    rates: Rates,
    changes: Changes,
    catalog: CatalogSnapshot,
    notice: Option<String>,
    /// Set once copies of messages arrive, or a notice says why not.
    is_open: bool,
}

/// The latest change of each call.
#[derive(Default)]
struct Changes {
    last: u64,
    by_number: BTreeMap<u64, ToolCallId>,
    numbers: HashMap<ToolCallId, u64>,
    /// Changes of calls that are no longer kept.
    forgotten: VecDeque<u64>,
}

/// A viewer. The watch runs while there is one.
pub(crate) struct Viewing(Arc<Shared>);

/// Changed calls for a viewer.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct CallFrame {
    /// Set if the calls replace all earlier ones.
    pub(crate) snapshot: bool,
    pub(crate) calls: Vec<CallView>,
    /// Number of changed calls that were left out.
    pub(crate) skipped: usize,
    pub(crate) tally: TallyView,
    pub(crate) since_ms: u64,
    pub(crate) rates: RatesView,
    /// Number of changed calls that are no longer kept.
    #[serde(skip)]
    pub(crate) lost: u64,
    /// Number of the last change in the frame.
    #[serde(skip)]
    pub(crate) through: u64,
}

/// One call with its messages.
pub(super) struct Found {
    pub(super) details: CallDetails,
    pub(super) content: Option<ContentView>,
}

impl CallBoard {
    pub(crate) fn new(bus: Arc<dyn Bus>, caller: Arc<dyn Bus>) -> Self {
        let (changed, viewers) = (watch::channel(0).0, watch::channel(0).0);
        let shared = Shared { bus, caller, watch: Mutex::default(), changed, viewers };
        Self { shared: Arc::new(shared), task: Mutex::default() }
    }

    /// Registers a viewer, and starts the watch for the first.
    pub(crate) fn view(&self) -> Viewing {
        // Under its lock, so that the watch does not end meanwhile.
        let mut watch = self.shared.watch.lock();
        self.shared.viewers.send_modify(|viewers| *viewers += 1);
        if watch.is_none() {
            *watch = Some(Watch::new());
            *self.task.lock() = Some(tokio::spawn(self.shared.clone().run()));
        }
        Viewing(self.shared.clone())
    }
}

#[cfg(test)]
impl CallBoard {
    /// Returns whether calls are watched now.
    pub(crate) fn is_watching(&self) -> bool {
        self.shared.watch.lock().is_some()
    }
}

impl Drop for CallBoard {
    fn drop(&mut self) {
        if let Some(task) = self.task.lock().take() {
            task.abort();
        }
    }
}

impl Viewing {
    /// Returns a receiver that is notified of each change.
    pub(crate) fn changes(&self) -> watch::Receiver<u64> {
        self.0.changed.subscribe()
    }

    /// Returns the handlers that announced themselves, waiting up to `wait` for the first.
    pub(crate) async fn catalog(&self, wait: Duration) -> CatalogSnapshot {
        let mut changed = self.changes();
        let deadline = Instant::now() + wait;
        loop {
            let catalog = self.0.read(|watch| watch.catalog.clone());
            if catalog.handlers().next().is_some() {
                return catalog;
            }
            let waiting = tokio::time::timeout_at(deadline, changed.changed());
            if !matches!(waiting.await, Ok(Ok(()))) {
                return catalog;
            }
        }
    }

    /// Returns whether copies of messages arrive, or a notice says why not.
    pub(crate) fn is_open(&self) -> bool {
        self.0.read(|watch| watch.is_open)
    }

    /// Returns the newest calls that match.
    pub(super) fn page(&self, filter: &Filter, limit: usize) -> CallPage {
        self.0.read(|watch| {
            let mut matching = watch.calls.newest_first().filter(|call| filter.matches(call));
            let shown = matching.by_ref().take(limit);
            let calls: Vec<_> = shown.map(|call| watch.view(call)).collect();
            let matched = calls.len() + matching.count();
            CallPage {
                since_ms: unix_ms(watch.started),
                calls,
                matched,
                tally: watch.calls.tally().into(),
                notice: watch.notice.clone(),
            }
        })
    }

    /// Returns one call.
    pub(super) fn find(&self, id: &ToolCallId) -> Option<Found> {
        self.0.read(|watch| {
            let call = watch.calls.get(id)?;
            let content = watch.contents.get(id).cloned();
            let details = CallDetails::new(call, watch.started, content.is_some());
            Some(Found { details, content })
        })
    }

    /// Returns the calls that match and changed after a change; for `None` the newest ones.
    pub(crate) fn frame(&self, filter: &Filter, after: Option<u64>) -> CallFrame {
        match self.0.watch.lock().as_mut() {
            Some(watch) => watch.frame(filter, after),
            None => Watch::new().frame(filter, after),
        }
    }
}

impl Drop for Viewing {
    fn drop(&mut self) {
        self.0.viewers.send_modify(|viewers| *viewers -= 1);
    }
}

impl Shared {
    fn read<T>(&self, read: impl FnOnce(&Watch) -> T) -> T {
        match self.watch.lock().as_ref() {
            Some(watch) => read(watch),
            // The bus was closed.
            None => read(&Watch::new()),
        }
    }

    /// Watches until there was no viewer for a while.
    async fn run(self: Arc<Self>) {
        info!("watch of calls started");
        let mut receiving = pin!(self.receive());
        loop {
            let is_closed = tokio::select! {
                () = self.unobserved() => false,
                () = &mut receiving => true,
            };
            let mut watch = self.watch.lock();
            if is_closed || *self.viewers.borrow() == 0 {
                *watch = None;
                break;
            }
        }
        info!("watch of calls ended");
    }

    /// Waits until there was no viewer for a while.
    async fn unobserved(&self) {
        let mut viewers = self.viewers.subscribe();
        loop {
            if viewers.wait_for(|viewers| *viewers == 0).await.is_err() {
                return;
            }
            tokio::select! {
                () = sleep(LINGER) => return,
                observed = viewers.wait_for(|viewers| *viewers > 0) => {
                    if observed.is_err() {
                        return;
                    }
                }
            }
        }
    }

    async fn receive(&self) {
        let started = Instant::now();
        let mut feed = loop {
            match Feed::open(self.bus.clone(), true, &[]).await {
                Ok(feed) => break feed,
                Err(error) => {
                    if started.elapsed() >= REPORT_AFTER {
                        warn!(%error, "watch of calls not opened; retrying");
                        self.update(|watch| watch.open(Some(error.to_string())));
                    }
                    sleep(RETRY).await;
                }
            }
        };
        self.update(|watch| watch.open(feed.notice()));
        self.request_announcements().await;
        let mut tick = interval(TICK);
        tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                observed = feed.next() => {
                    let Some(observed) = observed else { return };
                    self.update(|watch| watch.record(observed));
                }
                _ = tick.tick() => {
                    let catalog = feed.catalog();
                    self.update(|watch| watch.refresh(catalog));
                }
            }
        }
    }

    async fn request_announcements(&self) {
        let envelope = Envelope::from_payload(&ToolCatalogRefresh {});
        let publication = Publication::announcement(tool_catalog_refresh(), envelope);
        if let Err(error) = self.caller.publish(publication).await {
            debug!(%error, "refresh request not published; heartbeats follow anyway");
        }
    }

    fn update(&self, change: impl FnOnce(&mut Watch)) {
        let mut watch = self.watch.lock();
        let Some(watch) = watch.as_mut() else { return };
        change(watch);
        let last = watch.changes.last;
        self.changed.send_if_modified(|known| {
            let is_new = *known != last;
            *known = last;
            is_new
        });
    }
}

impl Watch {
    fn new() -> Self {
        Self {
            started: SystemTime::now(),
            clock: Instant::now(),
            calls: Calls::default(),
            contents: Contents::default(),
            rates: Rates::default(),
            changes: Changes::default(),
            catalog: CatalogSnapshot::default(),
            notice: None,
            is_open: false,
        }
    }

    /// Reports that copies of messages arrive, or why not.
    fn open(&mut self, notice: Option<String>) {
        self.notice = notice;
        self.is_open = true;
        self.changes.last += 1;
    }

    fn view(&self, call: &Call) -> CallView {
        CallView::new(call, self.started)
    }

    fn record(&mut self, observed: Observed) {
        // An unreadable message belongs to no call.
        let Ok(mut message) = observed.message else { return };
        self.contents.take(&mut message);
        let at = observed.at.saturating_duration_since(self.clock);
        let (id, before) = (message.call.clone(), self.calls.tally().replied);
        let Some(call) = self.calls.record(message, at) else { return };
        let latency = call.latency();
        if self.calls.tally().replied > before {
            self.rates.count(at, latency);
        }
        self.changes.add(id);
        self.forget_evicted();
    }

    fn refresh(&mut self, catalog: CatalogSnapshot) {
        let had_handlers = self.catalog.handlers().next().is_some();
        self.catalog = catalog;
        if !had_handlers && self.catalog.handlers().next().is_some() {
            self.changes.last += 1;
        }
        for id in self.calls.expire(self.clock.elapsed()) {
            self.changes.add(id);
        }
    }

    /// Forgets changes of calls that are no longer kept, once they are many.
    fn forget_evicted(&mut self) {
        if self.changes.by_number.len() > rockbot_monitor::calls::MAX_CALLS {
            let calls = &self.calls;
            self.changes.retain(|id| calls.get(id).is_some());
        }
    }

    fn frame(&mut self, filter: &Filter, after: Option<u64>) -> CallFrame {
        let through = self.changes.last;
        let (calls, skipped) = match after {
            None => {
                let matching = self.calls.newest_first().filter(|call| filter.matches(call));
                self.bounded(matching)
            }
            Some(after) => {
                let changed = self.changes.after(after);
                let calls = changed.filter_map(|id| self.calls.get(id));
                self.bounded(calls.filter(|call| filter.matches(call)))
            }
        };
        CallFrame {
            snapshot: after.is_none(),
            calls,
            // Of a snapshot, older calls are left out by intent.
            skipped: if after.is_none() { 0 } else { skipped },
            tally: self.calls.tally().into(),
            since_ms: unix_ms(self.started),
            rates: self.rates.view(self.clock.elapsed()),
            lost: after.map_or(0, |after| self.changes.forgotten_after(after)),
            through,
        }
    }

    /// Returns the first calls that fit into a frame, and the number of the others.
    fn bounded<'a>(&self, calls: impl Iterator<Item = &'a Call>) -> (Vec<CallView>, usize) {
        let (mut bytes, mut shown, mut skipped) = (0, Vec::new(), 0);
        for call in calls {
            if shown.len() >= FRAME_CALLS || bytes >= FRAME_BYTES {
                skipped += 1;
                continue;
            }
            let view = self.view(call);
            bytes += view.size();
            shown.push(view);
        }
        (shown, skipped)
    }
}

impl Changes {
    fn add(&mut self, id: ToolCallId) {
        self.last += 1;
        if let Some(earlier) = self.numbers.insert(id.clone(), self.last) {
            self.by_number.remove(&earlier);
        }
        self.by_number.insert(self.last, id);
    }

    /// Returns the calls that changed after a change, the latest first.
    fn after(&self, after: u64) -> impl Iterator<Item = &ToolCallId> {
        self.by_number.range(after + 1..).rev().map(|(_, id)| id)
    }

    fn retain(&mut self, is_kept: impl Fn(&ToolCallId) -> bool) {
        let forgotten = self.by_number.extract_if(.., |_, id| !is_kept(id));
        for (number, id) in forgotten {
            self.numbers.remove(&id);
            if self.forgotten.len() >= MAX_FORGOTTEN {
                self.forgotten.pop_front();
            }
            self.forgotten.push_back(number);
        }
    }

    fn forgotten_after(&self, after: u64) -> u64 {
        self.forgotten.iter().filter(|number| **number > after).count() as u64
    }
}
