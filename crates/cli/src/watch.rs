//! `rockbot watch`: shows the tool calls of a fleet as they cross its bus.

mod clipboard;
mod depths;
mod details;
#[cfg(test)]
mod fixture;
mod json_lines;
mod order;
mod screen;
mod style;
mod summary;
mod terminal;
mod view;

use std::{
    io::IsTerminal,
    pin::pin,
    time::{Duration, SystemTime},
};

use crossterm::event::{Event, EventStream};
use futures_util::StreamExt;
use rockbot_bus::BusReport;
use rockbot_contracts::PoolName;
use rockbot_monitor::{Feed, Filter};
use rockbot_service::{Interrupts, exit};
use tokio::time::{Instant, MissedTickBehavior, interval, sleep_until, timeout};

use self::{
    clipboard::copy_sequence,
    depths::QueueDepths,
    json_lines::JsonLines,
    screen::Header,
    terminal::TerminalGuard,
    view::{Flow, View},
};
use crate::{
    arguments::Watch,
    failure::{Failure, OrExit, Outcome},
    fleet::Fleet,
    print::{note, outln},
    render,
    settings::Settings,
};

/// The interval between two redraws of the screen.
const FRAME: Duration = Duration::from_millis(100);

/// The interval between two checks for expired calls.
const EXPIRY_INTERVAL: Duration = Duration::from_millis(500);

/// Time after other work for the events of its last calls.
const LAST_EVENTS: Duration = Duration::from_secs(5);
/// The duration of a watch without a time limit.
const UNLIMITED: Duration = Duration::from_secs(365 * 24 * 3600);

/// A running watch.
struct WatchSession<'a> {
    fleet: &'a Fleet,
    feed: Feed,
    /// The configured pools.
    pools: Vec<PoolName>,
    interrupts: Interrupts,
    filter: Filter,
    started: Instant,
    until: Instant,
    /// The number of ended calls after which the watch stops.
    max_calls: u64,
}

pub(crate) async fn run(settings: &Settings, options: &Watch, json: bool) -> Outcome {
    if settings.embeds() {
        return Err(Failure::usage(
            "watch needs a running fleet; name its broker with --bus, or run `rockbot demo --watch`",
        ));
    }
    let filter = Filter::new(&options.agents, &options.tools, &options.states);
    if let Some(state) = filter.unknown_state() {
        let known = Filter::states();
        return Err(Failure::usage(format!("unknown state {state:?}; expected one of {known}")));
    }
    let fleet = Fleet::open(settings).await?;
    let outcome = watch(settings, &fleet, options, filter, json).await;
    fleet.close().await;
    outcome
}

async fn watch(
    settings: &Settings,
    fleet: &Fleet,
    options: &Watch,
    filter: Filter,
    json: bool,
) -> Outcome {
    let report = fleet.bus.inspect(&[]).await.or_exit(exit::UNAVAILABLE)?;
    let feed = Feed::open(fleet.bus.clone(), options.content, &settings.fleet.pools).await;
    let feed = feed.or_exit(exit::UNAVAILABLE)?;
    let started = Instant::now();
    let until = started + options.seconds.map_or(UNLIMITED, Duration::from_secs);
    let max_calls = options.calls.unwrap_or(u64::MAX);
    let interrupts = Interrupts::listen().or_exit(exit::SOFTWARE)?;
    let mut bus = describe_bus(&report);
    if let Some(notice) = feed.notice() {
        bus = format!("{bus}; {notice}");
    }
    let pools = settings.fleet.pools.clone();
    let session =
        WatchSession { fleet, feed, pools, interrupts, filter, started, until, max_calls };
    let prints_events = should_print_events(json);
    if prints_events {
        note!("{}", render::dim(&format!("watching {bus}")));
    }
    session.show(prints_events, bus).await
}

/// Watches an embedded fleet while `work` runs. Prints the events of its first `calls` calls, or shows the table on
/// a terminal until it is quit. After the work, events of its last calls are printed for up to 5 s. Returns the result
/// of the work, and early only when it fails.
pub(crate) async fn run_beside<T>(
    fleet: &Fleet,
    calls: u64,
    json: bool,
    work: impl Future<Output = Result<T, Failure>>,
) -> Result<T, Failure> {
    let report = fleet.bus.inspect(&[]).await.or_exit(exit::UNAVAILABLE)?;
    let feed = Feed::open(fleet.bus.clone(), false, &[]).await.or_exit(exit::UNAVAILABLE)?;
    let interrupts = Interrupts::listen().or_exit(exit::SOFTWARE)?;
    let started = Instant::now();
    let prints_events = should_print_events(json);
    let session = WatchSession {
        fleet,
        feed,
        pools: Vec::new(),
        interrupts,
        filter: Filter::default(),
        started,
        until: started + UNLIMITED,
        max_calls: if prints_events { calls } else { u64::MAX },
    };
    let watch = session.show(prints_events, describe_bus(&report));
    let (mut work, mut watch) = (pin!(work), pin!(watch));
    tokio::select! {
        done = &mut work => {
            let done = done?;
            if !prints_events {
                watch.await?;
            } else if let Ok(outcome) = timeout(LAST_EVENTS, watch).await {
                outcome?;
            }
            Ok(done)
        }
        outcome = &mut watch => {
            outcome?;
            work.await
        }
    }
}

/// Returns `true` for JSON, and without a terminal.
fn should_print_events(json: bool) -> bool {
    json || !std::io::stdout().is_terminal()
}

fn describe_bus(report: &BusReport) -> String {
    let address = report.address.as_deref().map_or_else(String::new, |at| format!(" at {at}"));
    render::visible_line(&format!("{}{address}", report.product))
}

impl WatchSession<'_> {
    /// Prints events, or shows the table.
    async fn show(self, prints_events: bool, bus: String) -> Outcome {
        if prints_events { self.print_events().await } else { self.show_table(bus).await }
    }

    /// Prints one JSON event per line.
    async fn print_events(mut self) -> Outcome {
        let mut lines = JsonLines::new(self.filter, SystemTime::now());
        let mut expiry = interval(EXPIRY_INTERVAL);
        let mut over = pin!(sleep_until(self.until));
        while lines.ended() < self.max_calls {
            tokio::select! {
                message = self.feed.next() => {
                    let Some(message) = message else { return Err(closed()) };
                    let at = message.at - self.started;
                    if let Some(event) = lines.record(message, at) {
                        outln!("{}", render::json_line(&event))?;
                    }
                }
                _ = expiry.tick() => {
                for event in lines.expire(self.started.elapsed()) {
                        outln!("{}", render::json_line(&event))?;
                    }
                }
                () = &mut over => break,
                _ = self.interrupts.recv() => break,
            }
        }
        Ok(exit::OK)
    }

    /// Shows the table until a key, a signal or a limit ends it.
    async fn show_table(mut self, bus: String) -> Outcome {
        let mut header = Header { bus, connected: true };
        let mut view = View::new(self.filter);
        let mut depths = QueueDepths::new(self.fleet.bus.clone(), &self.pools);
        let mut terminal = TerminalGuard::enter()?;
        let mut keys = EventStream::new();
        let mut frame = interval(FRAME);
        frame.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut over = pin!(sleep_until(self.until));
        while view.ended() < self.max_calls {
            tokio::select! {
                message = self.feed.next() => {
                    let Some(message) = message else { return Err(closed()) };
                    let at = message.at - self.started;
                    view.record(message, at);
                    continue;
                }
                event = keys.next() => match event {
                    Some(Ok(Event::Key(key))) => {
                        match view.press(key, self.started.elapsed()) {
                            Flow::Quit => break,
                            Flow::Copy => {
                                let id = view.selected_id().unwrap_or_default();
                                terminal.send(&copy_sequence(id))?;
                            }
                            Flow::Continue => {}
                        }
                    }
                    Some(Ok(_)) => {}
                    Some(Err(error)) => return Err(error.into()),
                    None => break,
                },
                _ = frame.tick() => {
                    header.connected = self.fleet.bus.is_ready();
                    view.expire(self.started.elapsed());
                    depths.inspect_if_due(|| self.feed.catalog().pools());
                }
                depths = depths.ended() => view.set_depths(depths),
                () = &mut over => break,
                _ = self.interrupts.recv() => break,
            }
            terminal
                .draw(|frame| screen::draw(frame, &mut view, &header, self.started.elapsed()))?;
        }
        Ok(exit::OK)
    }
}

fn closed() -> Failure {
    Failure::unavailable("the connection to the bus was closed")
}
