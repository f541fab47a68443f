//! What is on the screen: which calls, which one is chosen, and what the keys do to it.

use std::time::Duration;

use crossterm::event::{KeyCode, KeyEvent, KeyEventKind, KeyModifiers};
use rockbot_contracts::ToolCallId;

use super::{
    calls::{Call, Calls, Tally},
    feed::Message,
    filter::Filter,
};

/// Whether to go on after a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Flow {
    Stay,
    Leave,
}

/// The state of the screen.
#[derive(Debug)]
pub(super) struct View {
    calls: Calls,
    filter: Filter,
    typing: Option<Typing>,
    held: Option<Held>,
    /// The newest when none is chosen.
    chosen: Option<ToolCallId>,
    /// Whether the stages of the chosen call are shown.
    pub(super) details: bool,
    /// Lines of the details that are out of sight above.
    pub(super) scrolled: u16,
    unreadable: u64,
    /// Calls that fit the filter and ended.
    ended: u64,
    /// Rows that fit on the screen, as it was last drawn.
    pub(super) page: usize,
}

/// A filter that is being typed.
#[derive(Debug)]
struct Typing {
    line: String,
    before: Filter,
}

/// A picture that is held still while the watch goes on.
#[derive(Debug)]
struct Held {
    calls: Calls,
    at: Duration,
}

impl View {
    pub(super) fn new(filter: Filter) -> Self {
        Self {
            calls: Calls::default(),
            filter,
            typing: None,
            held: None,
            chosen: None,
            details: false,
            scrolled: 0,
            unreadable: 0,
            ended: 0,
            page: 1,
        }
    }

    /// Takes in a message that came `at` after the beginning.
    pub(super) fn hear(&mut self, message: Message, at: Duration) {
        let Ok(heard) = message.heard else {
            self.unreadable += 1;
            return;
        };
        let before = self.calls.tally().answered;
        let filter = &self.filter;
        let fits = self.calls.hear(heard, at).is_some_and(|call| filter.fits(call));
        if fits {
            self.ended += self.calls.tally().answered - before;
        }
    }

    /// Looks at the clock.
    pub(super) fn look(&mut self, now: Duration) {
        let overdue = self.calls.look(now);
        let overdue = overdue.iter().filter_map(|id| self.calls.get(id));
        self.ended += overdue.filter(|call| self.filter.fits(call)).count() as u64;
    }

    /// The calls that are shown, the newest first.
    pub(super) fn rows(&self) -> Vec<&Call> {
        let filter = &self.filter;
        self.picture().newest_first().filter(|call| filter.fits(call)).collect()
    }

    /// Where the chosen call is among those that are shown.
    pub(super) fn place(&self, rows: &[&Call]) -> Option<usize> {
        let id = self.chosen.as_ref()?;
        rows.iter().position(|call| call.id == *id)
    }

    /// The time that the picture is of.
    pub(super) fn time(&self, now: Duration) -> Duration {
        self.held.as_ref().map_or(now, |held| held.at)
    }

    fn picture(&self) -> &Calls {
        self.held.as_ref().map_or(&self.calls, |held| &held.calls)
    }

    pub(super) fn tally(&self) -> Tally {
        self.picture().tally()
    }

    /// How many calls came since the picture is held; `None` when it is not.
    pub(super) fn unseen(&self) -> Option<u64> {
        let held = self.held.as_ref()?;
        Some(self.calls.tally().calls - held.calls.tally().calls)
    }

    pub(super) fn live(&self) -> usize {
        self.picture().newest_first().filter(|call| call.state().is_live()).count()
    }

    pub(super) fn unreadable(&self) -> u64 {
        self.unreadable
    }

    pub(super) fn ended(&self) -> u64 {
        self.ended
    }

    /// The line that is being typed.
    pub(super) fn typed(&self) -> Option<&str> {
        self.typing.as_ref().map(|typing| typing.line.as_str())
    }

    /// The filter in words; empty when all calls are shown.
    pub(super) fn filter(&self) -> String {
        self.filter.line()
    }

    /// Does what a key stands for.
    pub(super) fn press(&mut self, key: KeyEvent, now: Duration) -> Flow {
        if key.kind == KeyEventKind::Release {
            return Flow::Stay;
        }
        if key.modifiers.contains(KeyModifiers::CONTROL) {
            let leaves = matches!(key.code, KeyCode::Char('c' | 'd'));
            return if leaves { Flow::Leave } else { Flow::Stay };
        }
        if self.typing.is_some() {
            self.type_on(key.code);
            return Flow::Stay;
        }
        match key.code {
            KeyCode::Char('q') => return Flow::Leave,
            KeyCode::Char(' ') => self.hold_or_go_on(now),
            KeyCode::Char('/') => {
                let (line, before) = (self.filter.line(), self.filter.clone());
                self.typing = Some(Typing { line, before });
            }
            KeyCode::Enter => {
                if self.chosen.is_none() {
                    self.choose(|_, _| 0);
                }
                self.details = !self.details && self.chosen.is_some();
                self.scrolled = 0;
            }
            KeyCode::Esc if self.details => self.details = false,
            KeyCode::Esc => self.chosen = None,
            KeyCode::Up | KeyCode::Char('k') => self.choose(|place, _| place.saturating_sub(1)),
            KeyCode::Down | KeyCode::Char('j') => self.choose(|place, _| place + 1),
            KeyCode::PageUp if self.details => self.scrolled = self.scrolled.saturating_sub(5),
            KeyCode::PageDown if self.details => self.scrolled = self.scrolled.saturating_add(5),
            KeyCode::PageUp => self.choose(usize::saturating_sub),
            KeyCode::PageDown => self.choose(|place, page| place + page),
            KeyCode::Home | KeyCode::Char('g') => self.choose(|_, _| 0),
            KeyCode::End | KeyCode::Char('G') => self.choose(|_, _| usize::MAX),
            _ => {}
        }
        Flow::Stay
    }

    fn hold_or_go_on(&mut self, now: Duration) {
        self.held = match self.held.take() {
            Some(_) => None,
            None => Some(Held { calls: self.calls.clone(), at: now }),
        };
    }

    /// Chooses another call, by where the chosen one is and how many rows a page has. Without a
    /// chosen one the first key chooses the first.
    fn choose(&mut self, go: impl Fn(usize, usize) -> usize) {
        let rows = self.rows();
        let target = match self.place(&rows) {
            Some(place) => go(place, self.page),
            None => go(0, self.page).saturating_sub(1),
        };
        let chosen = rows.get(target.min(rows.len().saturating_sub(1)));
        self.chosen = chosen.map(|call| call.id.clone());
        self.scrolled = 0;
    }

    fn type_on(&mut self, code: KeyCode) {
        let Some(typing) = &mut self.typing else { return };
        match code {
            KeyCode::Enter => {
                self.typing = None;
                return;
            }
            KeyCode::Esc => {
                self.filter = typing.before.clone();
                self.typing = None;
                return;
            }
            KeyCode::Backspace => drop(typing.line.pop()),
            KeyCode::Char(c) if typing.line.len() < 200 => typing.line.push(c),
            _ => return,
        }
        self.filter = Filter::typed(&typing.line);
    }
}

#[cfg(test)]
pub(super) mod tests {
    use rockbot_contracts::topology::tool_invoke;
    use tokio::time::Instant;

    use super::*;
    use crate::watch::{
        calls::tests::{answered, asked},
        heard::{Heard, Status},
    };

    pub(crate) fn message(heard: Heard) -> Message {
        Message { at: Instant::now(), key: tool_invoke(), heard: Ok(heard) }
    }

    pub(crate) fn press(view: &mut View, codes: &[KeyCode]) -> Flow {
        let mut flow = Flow::Stay;
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
        ids.iter().for_each(|id| view.hear(message(asked(id)), Duration::ZERO));
        view
    }

    fn ids(view: &View) -> Vec<String> {
        view.rows().iter().map(|call| call.id.to_string()).collect()
    }

    fn chosen(view: &View) -> Option<&str> {
        view.chosen.as_ref().map(ToolCallId::as_str)
    }

    #[test]
    fn the_arrows_choose_and_the_choice_stays_with_its_call() {
        let mut view = view(&["a", "b", "c"]);
        assert_eq!(ids(&view), ["c", "b", "a"]);
        press(&mut view, &[KeyCode::Down]);
        assert_eq!(chosen(&view), Some("c"));
        press(&mut view, &[KeyCode::Down]);
        view.hear(message(asked("d")), Duration::ZERO);
        assert_eq!((chosen(&view), view.place(&view.rows())), (Some("b"), Some(2)));
        press(&mut view, &[KeyCode::End, KeyCode::Down, KeyCode::Down]);
        assert_eq!(chosen(&view), Some("a"));
        press(&mut view, &[KeyCode::Home, KeyCode::Up]);
        assert_eq!(chosen(&view), Some("d"));
        press(&mut view, &[KeyCode::Esc]);
        assert_eq!(chosen(&view), None);
    }

    #[test]
    fn a_held_picture_stands_still_while_the_watch_goes_on() {
        let mut view = view(&["a"]);
        press(&mut view, &[KeyCode::Char(' ')]);
        view.hear(message(asked("b")), Duration::from_secs(2));
        view.hear(message(answered("a", Status::Ok)), Duration::from_secs(2));
        assert_eq!((ids(&view), view.unseen()), (vec!["a".to_owned()], Some(1)));
        assert_eq!(view.rows()[0].state().word(), "asked");
        assert_eq!(view.time(Duration::from_secs(9)), Duration::from_secs(1));
        press(&mut view, &[KeyCode::Char(' ')]);
        assert_eq!((ids(&view), view.unseen()), (vec!["b".to_owned(), "a".to_owned()], None));
    }

    #[test]
    fn a_filter_holds_while_it_is_typed_and_escape_brings_the_old_one_back() {
        let mut view = view(&["a", "b"]);
        press(&mut view, &keys("/state:okq "));
        assert_eq!((view.typed(), ids(&view).len()), (Some("state:okq "), 0));
        press(&mut view, &[KeyCode::Backspace, KeyCode::Backspace, KeyCode::Enter]);
        view.hear(message(answered("a", Status::Ok)), Duration::ZERO);
        assert_eq!((view.filter().as_str(), ids(&view)), ("state:ok", vec!["a".to_owned()]));
        press(&mut view, &keys("/x"));
        assert_eq!(ids(&view).len(), 0);
        press(&mut view, &[KeyCode::Esc]);
        assert_eq!((view.filter().as_str(), ids(&view).len()), ("state:ok", 1));
        assert_eq!(view.ended(), 1);
    }

    #[test]
    fn details_open_for_the_newest_and_nothing_opens_without_a_call() {
        let mut empty = view(&[]);
        press(&mut empty, &[KeyCode::Enter, KeyCode::Up, KeyCode::End]);
        assert!(!empty.details && empty.rows().is_empty());
        let mut view = view(&["a", "b"]);
        press(&mut view, &[KeyCode::Enter]);
        assert_eq!((view.details, chosen(&view)), (true, Some("b")));
        press(&mut view, &[KeyCode::Esc]);
        assert_eq!((view.details, chosen(&view)), (false, Some("b")));
    }

    #[test]
    fn q_and_ctrl_c_leave_even_while_typing() {
        assert_eq!(press(&mut view(&[]), &keys("q")), Flow::Leave);
        assert_eq!(press(&mut view(&[]), &keys("/q")), Flow::Stay);
        let mut typing = view(&[]);
        press(&mut typing, &keys("/"));
        let ctrl_c = KeyEvent::new(KeyCode::Char('c'), KeyModifiers::CONTROL);
        assert_eq!(typing.press(ctrl_c, Duration::ZERO), Flow::Leave);
    }
}
