//! The state of the screen: shown calls, selection, filter, and key bindings.

use std::time::Duration;

use crossterm::event::{KeyCode, KeyEvent, KeyEventKind, KeyModifiers};
use rockbot_contracts::ToolCallId;
use rockbot_monitor::{Call, Calls, Filter, Observed, Tally};

use super::{depths::NamedDepth, order::Order};

/// Effect of a key on the main loop.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Flow {
    Continue,
    Quit,
    /// Copies [`View::selected_id`].
    Copy,
}

/// The state of the screen.
#[derive(Debug)]
pub(super) struct View {
    calls: Calls,
    filter: Filter,
    typing: Option<Typing>,
    paused: Option<Snapshot>,
    /// The selected call; the newest is shown first when none is selected.
    selected: Option<ToolCallId>,
    /// Show the details of the selected call.
    pub(super) details: bool,
    /// Show one row per tool.
    pub(super) by_tool: bool,
    /// The order of the calls.
    pub(super) order: Order,
    /// Depths of the work queues; empty while they are unknown.
    depths: Vec<NamedDepth>,
    /// The effect of the last key, if it is not visible otherwise.
    notice: Option<String>,
    /// The number of lines by which the details are scrolled down.
    pub(super) scrolled: u16,
    unreadable: u64,
    /// The number of ended calls that match the filter.
    ended: u64,
    /// The number of rows on the screen when it was last drawn.
    pub(super) page: usize,
}

/// A filter that is being typed.
#[derive(Debug)]
struct Typing {
    line: String,
    previous: Filter,
}

/// The calls at the time of a pause; recording continues.
#[derive(Debug)]
struct Snapshot {
    calls: Calls,
    at: Duration,
}

impl View {
    pub(super) fn new(filter: Filter) -> Self {
        Self {
            calls: Calls::default(),
            filter,
            typing: None,
            paused: None,
            selected: None,
            details: false,
            by_tool: false,
            order: Order::default(),
            depths: Vec::new(),
            notice: None,
            scrolled: 0,
            unreadable: 0,
            ended: 0,
            page: 1,
        }
    }

    /// Records a message that arrived `at` after the start.
    pub(super) fn record(&mut self, observed: Observed, at: Duration) {
        let Ok(message) = observed.message else {
            self.unreadable += 1;
            return;
        };
        let before = self.calls.tally().replied;
        let filter = &self.filter;
        let matches = self.calls.record(message, at).is_some_and(|call| filter.matches(call));
        if matches {
            self.ended += self.calls.tally().replied - before;
        }
    }

    /// Expires calls whose time budget has passed.
    pub(super) fn expire(&mut self, now: Duration) {
        let expired = self.calls.expire(now);
        let expired = expired.iter().filter_map(|id| self.calls.get(id));
        self.ended += expired.filter(|call| self.filter.matches(call)).count() as u64;
    }

    /// Returns the shown calls in their order, at this time.
    pub(super) fn rows(&self, now: Duration) -> Vec<&Call> {
        let filter = &self.filter;
        let newest_first = self.shown_calls().newest_first();
        let mut rows: Vec<_> = newest_first.filter(|call| filter.matches(call)).collect();
        self.order.sort(&mut rows, now);
        rows
    }

    /// Shows these depths of work queues, unless the display is paused.
    pub(super) fn set_depths(&mut self, depths: Vec<NamedDepth>) {
        if self.paused.is_none() {
            self.depths = depths;
        }
    }

    /// Returns the shown depths of work queues.
    pub(super) fn depths(&self) -> &[NamedDepth] {
        &self.depths
    }

    /// Returns the effect of the last key, if it is not visible otherwise.
    pub(super) fn notice(&self) -> Option<&str> {
        self.notice.as_deref()
    }

    /// Returns the id of the selected call.
    pub(super) fn selected_id(&self) -> Option<&str> {
        self.selected.as_ref().map(ToolCallId::as_str)
    }

    /// Returns the index of the selected call among the shown ones.
    pub(super) fn selected_index(&self, rows: &[&Call]) -> Option<usize> {
        let id = self.selected.as_ref()?;
        rows.iter().position(|call| call.id == *id)
    }

    /// Returns the time of the shown state.
    pub(super) fn time(&self, now: Duration) -> Duration {
        self.paused.as_ref().map_or(now, |snapshot| snapshot.at)
    }

    fn shown_calls(&self) -> &Calls {
        self.paused.as_ref().map_or(&self.calls, |snapshot| &snapshot.calls)
    }

    pub(super) fn tally(&self) -> Tally {
        self.shown_calls().tally()
    }

    /// Returns the number of calls since the pause; `None` when not paused.
    pub(super) fn unseen(&self) -> Option<u64> {
        let snapshot = self.paused.as_ref()?;
        Some(self.calls.tally().calls - snapshot.calls.tally().calls)
    }

    pub(super) fn live(&self) -> usize {
        self.shown_calls().newest_first().filter(|call| call.state().is_live()).count()
    }

    pub(super) fn unreadable(&self) -> u64 {
        self.unreadable
    }

    pub(super) fn ended(&self) -> u64 {
        self.ended
    }

    /// Returns the filter that is being typed.
    pub(super) fn typed(&self) -> Option<&str> {
        self.typing.as_ref().map(|typing| typing.line.as_str())
    }

    /// Returns the filter as text; empty when all calls are shown.
    pub(super) fn filter(&self) -> String {
        self.filter.to_line()
    }

    /// Handles a key.
    pub(super) fn press(&mut self, key: KeyEvent, now: Duration) -> Flow {
        if key.kind == KeyEventKind::Release {
            return Flow::Continue;
        }
        if key.modifiers.contains(KeyModifiers::CONTROL) {
            let quits = matches!(key.code, KeyCode::Char('c' | 'd'));
            return if quits { Flow::Quit } else { Flow::Continue };
        }
        if self.typing.is_some() {
            self.type_key(key.code);
            return Flow::Continue;
        }
        self.notice = None;
        let now = self.time(now);
        match key.code {
            KeyCode::Char('q') => return Flow::Quit,
            KeyCode::Char(' ') => self.toggle_pause(now),
            KeyCode::Char('t') => self.by_tool = !self.by_tool,
            KeyCode::Char('o') => self.order = self.order.next(),
            KeyCode::Char('y') => return self.copy(now),
            KeyCode::Char('/') => {
                let (line, previous) = (self.filter.to_line(), self.filter.clone());
                self.typing = Some(Typing { line, previous });
            }
            KeyCode::Enter => {
                if self.selected.is_none() {
                    self.select(now, |_, _| 0);
                }
                self.details = !self.details && self.selected.is_some();
                self.scrolled = 0;
            }
            KeyCode::Esc if self.details => self.details = false,
            KeyCode::Esc => self.selected = None,
            KeyCode::Up | KeyCode::Char('k') => {
                self.select(now, |index, _| index.saturating_sub(1));
            }
            KeyCode::Down | KeyCode::Char('j') => self.select(now, |index, _| index + 1),
            KeyCode::PageUp if self.details => self.scrolled = self.scrolled.saturating_sub(5),
            KeyCode::PageDown if self.details => self.scrolled = self.scrolled.saturating_add(5),
            KeyCode::PageUp => self.select(now, usize::saturating_sub),
            KeyCode::PageDown => self.select(now, |index, page| index + page),
            KeyCode::Home | KeyCode::Char('g') => self.select(now, |_, _| 0),
            KeyCode::End | KeyCode::Char('G') => self.select(now, |_, _| usize::MAX),
            _ => {}
        }
        Flow::Continue
    }

    fn copy(&mut self, now: Duration) -> Flow {
        let is_shown = self.selected_index(&self.rows(now)).is_some();
        let id = self.selected_id().filter(|_| is_shown).map(str::to_owned);
        // The terminal does not report whether it permits this.
        self.notice = Some(match &id {
            Some(id) => format!("sent {id} to the clipboard of the terminal"),
            None => "select a call to copy its id".to_owned(),
        });
        if id.is_some() { Flow::Copy } else { Flow::Continue }
    }

    fn toggle_pause(&mut self, now: Duration) {
        self.paused = match self.paused.take() {
            Some(_) => None,
            None => Some(Snapshot { calls: self.calls.clone(), at: now }),
        };
    }

    /// Moves the selection: `target` maps the current index and the rows per page to the new index.
    /// Without a selection, the first call is selected.
    fn select(&mut self, now: Duration, target: impl Fn(usize, usize) -> usize) {
        let rows = self.rows(now);
        let index = match self.selected_index(&rows) {
            Some(index) => target(index, self.page),
            None => target(0, self.page).saturating_sub(1),
        };
        let selected = rows.get(index.min(rows.len().saturating_sub(1)));
        self.selected = selected.map(|call| call.id.clone());
        self.scrolled = 0;
    }

    fn type_key(&mut self, code: KeyCode) {
        let Some(typing) = &mut self.typing else { return };
        match code {
            KeyCode::Enter => {
                self.typing = None;
                return;
            }
            KeyCode::Esc => {
                self.filter = typing.previous.clone();
                self.typing = None;
                return;
            }
            KeyCode::Backspace => drop(typing.line.pop()),
            KeyCode::Char(c) if typing.line.len() < 200 => typing.line.push(c),
            _ => return,
        }
        self.filter = Filter::parse(&typing.line);
    }
}

#[cfg(test)]
pub(super) mod tests {
    use rockbot_contracts::topology::tool_invoke;
    use rockbot_monitor::{CallMessage, Status};
    use tokio::time::Instant;

    use super::*;
    use crate::watch::fixture::{progress, reply, request};

    pub(crate) fn observed(message: CallMessage) -> Observed {
        Observed { at: Instant::now(), key: tool_invoke(), message: Ok(message) }
    }

    pub(crate) fn press(view: &mut View, codes: &[KeyCode]) -> Flow {
        let mut flow = Flow::Continue;
        for code in codes {
            flow = view.press((*code).into(), Duration::from_secs(1));
        }
        flow
    }

    pub(crate) fn keys(text: &str) -> Vec<KeyCode> {
        text.chars().map(KeyCode::Char).collect()
    }

    fn view(ids: &[&str]) -> View {
        let mut view = View::new(Filter::default());
        ids.iter().for_each(|id| view.record(observed(request(id)), Duration::ZERO));
        view
    }

    fn ids(view: &View) -> Vec<String> {
        view.rows(Duration::ZERO).iter().map(|call| call.id.to_string()).collect()
    }

    #[test]
    fn selection_follows_its_call() {
        let mut view = view(&["a", "b", "c"]);
        assert_eq!(ids(&view), ["c", "b", "a"]);
        press(&mut view, &[KeyCode::Down]);
        assert_eq!(view.selected_id(), Some("c"));
        press(&mut view, &[KeyCode::Down]);
        view.record(observed(request("d")), Duration::ZERO);
        assert_eq!(
            (view.selected_id(), view.selected_index(&view.rows(Duration::ZERO))),
            (Some("b"), Some(2))
        );
        press(&mut view, &[KeyCode::End, KeyCode::Down, KeyCode::Down]);
        assert_eq!(view.selected_id(), Some("a"));
        press(&mut view, &[KeyCode::Home, KeyCode::Up]);
        assert_eq!(view.selected_id(), Some("d"));
        press(&mut view, &[KeyCode::Esc]);
        assert_eq!(view.selected_id(), None);
    }

    #[test]
    fn paused_view_is_frozen() {
        let mut view = view(&["a"]);
        press(&mut view, &[KeyCode::Char(' ')]);
        view.record(observed(request("b")), Duration::from_secs(2));
        view.record(observed(reply("a", Status::Ok)), Duration::from_secs(2));
        assert_eq!((ids(&view), view.unseen()), (vec!["a".to_owned()], Some(1)));
        assert_eq!(view.rows(Duration::ZERO)[0].state().as_str(), "requested");
        assert_eq!(view.time(Duration::from_secs(9)), Duration::from_secs(1));
        press(&mut view, &[KeyCode::Char(' ')]);
        assert_eq!((ids(&view), view.unseen()), (vec!["b".to_owned(), "a".to_owned()], None));
    }

    #[test]
    fn escape_restores_previous_filter() {
        let mut view = view(&["a", "b"]);
        press(&mut view, &keys("/state:okq "));
        assert_eq!((view.typed(), ids(&view).len()), (Some("state:okq "), 0));
        press(&mut view, &[KeyCode::Backspace, KeyCode::Backspace, KeyCode::Enter]);
        view.record(observed(reply("a", Status::Ok)), Duration::ZERO);
        assert_eq!((view.filter().as_str(), ids(&view)), ("state:ok", vec!["a".to_owned()]));
        press(&mut view, &keys("/x"));
        assert_eq!(ids(&view).len(), 0);
        press(&mut view, &[KeyCode::Esc]);
        assert_eq!((view.filter().as_str(), ids(&view).len()), ("state:ok", 1));
        assert_eq!(view.ended(), 1);
    }

    #[test]
    fn details_open_for_newest_call() {
        let mut empty = view(&[]);
        press(&mut empty, &[KeyCode::Enter, KeyCode::Up, KeyCode::End]);
        assert!(!empty.details && empty.rows(Duration::ZERO).is_empty());
        let mut view = view(&["a", "b"]);
        press(&mut view, &[KeyCode::Enter]);
        assert_eq!((view.details, view.selected_id()), (true, Some("b")));
        press(&mut view, &[KeyCode::Esc]);
        assert_eq!((view.details, view.selected_id()), (false, Some("b")));
    }

    #[test]
    fn order_changes_between_start_duration_and_wait() {
        let mut view = View::new(Filter::default());
        let at = Duration::from_millis;
        view.record(observed(request("long")), at(0));
        view.record(observed(reply("long", Status::Ok)), at(500));
        view.record(observed(request("live")), at(700));
        view.record(observed(progress("live", 1)), at(900));
        view.record(observed(request("short")), at(800));
        view.record(observed(reply("short", Status::Ok)), at(810));
        view.record(observed(request("new")), at(990));
        let shown = |view: &View| -> Vec<String> {
            view.rows(at(1000)).iter().map(|call| call.id.to_string()).collect()
        };
        assert_eq!(shown(&view), ["new", "short", "live", "long"]);
        press(&mut view, &keys("o"));
        // The live ones count from their request to now.
        assert_eq!(shown(&view), ["long", "live", "new", "short"]);
        press(&mut view, &[KeyCode::Down]);
        assert_eq!(view.selected_id(), Some("long"), "the keys follow the order");
        press(&mut view, &keys("o"));
        // The replies report 4 ms each. Of the newest call nothing is known yet.
        assert_eq!(shown(&view), ["live", "short", "long", "new"]);
        press(&mut view, &keys("o"));
        assert_eq!(view.order, Order::Start);
    }

    #[test]
    fn selected_call_is_copied() {
        let mut view = view(&["a", "b"]);
        assert_eq!(press(&mut view, &keys("y")), Flow::Continue);
        assert_eq!(view.notice(), Some("select a call to copy its id"));
        assert_eq!(press(&mut view, &[KeyCode::Down, KeyCode::Char('y')]), Flow::Copy);
        assert_eq!(
            (view.selected_id(), view.notice()),
            (Some("b"), Some("sent b to the clipboard of the terminal"))
        );
        press(&mut view, &[KeyCode::Down]);
        assert_eq!(view.notice(), None);
        assert_eq!(press(&mut view, &keys("/y")), Flow::Continue, "typed into the filter");
    }

    #[test]
    fn q_and_ctrl_c_quit() {
        assert_eq!(press(&mut view(&[]), &keys("q")), Flow::Quit);
        assert_eq!(press(&mut view(&[]), &keys("/q")), Flow::Continue);
        let mut typing = view(&[]);
        press(&mut typing, &keys("/"));
        let ctrl_c = KeyEvent::new(KeyCode::Char('c'), KeyModifiers::CONTROL);
        assert_eq!(typing.press(ctrl_c, Duration::ZERO), Flow::Quit);
    }
}
