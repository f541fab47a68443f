//! `rockbot watch`: the calls of a fleet as they cross its bus.

mod calls;
mod feed;
mod filter;
mod heard;
mod lines;
mod screen;
mod stages;
mod terminal;
mod view;

use std::{
    io::IsTerminal,
    pin::pin,
    time::{Duration, SystemTime},
};

use crossterm::event::{Event, EventStream};
use futures_util::StreamExt;
use rockbot_bus::{BusReport, ConsumeError};
use rockbot_service::{exit, interrupted};
use tokio::time::{Instant, MissedTickBehavior, interval, sleep_until};

use self::{
    feed::Feed,
    filter::Filter,
    lines::Lines,
    screen::About,
    terminal::Taken,
    view::{Flow, View},
};
use crate::{
    arguments::Watch,
    ending::{Exits, Failure, Outcome},
    fleet::Fleet,
    print::{note, say},
    settings::Settings,
    show,
};

/// How often the screen is drawn anew.
const FRAME: Duration = Duration::from_millis(100);

/// How often to look for calls whose time is over.
const LOOK: Duration = Duration::from_millis(500);

/// Longer than anybody watches.
const ALWAYS: Duration = Duration::from_secs(365 * 24 * 3600);

/// A watch that began.
struct Begun<'a> {
    fleet: &'a Fleet,
    feed: Feed,
    filter: Filter,
    began: Instant,
    until: Instant,
    /// After how many calls it ends.
    most: u64,
}

pub(crate) async fn run(settings: &Settings, options: &Watch, json: bool) -> Outcome {
    if settings.embeds() {
        let told = "nothing crosses a bus inside this process: name that of a fleet with --bus";
        return Err(Failure::usage(told));
    }
    let filter = Filter::new(&options.agents, &options.tools, &options.states);
    if let Some(state) = filter.unknown_state() {
        let known = Filter::states();
        return Err(Failure::usage(format!("no call is ever {state:?}; there are {known}")));
    }
    let fleet = Fleet::reach(settings).await?;
    let outcome = watch(settings, &fleet, options, filter, json).await;
    fleet.leave().await;
    outcome
}

async fn watch(
    settings: &Settings,
    fleet: &Fleet,
    options: &Watch,
    filter: Filter,
    json: bool,
) -> Outcome {
    let report = fleet.bus.inspect(&[]).await.exits(exit::UNAVAILABLE)?;
    let feed = Feed::open(fleet.bus.clone(), options.content).await;
    let feed = feed.map_err(|error| not_let_in(&error, settings))?;
    let began = Instant::now();
    let until = began + options.seconds.map_or(ALWAYS, Duration::from_secs);
    let most = options.calls.unwrap_or(u64::MAX);
    let begun = Begun { fleet, feed, filter, began, until, most };
    if json || !std::io::stdout().is_terminal() {
        note!("{}", show::dim(&format!("watching {}", place(&report))));
        begun.print().await
    } else {
        begun.show(place(&report)).await
    }
}

fn place(report: &BusReport) -> String {
    let address = report.address.as_deref().map_or_else(String::new, |at| format!(" at {at}"));
    show::visible_line(&format!("{}{address}", report.product))
}

/// Not every user may hear what others are told.
fn not_let_in(error: &ConsumeError, settings: &Settings) -> Failure {
    let namespace = &settings.bus.namespace;
    match error {
        ConsumeError::Refused { .. } => {
            Failure::unavailable(format!("{error}; the user that may watch is {namespace}.monitor"))
        }
        _ => Failure::unavailable(error),
    }
}

impl Begun<'_> {
    /// Prints an event a line.
    async fn print(mut self) -> Outcome {
        let mut lines = Lines::new(self.filter, SystemTime::now());
        let mut look = interval(LOOK);
        let (mut over, mut interrupt) = (pin!(sleep_until(self.until)), pin!(interrupted()));
        while lines.ended() < self.most {
            tokio::select! {
                message = self.feed.next() => {
                    let Some(message) = message else { return Err(closed()) };
                    let at = message.at - self.began;
                    if let Some(event) = lines.hear(message, at) {
                        say!("{}", show::json_line(&event))?;
                    }
                }
                _ = look.tick() => {
                    for event in lines.look(self.began.elapsed()) {
                        say!("{}", show::json_line(&event))?;
                    }
                }
                () = &mut over => break,
                _ = &mut interrupt => break,
            }
        }
        Ok(exit::OK)
    }

    /// Shows a table until a key or a signal ends it.
    async fn show(mut self, bus: String) -> Outcome {
        let mut about = About { bus, connected: true };
        let mut view = View::new(self.filter);
        let mut terminal = Taken::take()?;
        let mut keys = EventStream::new();
        let mut frame = interval(FRAME);
        frame.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let (mut over, mut interrupt) = (pin!(sleep_until(self.until)), pin!(interrupted()));
        while view.ended() < self.most {
            tokio::select! {
                message = self.feed.next() => {
                    let Some(message) = message else { return Err(closed()) };
                    let at = message.at - self.began;
                    view.hear(message, at);
                    continue;
                }
                event = keys.next() => match event {
                    Some(Ok(Event::Key(key))) => {
                        if view.press(key, self.began.elapsed()) == Flow::Leave {
                            break;
                        }
                    }
                    Some(Ok(_)) => {}
                    Some(Err(error)) => return Err(error.into()),
                    None => break,
                },
                _ = frame.tick() => {
                    about.connected = self.fleet.bus.is_ready();
                    view.look(self.began.elapsed());
                }
                () = &mut over => break,
                _ = &mut interrupt => break,
            }
            terminal.draw(|frame| screen::draw(frame, &mut view, &about, self.began.elapsed()))?;
        }
        Ok(exit::OK)
    }
}

fn closed() -> Failure {
    Failure::unavailable("the bus was closed")
}
