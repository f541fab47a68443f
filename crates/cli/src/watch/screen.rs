//! How the calls look on a terminal. Every word of a message may be of a stranger: none reaches the
//! terminal but with signs for what controls or hides.

use std::time::Duration;

use ratatui::{
    Frame,
    layout::{Constraint, Layout, Rect},
    style::{Color, Modifier, Style},
    text::{Line, Span, Text},
    widgets::{Block, Borders, Cell, Paragraph, Row, Table, Wrap},
};

use super::{
    calls::{Call, State},
    stages,
    view::View,
};
use crate::show;

const HELP: &str = "q leave  space hold  ↑↓ choose  Enter stages  Esc back  / filter";
const HELP_TYPING: &str =
    "Enter keep  Esc as before   agent:TEXT tool:TEXT state:STATE or any text";

const DIM: Style = Style::new().add_modifier(Modifier::DIM);
const BOLD: Style = Style::new().add_modifier(Modifier::BOLD);

/// What stands above the table.
#[derive(Debug, Clone)]
pub(super) struct About {
    /// The product, and where it is.
    pub(super) bus: String,
    /// Whether copies arrive now.
    pub(super) connected: bool,
}

/// Draws it all.
pub(super) fn draw(frame: &mut Frame<'_>, view: &mut View, about: &About, now: Duration) {
    let now = view.time(now);
    let [head, table, foot] =
        Layout::vertical([Constraint::Length(1), Constraint::Min(2), Constraint::Length(1)])
            .areas(frame.area());
    let (table, details) = match view.details {
        true => {
            let halves = [Constraint::Percentage(40), Constraint::Percentage(60)];
            let [table, details] = Layout::vertical(halves).areas(table);
            (table, Some(details))
        }
        false => (table, None),
    };
    frame.render_widget(head_line(view, about), head);
    view.page = usize::from(table.height.saturating_sub(1)).max(1);
    let rows = view.rows();
    let place = view.place(&rows);
    draw_table(frame, table, &rows, place, view.page, now);
    if let (Some(area), Some(call)) = (details, place.and_then(|place| rows.get(place))) {
        draw_details(frame, area, call, view.scrolled, now);
    }
    frame.render_widget(foot_line(view), foot);
}

fn head_line(view: &View, about: &About) -> Line<'static> {
    let tally = view.tally();
    let mut parts = vec![
        Span::styled("rockbot watch", BOLD),
        Span::styled(format!("  {}", show::visible_line(&about.bus)), DIM),
        Span::raw(format!(
            "  {} live, {} answered, {} failed",
            view.live(),
            tally.answered,
            tally.failed
        )),
    ];
    if view.unreadable() > 0 {
        let told = format!("  {} unreadable", view.unreadable());
        parts.push(Span::styled(told, Color::Yellow));
    }
    if !about.connected {
        parts.push(Span::styled("  no connection", Color::Red));
    }
    if let Some(unseen) = view.unseen() {
        parts.push(Span::styled(format!("  held, {unseen} new"), Color::Yellow));
    }
    Line::from(parts)
}

fn foot_line(view: &View) -> Line<'static> {
    if let Some(typed) = view.typed() {
        let line = Span::styled(format!("/{}▏", show::visible_line(typed)), BOLD);
        return Line::from(vec![line, Span::styled(format!("  {HELP_TYPING}"), DIM)]);
    }
    let filter = view.filter();
    let help = Span::styled(HELP, DIM);
    if filter.is_empty() {
        return Line::from(help);
    }
    let shown = Span::styled(format!("[{}]  ", show::visible_line(&filter)), BOLD);
    Line::from(vec![shown, help])
}

fn draw_table(
    frame: &mut Frame<'_>,
    area: Rect,
    rows: &[&Call],
    place: Option<usize>,
    page: usize,
    now: Duration,
) {
    // Only what is in sight is made: there may be thousands.
    let top = place.map_or(0, |place| place.saturating_sub(page / 2));
    let top = top.min(rows.len().saturating_sub(page));
    let shown = rows.iter().enumerate().skip(top).take(page).map(|(index, call)| {
        let row = row(call, now);
        if Some(index) == place { row.style(Modifier::REVERSED) } else { row }
    });
    let widths = [
        Constraint::Length(7),
        Constraint::Fill(2),
        Constraint::Fill(3),
        Constraint::Length(17),
        Constraint::Length(10),
        Constraint::Fill(3),
    ];
    let heads = Row::new(["AGE", "AGENT", "TOOL", "STATE", "LATENCY", "WORKER"]).style(BOLD);
    frame.render_widget(Table::new(shown, widths).header(heads), area);
}

fn row(call: &Call, now: Duration) -> Row<'static> {
    let text = |text: Option<&str>| text.map_or_else(|| "–".to_owned(), show::visible_line);
    let state = call.state();
    Row::new([
        Cell::from(age(now.saturating_sub(call.first))),
        Cell::from(text(call.agent.as_deref())),
        Cell::from(tool(call)),
        Cell::from(Span::styled(show::visible_line(state.word()), colour(state))),
        Cell::from(latency(call, now)),
        Cell::from(text(call.worker().map(show::place).as_deref())),
    ])
}

/// The tool, with its server where it is one of MCP.
pub(super) fn tool(call: &Call) -> String {
    let tool = call.tool.as_deref().unwrap_or("–");
    let named = call.server().map(|server| format!("{server}/{tool}"));
    show::visible_line(named.as_deref().unwrap_or(tool))
}

/// From the question to the answer, or to now. Where the question was not heard, at least as long as
/// it ran.
fn latency(call: &Call, now: Duration) -> String {
    let ran = call.answered.as_ref().and_then(|answer| answer.said.ran);
    match (call.latency(), ran, &call.asked) {
        (Some(latency), _, _) => show::duration(latency),
        (None, Some(ran), _) => format!("≥ {}", show::duration(ran)),
        (None, None, Some(asked)) if call.state().is_live() => {
            format!("{} …", age(now.saturating_sub(asked.at)))
        }
        _ => "–".to_owned(),
    }
}

fn age(time: Duration) -> String {
    match time.as_secs() {
        seconds @ 0..100 => format!("{seconds} s"),
        seconds @ 100..6_000 => format!("{} min", seconds / 60),
        seconds => format!("{} h", seconds / 3_600),
    }
}

/// The colour of a state.
pub(super) fn colour(state: State<'_>) -> Style {
    match state {
        State::Asked => Style::new(),
        State::Running => Color::Cyan.into(),
        State::Cancelling => Color::Yellow.into(),
        state if state.is_failed() => Color::Red.into(),
        _ => Color::Green.into(),
    }
}

fn draw_details(frame: &mut Frame<'_>, area: Rect, call: &Call, scrolled: u16, now: Duration) {
    let lines: Vec<Line<'_>> = stages::of(call, now);
    let details = Paragraph::new(Text::from(lines))
        .block(Block::new().borders(Borders::TOP).border_style(DIM))
        .wrap(Wrap { trim: false })
        .scroll((scrolled, 0));
    frame.render_widget(details, area);
}

#[cfg(test)]
mod tests {
    use std::fmt::Write as _;

    use crossterm::event::KeyCode;
    use ratatui::{Terminal, backend::TestBackend};
    use rockbot_contracts::{Executed, ToolErrorCode};

    use super::*;
    use crate::watch::{
        calls::tests::{answered, asked, heard, progressed},
        filter::Filter,
        heard::{Answered, Progressed, Status, What},
        view::tests::{keys, message, press},
    };

    fn shown(view: &mut View, size: (u16, u16), now: u64) -> String {
        let about =
            About { bus: "RabbitMQ 4 at amqp://monitor@broker".to_owned(), connected: true };
        let mut terminal = Terminal::new(TestBackend::new(size.0, size.1)).unwrap();
        let drawn = terminal.draw(|frame| draw(frame, view, &about, Duration::from_millis(now)));
        let buffer = drawn.unwrap().buffer.clone();
        let mut text = String::new();
        for row in 0..size.1 {
            let cells = (0..size.0).map(|column| buffer[(column, row)].symbol());
            let _ = writeln!(text, "{}", cells.collect::<String>().trim_end());
        }
        text
    }

    fn hear(view: &mut View, heard: Vec<(crate::watch::heard::Heard, u64)>) {
        for (heard, at) in heard {
            view.hear(message(heard), Duration::from_millis(at));
        }
    }

    #[test]
    fn the_table_shows_each_call_with_its_state_and_who_ran_it() {
        let mut view = View::new(Filter::default());
        let timeout = Status::Error(ToolErrorCode::Timeout);
        hear(
            &mut view,
            vec![
                (asked("a"), 0),
                (answered("a", Status::Ok), 9),
                (asked("b"), 1000),
                (progressed("b", 1), 2000),
                (answered("unasked", timeout), 3000),
            ],
        );
        let screen = shown(&mut view, (100, 7), 4000);
        let lines: Vec<Vec<_>> =
            screen.lines().map(|line| line.split_whitespace().collect()).collect();
        let words = |line: &str| line.split_whitespace().map(str::to_owned).collect::<Vec<_>>();
        let head = "rockbot watch RabbitMQ 4 at amqp://monitor@broker 1 live, 2 answered, 1 failed";
        assert_eq!(lines[0], words(head), "{screen}");
        assert_eq!(lines[1], words("AGE AGENT TOOL STATE LATENCY WORKER"));
        assert_eq!(lines[2], words("1 s assistant read_file timeout ≥ 7.0 ms tool-handler/h1"));
        assert_eq!(lines[3], words("3 s assistant read_file running 3 s … tool-handler/h1"));
        assert_eq!(lines[4], words("4 s assistant read_file ok 9.0 ms tool-handler/h1"));
        assert_eq!(lines[6], words(HELP));
    }

    #[test]
    fn the_stages_of_a_call_are_shown_with_their_times_and_sizes() {
        let mut view = View::new(Filter::default());
        hear(
            &mut view,
            vec![
                (asked("a"), 0),
                (progressed("a", 1), 1000),
                (progressed("a", 2), 2000),
                (heard("a", What::Cancelled { reason: None }), 2500),
                (answered("a", Status::Ok), 3012),
            ],
        );
        press(&mut view, &[KeyCode::Enter]);
        let screen = shown(&mut view, (100, 24), 4000);
        for words in [
            "call      a",
            "session   s",
            "asked     4 s ago, on tool.invoke, 100 B, 5.0 s to answer",
            "progress  2 signs: the first after 1.0 s, the last after 2.0 s",
            "cancelled after 2.5 s",
            "answered  after 3.0 s by tool-handler/h1: ok, executed: yes, 100 B",
            "of that   ran 7.0 ms, on the way and waiting 3.0 s",
        ] {
            assert!(screen.contains(words), "no {words:?} in:\n{screen}");
        }
    }

    #[test]
    fn thousands_of_calls_scroll_past_a_small_screen() {
        let mut view = View::new(Filter::default());
        hear(&mut view, (0..2000).map(|n| (asked(&format!("call-{n}")), n)).collect());
        press(&mut view, &[KeyCode::End, KeyCode::Enter]);
        let screen = shown(&mut view, (60, 20), 3000);
        assert!(screen.contains("call-0"), "{screen}");
        for size in [(1, 1), (5, 3), (300, 4)] {
            shown(&mut view, size, 3000);
        }
    }

    #[test]
    fn what_strangers_say_cannot_control_the_terminal() {
        let hostile = "\u{1b}[2J\u{202e}\u{7}\nharm";
        let mut view = View::new(Filter::default());
        let mut question = asked("a");
        question.tool = Some(hostile.to_owned());
        question.agent = Some(hostile.to_owned());
        let What::Asked(asked) = &mut question.what else { unreachable!() };
        asked.server = Some(hostile.to_owned());
        asked.session = Some(hostile.to_owned());
        asked.arguments = Some(hostile.to_owned());
        let text = Some(hostile.to_owned());
        let progress = Progressed { sequence: 1, worker: text.clone(), text: text.clone() };
        let answer = Answered {
            status: Status::Error(ToolErrorCode::Other(hostile.into())),
            executed: Executed::Unknown,
            worker: text.clone(),
            ran: None,
            result: text,
        };
        let cancel = What::Cancelled { reason: Some(hostile.to_owned()) };
        hear(
            &mut view,
            vec![
                (question, 0),
                (heard("a", What::Progressed(progress)), 1),
                (heard("a", cancel), 2),
                (heard("a", What::Answered(answer)), 3),
            ],
        );
        press(&mut view, &[KeyCode::Enter]);
        let screen = shown(&mut view, (160, 50), 10);
        assert!(!screen.contains(['\u{1b}', '\u{202e}', '\u{7}']), "{screen:?}");
        assert!(screen.matches("harm").count() >= 8, "{screen}");
        press(&mut view, &keys("/\u{202e}"));
        let screen = shown(&mut view, (160, 50), 10);
        assert!(screen.contains("/\\u{202e}▏") && !screen.contains('\u{202e}'), "{screen}");
    }

    #[test]
    fn a_held_picture_a_filter_and_a_lost_connection_are_told() {
        let mut view = View::new(Filter::typed("state:live"));
        press(&mut view, &keys(" "));
        hear(&mut view, vec![(asked("a"), 0)]);
        let screen = shown(&mut view, (140, 6), 10);
        assert!(screen.contains("held, 1 new") && screen.contains("[state:live]"), "{screen}");
        let about = About { bus: String::new(), connected: false };
        let line = head_line(&view, &about).to_string();
        assert!(line.contains("no connection"), "{line}");
    }
}
