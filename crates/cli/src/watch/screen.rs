//! Drawing of the calls on a terminal. All text of messages is untrusted, so control and invisible
//! characters are escaped.

use std::time::Duration;

use ratatui::{
    Frame,
    layout::{Constraint, Layout, Rect},
    style::{Color, Modifier, Style},
    text::{Line, Span, Text},
    widgets::{Block, Borders, Cell, Paragraph, Row, Table, Wrap},
};

use rockbot_monitor::Call;

use super::{
    depths::NamedDepth,
    details,
    order::{Order, Waited, waited},
    style::{color, tool},
    summary::{self, Rates},
    view::View,
};
use crate::render;

const HELP: &str = "q quit  space pause  ↑↓ select  Enter details  Esc back  t by tool  o order  y copy id  / filter";
const HELP_TYPING: &str = "Enter apply  Esc discard   agent:TEXT tool:TEXT state:STATE or any text";

const DIM: Style = Style::new().add_modifier(Modifier::DIM);
const BOLD: Style = Style::new().add_modifier(Modifier::BOLD);

/// The content of the header line.
#[derive(Debug, Clone)]
pub(super) struct Header {
    /// The broker's product and address.
    pub(super) bus: String,
    /// Connection state of the bus.
    pub(super) connected: bool,
}

/// Draws the whole screen.
pub(super) fn draw(frame: &mut Frame<'_>, view: &mut View, header: &Header, now: Duration) {
    let now = view.time(now);
    let [top, queues, table, bottom] = Layout::vertical([
        Constraint::Length(1),
        Constraint::Length(u16::from(!view.depths().is_empty())),
        Constraint::Min(2),
        Constraint::Length(1),
    ])
    .areas(frame.area());
    let (table, details) = if view.details {
        let halves = [Constraint::Percentage(40), Constraint::Percentage(60)];
        let [table, details] = Layout::vertical(halves).areas(table);
        (table, Some(details))
    } else {
        (table, None)
    };
    view.page = usize::from(table.height.saturating_sub(1)).max(1);
    let rows = view.rows(now);
    let rates = Rates::of_calls(&rows, now);
    frame.render_widget(header_line(view, header, &rates), top);
    frame.render_widget(queues_line(view.depths()), queues);
    let selected = view.selected_index(&rows);
    if view.by_tool {
        summary::draw(frame, table, &rows);
    } else {
        let table_rows = TableRows { rows: &rows, selected, page: view.page, order: view.order };
        draw_table(frame, table, &table_rows, now);
    }
    if let (Some(area), Some(call)) = (details, selected.and_then(|index| rows.get(index))) {
        draw_details(frame, area, call, view.scrolled, now);
    }
    frame.render_widget(footer_line(view), bottom);
}

fn header_line(view: &View, header: &Header, rates: &Rates) -> Line<'static> {
    let tally = view.tally();
    let mut parts = vec![
        Span::styled("rockbot watch", BOLD),
        Span::raw(format!(
            "  {} live, {} replied, {} failed, {}",
            view.live(),
            tally.replied,
            tally.failed,
            rates.describe()
        )),
    ];
    if view.unreadable() > 0 {
        let text = format!("  {} unreadable", view.unreadable());
        parts.push(Span::styled(text, Color::Yellow));
    }
    if !header.connected {
        parts.push(Span::styled("  disconnected", Color::Red));
    }
    if let Some(unseen) = view.unseen() {
        parts.push(Span::styled(format!("  paused, {unseen} new"), Color::Yellow));
    }
    // The end of the line is cut on a narrow terminal.
    parts.push(Span::styled(format!("  {}", render::visible_line(&header.bus)), DIM));
    Line::from(parts)
}

/// Formats the depths of the work queues. The end of the line is cut on a narrow terminal.
fn queues_line(depths: &[NamedDepth]) -> Line<'static> {
    let queues = depths.iter().map(|(name, depth)| {
        let consumers = render::count(depth.consumers as usize, "consumer");
        let text = format!("  {name} {} waiting, {consumers}", depth.ready);
        let is_stuck = depth.ready > 0 && depth.consumers == 0;
        Span::styled(text, if is_stuck { Color::Red.into() } else { DIM })
    });
    Line::from_iter([Span::styled("queues", DIM)].into_iter().chain(queues))
}

fn footer_line(view: &View) -> Line<'static> {
    if let Some(typed) = view.typed() {
        let line = Span::styled(format!("/{}▏", render::visible_line(typed)), BOLD);
        return Line::from(vec![line, Span::styled(format!("  {HELP_TYPING}"), DIM)]);
    }
    if let Some(notice) = view.notice() {
        return Line::from(Span::styled(render::visible_line(notice), BOLD));
    }
    let filter = view.filter();
    let help = Span::styled(HELP, DIM);
    if filter.is_empty() {
        return Line::from(help);
    }
    let shown = Span::styled(format!("[{}]  ", render::visible_line(&filter)), BOLD);
    Line::from(vec![shown, help])
}

/// The calls of the table.
struct TableRows<'a> {
    rows: &'a [&'a Call],
    selected: Option<usize>,
    /// The number of rows on the screen.
    page: usize,
    order: Order,
}

fn draw_table(frame: &mut Frame<'_>, area: Rect, table: &TableRows<'_>, now: Duration) {
    let TableRows { rows, selected, page, order } = *table;
    // Only visible rows are formatted: there may be thousands.
    let top = selected.map_or(0, |index| index.saturating_sub(page / 2));
    let top = top.min(rows.len().saturating_sub(page));
    let shown = rows.iter().enumerate().skip(top).take(page).map(|(index, call)| {
        let row = row(call, now);
        if Some(index) == selected { row.style(Modifier::REVERSED) } else { row }
    });
    let widths = [
        Constraint::Length(7),
        Constraint::Fill(2),
        Constraint::Fill(3),
        Constraint::Length(17),
        Constraint::Length(10),
        Constraint::Length(10),
        Constraint::Fill(3),
    ];
    let heading =
        |name: &str, by| if order == by { format!("{name} ↓") } else { name.to_owned() };
    let (waited, latency) = (heading("WAITED", Order::Waited), heading("LATENCY", Order::Duration));
    let headings = ["AGE", "AGENT", "TOOL", "STATE", &waited, &latency, "HANDLER"];
    let headings = Row::new(headings.map(str::to_owned)).style(BOLD);
    frame.render_widget(Table::new(shown, widths).header(headings), area);
}

fn row(call: &Call, now: Duration) -> Row<'static> {
    let text = |text: Option<&str>| text.map_or_else(|| "–".to_owned(), render::visible_line);
    let state = call.state();
    Row::new([
        Cell::from(age(now.saturating_sub(call.first))),
        Cell::from(text(call.agent.as_deref())),
        Cell::from(tool(call)),
        Cell::from(Span::styled(render::visible_line(state.as_str()), color(state))),
        Cell::from(waiting_time(call)),
        Cell::from(latency(call, now)),
        Cell::from(text(call.handler().map(render::place).as_deref())),
    ])
}

/// Formats the time in the queue.
fn waiting_time(call: &Call) -> String {
    match waited(call) {
        Some(Waited::Measured(time)) if time.is_zero() => "< 1 ms".to_owned(),
        Some(Waited::Measured(time)) => render::duration(time),
        Some(Waited::AtMost(time)) => format!("≤ {}", render::duration(time)),
        None => "–".to_owned(),
    }
}

/// Formats the time from the request to the reply, or to now. When the request was not observed, it is
/// at least the run time.
fn latency(call: &Call, now: Duration) -> String {
    let run_time = call.reply.as_ref().and_then(|reply| reply.value.run_time);
    match (call.latency(), run_time, &call.request) {
        (Some(latency), _, _) => render::duration(latency),
        (None, Some(run_time), _) => format!("≥ {}", render::duration(run_time)),
        (None, None, Some(request)) if call.state().is_live() => {
            format!("{} …", age(now.saturating_sub(request.at)))
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

fn draw_details(frame: &mut Frame<'_>, area: Rect, call: &Call, scrolled: u16, now: Duration) {
    let lines: Vec<Line<'_>> = details::lines(call, now);
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
    use rockbot_monitor::{
        CallMessage, Filter, MessageKind, Status,
        message::{ProgressInfo, ReplyInfo},
    };

    use super::*;
    use crate::watch::{
        fixture::{message, progress, reply, request},
        view::tests::{keys, observed, press},
    };

    fn shown(view: &mut View, size: (u16, u16), now: u64) -> String {
        let header =
            Header { bus: "RabbitMQ 4 at amqp://monitor@broker".to_owned(), connected: true };
        let mut terminal = Terminal::new(TestBackend::new(size.0, size.1)).unwrap();
        let drawn = terminal.draw(|frame| draw(frame, view, &header, Duration::from_millis(now)));
        let buffer = drawn.unwrap().buffer.clone();
        let mut text = String::new();
        for row in 0..size.1 {
            let cells = (0..size.0).map(|column| buffer[(column, row)].symbol());
            let _ = writeln!(text, "{}", cells.collect::<String>().trim_end());
        }
        text
    }

    fn record(view: &mut View, messages: Vec<(CallMessage, u64)>) {
        for (message, at) in messages {
            view.record(observed(message), Duration::from_millis(at));
        }
    }

    #[test]
    fn table_shows_state_latency_and_handler() {
        let mut view = View::new(Filter::default());
        let timeout = Status::Error(ToolErrorCode::Timeout);
        record(
            &mut view,
            vec![
                (request("a"), 0),
                (reply("a", Status::Ok), 9),
                (request("b"), 1000),
                (progress("b", 1), 2000),
                (reply("unobserved", timeout), 3000),
            ],
        );
        let screen = shown(&mut view, (140, 7), 4000);
        let lines: Vec<Vec<_>> =
            screen.lines().map(|line| line.split_whitespace().collect()).collect();
        let words = |line: &str| line.split_whitespace().map(str::to_owned).collect::<Vec<_>>();
        let head = "rockbot watch 1 live, 2 replied, 1 failed, 0.5/s, p50 9.0 ms, p95 9.0 ms \
                    RabbitMQ 4 at amqp://monitor@broker";
        assert_eq!(lines[0], words(head), "{screen}");
        assert_eq!(lines[1], words("AGE AGENT TOOL STATE WAITED LATENCY HANDLER"));
        assert_eq!(
            lines[2],
            words("1 s assistant read_file timeout 4.0 ms ≥ 7.0 ms tool-handler/h1")
        );
        assert_eq!(
            lines[3],
            words("3 s assistant read_file running ≤ 1.0 s 3 s … tool-handler/h1")
        );
        assert_eq!(lines[4], words("4 s assistant read_file ok 4.0 ms 9.0 ms tool-handler/h1"));
        assert_eq!(lines[6], words(HELP));
    }

    #[test]
    fn order_and_copied_id_are_shown() {
        let mut view = View::new(Filter::default());
        record(&mut view, vec![(request("a"), 0), (request("b"), 10)]);
        press(&mut view, &keys("o"));
        assert!(shown(&mut view, (140, 7), 4000).contains("LATENCY ↓"));
        press(&mut view, &keys("o"));
        assert!(shown(&mut view, (140, 7), 4000).contains("WAITED ↓"));
        press(&mut view, &keys("jy"));
        let screen = shown(&mut view, (140, 7), 4000);
        assert_eq!(
            screen.lines().last(),
            Some("sent b to the clipboard of the terminal"),
            "{screen}"
        );
    }

    #[test]
    fn depths_of_queues_are_shown_once_known() {
        let mut view = View::new(Filter::default());
        assert!(!shown(&mut view, (100, 7), 0).contains("queues"));
        let depth = |name: &str, ready, consumers| {
            let name = rockbot_contracts::QueueName::new(name).unwrap();
            (name, rockbot_bus::report::QueueDepth { ready, consumers })
        };
        let depths = vec![depth("script.invoke", 0, 1), depth("tool.invoke", 37, 2)];
        view.set_depths(depths.clone());
        let screen = shown(&mut view, (100, 7), 0);
        let line =
            "queues  script.invoke 0 waiting, 1 consumer  tool.invoke 37 waiting, 2 consumers";
        assert_eq!(screen.lines().nth(1), Some(line), "{screen}");
        assert!(screen.lines().nth(2).is_some_and(|line| line.starts_with("AGE")), "{screen}");
        press(&mut view, &keys(" "));
        view.set_depths(Vec::new());
        assert_eq!(view.depths(), depths, "paused");
    }

    #[test]
    fn calls_are_summarized_by_tool() {
        let mut view = View::new(Filter::default());
        let timeout = Status::Error(ToolErrorCode::Timeout);
        record(&mut view, vec![(request("a"), 0), (reply("a", timeout), 9), (request("b"), 10)]);
        press(&mut view, &[KeyCode::Char('t')]);
        let screen = shown(&mut view, (100, 7), 4000);
        let lines: Vec<_> = screen.lines().map(str::split_whitespace).collect();
        let words = |line: &str| line.split_whitespace().map(str::to_owned).collect::<Vec<_>>();
        assert_eq!(lines[1].clone().collect::<Vec<_>>(), words("TOOL CALLS LIVE FAILED P50 P95"));
        let row = words("read_file 2 1 1 9.0 ms 9.0 ms");
        assert_eq!(lines[2].clone().collect::<Vec<_>>(), row, "{screen}");
        press(&mut view, &[KeyCode::Char('t')]);
        assert!(shown(&mut view, (100, 7), 4000).contains("HANDLER"));
    }

    #[test]
    fn details_show_messages_with_times_and_sizes() {
        let mut view = View::new(Filter::default());
        record(
            &mut view,
            vec![
                (request("a"), 0),
                (progress("a", 1), 1000),
                (progress("a", 2), 2000),
                (message("a", MessageKind::Cancel { reason: None }), 2500),
                (reply("a", Status::Ok), 3012),
            ],
        );
        press(&mut view, &[KeyCode::Enter]);
        let screen = shown(&mut view, (100, 24), 4000);
        for text in [
            "call      a",
            "session   s",
            "request   4 s ago, on tool.invoke, 100 B, budget 5.0 s",
            "progress  2 messages: first after 1.0 s, last after 2.0 s",
            "cancelled after 2.5 s",
            "reply     after 3.0 s by tool-handler/h1: ok, executed: yes, 100 B",
            "run time  7.0 ms, transport and waiting 3.0 s",
            "stages    queue 4.0 ms, start < 1 ms, run 7.0 ms",
        ] {
            assert!(screen.contains(text), "no {text:?} in:\n{screen}");
        }
    }

    #[test]
    fn small_screen_scrolls_through_many_calls() {
        let mut view = View::new(Filter::default());
        record(&mut view, (0..2000).map(|n| (request(&format!("call-{n}")), n)).collect());
        press(&mut view, &[KeyCode::End, KeyCode::Enter]);
        let screen = shown(&mut view, (60, 20), 3000);
        assert!(screen.contains("call-0"), "{screen}");
        for size in [(1, 1), (5, 3), (300, 4)] {
            shown(&mut view, size, 3000);
        }
    }

    #[test]
    fn untrusted_text_cannot_control_terminal() {
        let hostile = "\u{1b}[2J\u{202e}\u{7}\nharm";
        let mut view = View::new(Filter::default());
        let mut request = request("a");
        request.tool = Some(hostile.to_owned());
        request.agent = Some(hostile.to_owned());
        let MessageKind::Request(info) = &mut request.kind else { unreachable!() };
        info.server = Some(hostile.to_owned());
        info.session = Some(hostile.to_owned());
        info.arguments = Some(hostile.to_owned());
        let text = Some(hostile.to_owned());
        let progress = ProgressInfo { sequence: 1, handler: text.clone(), text: text.clone() };
        let reply = ReplyInfo {
            status: Status::Error(ToolErrorCode::Other(hostile.into())),
            executed: Executed::Unknown,
            handler: text.clone(),
            run_time: None,
            stages: None,
            result: text,
        };
        let cancel = MessageKind::Cancel { reason: Some(hostile.to_owned()) };
        record(
            &mut view,
            vec![
                (request, 0),
                (message("a", MessageKind::Progress(progress)), 1),
                (message("a", cancel), 2),
                (message("a", MessageKind::Reply(reply)), 3),
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
    fn pause_filter_and_disconnect_are_shown() {
        let mut view = View::new(Filter::parse("state:live"));
        press(&mut view, &keys(" "));
        record(&mut view, vec![(request("a"), 0)]);
        let screen = shown(&mut view, (140, 6), 10);
        assert!(screen.contains("paused, 1 new") && screen.contains("[state:live]"), "{screen}");
        let header = Header { bus: String::new(), connected: false };
        let line = header_line(&view, &header, &Rates::default()).to_string();
        assert!(line.contains("disconnected"), "{line}");
    }
}
