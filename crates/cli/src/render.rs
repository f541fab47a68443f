//! Text rendering: tables, colors, escaping, units, and lines for tool calls.

use std::{path::Path, time::Duration};

use anstyle::{AnsiColor, Style};
use comfy_table::{ContentArrangement, Table, presets::NOTHING};
use rockbot_contracts::{
    CallStages, Executed, ReplyBody, Spending, ToolErrorCode, TurnUsage,
    outside_text::{self, is_escaped},
};

pub(crate) use rockbot_contracts::outside_text::{
    escaped as visible, escaped_line as visible_line,
};

const DIM: Style = Style::new().dimmed();
const NAME: Style = AnsiColor::Cyan.on_default().bold();
const GOOD: Style = AnsiColor::Green.on_default();
const BAD: Style = AnsiColor::Red.on_default();

/// Styles of cells, and the invisible characters that stand for them during the layout: escape sequences
/// would count for the width of their column.
const MARKS: [(&str, &str); 4] = [
    ("\u{1b}[2m", "\u{2061}"),
    ("\u{1b}[32m", "\u{2062}"),
    ("\u{1b}[31m", "\u{2063}"),
    ("\u{1b}[0m", "\u{2064}"),
];

/// Renders a table without borders. Headings are upper case; there is no heading row when all are empty.
pub(crate) fn table(headings: &[&str], rows: impl IntoIterator<Item = Vec<String>>) -> String {
    let mut table = Table::new();
    table.load_style(NOTHING).set_content_arrangement(ContentArrangement::Dynamic);
    if headings.iter().any(|heading| !heading.is_empty()) {
        table.set_header(headings.iter().map(|heading| heading.to_uppercase()));
    }
    let mark = |cell: String| {
        let cell = MARKS.iter().fold(cell, |cell, (_, mark)| cell.replace(mark, ""));
        MARKS.iter().fold(cell, |cell, (style, mark)| cell.replace(style, mark))
    };
    table.add_rows(rows.into_iter().map(|row| row.into_iter().map(mark).collect::<Vec<_>>()));
    // Removes the padding outside the first and the last column.
    let trim = |line: String| line.strip_prefix(' ').unwrap_or(&line).trim_end().to_owned();
    let lines = table.lines().map(trim).collect::<Vec<_>>().join("\n");
    MARKS.iter().fold(lines, |lines, (style, mark)| lines.replace(mark, style))
}

/// Dims text.
pub(crate) fn dim(text: &str) -> String {
    format!("{DIM}{text}{DIM:#}")
}

/// Colors text as success.
pub(crate) fn good(text: &str) -> String {
    format!("{GOOD}{text}{GOOD:#}")
}

/// Colors text as failure.
pub(crate) fn bad(text: &str) -> String {
    format!("{BAD}{text}{BAD:#}")
}

/// Removes terminal sequences and hidden characters from untrusted text. Line breaks and tabs stay.
pub(crate) fn clean(text: &str) -> String {
    outside_text::stripped(text).replace('\r', "")
}

/// Formats the path of a file like untrusted text.
pub(crate) fn path(path: &Path) -> String {
    clean(&path.display().to_string())
}

/// Returns untrusted text on one line of at most `max_chars` characters, and an ellipsis if it is longer.
pub(crate) fn short_line(text: &str, max_chars: usize) -> String {
    let mut line = clean(text).split_whitespace().collect::<Vec<_>>().join(" ");
    if let Some((end, _)) = line.char_indices().nth(max_chars) {
        line.truncate(end);
        line.push('…');
    }
    line
}

/// Formats JSON on several lines, with control and invisible characters escaped.
pub(crate) fn json(value: &serde_json::Value) -> String {
    escaped(&format!("{value:#}"))
}

/// Formats JSON on one line, with control and invisible characters escaped.
pub(crate) fn json_line(value: &serde_json::Value) -> String {
    escaped(&value.to_string())
}

fn escaped(json: &str) -> String {
    let mut shown = String::new();
    for c in json.chars() {
        // Line breaks occur only between values; those in strings are escaped already.
        if c == '\n' || !is_escaped(c) {
            shown.push(c);
            continue;
        }
        for unit in c.encode_utf16(&mut [0; 2]) {
            shown.push_str(&format!("\\u{unit:04x}"));
        }
    }
    shown
}

/// Formats the age of a Unix time in one unit.
pub(crate) fn ago(unix_seconds: u64, now: u64) -> String {
    let seconds = now.saturating_sub(unix_seconds);
    match seconds {
        0..60 => format!("{seconds} s ago"),
        60..3_600 => format!("{} min ago", seconds / 60),
        3_600..172_800 => format!("{} h ago", seconds / 3_600),
        _ => format!("{} days ago", seconds / 86_400),
    }
}

/// Reports lost progress of a turn.
pub(crate) fn lost(replies: u64) -> String {
    format!("  ({} lost: calls or text may be missing here)", counted(replies, "progress message"))
}

/// Formats a number with its noun.
pub(crate) fn count(number: usize, noun: &str) -> String {
    if number == 1 { format!("1 {noun}") } else { format!("{number} {noun}s") }
}

/// Returns a line for an event of a tool call, if the event has one.
pub(crate) fn call_line(body: &ReplyBody) -> Option<String> {
    match body {
        ReplyBody::ToolStarted { tool_name, arguments, .. } => {
            let name = clean(tool_name);
            Some(format!("  {DIM}→{DIM:#} {NAME}{name}{NAME:#} {DIM}{}{DIM:#}", clean(arguments)))
        }
        ReplyBody::ToolProgressed { text, .. } => Some(format!("    {DIM}{}{DIM:#}", clean(text))),
        ReplyBody::ToolFinished {
            tool_name,
            ran_on,
            elapsed_us,
            bytes,
            error,
            executed,
            child_loop_id,
            ..
        } => {
            let name = clean(tool_name);
            let place = match (ran_on, executed) {
                (Some(ran_on), _) => format!("ran on {}", clean(&place(ran_on))),
                (None, Executed::Yes) => "ran in the agent".to_owned(),
                (None, Executed::No) => "did not run".to_owned(),
                (None, Executed::Unknown) => "no reply".to_owned(),
            };
            let time = duration(Duration::from_micros(*elapsed_us));
            let child = child_loop_id.as_ref();
            let child = child.map(|id| format!(", conversation {}", clean(id))).unwrap_or_default();
            let tail = format!("{DIM}{place}, {time}, {}{child}{DIM:#}", size(*bytes));
            Some(match error {
                None => format!("  {GOOD}←{GOOD:#} {NAME}{name}{NAME:#} {tail}"),
                Some(ToolErrorCode::ExecutionFailed) => {
                    format!("  {BAD}←{BAD:#} {NAME}{name}{NAME:#} {BAD}failed{BAD:#} {tail}")
                }
                Some(code) => format!(
                    "  {BAD}←{BAD:#} {NAME}{name}{NAME:#} {BAD}{code}, executed: \
                     {executed}{BAD:#} {tail}"
                ),
            })
        }
        ReplyBody::TaskStatus { status, done, pending, now } => {
            let part = |name: &str, text: &str| match text.trim() {
                "" => String::new(),
                text => format!("; {name}: {}", short_line(text, 500)),
            };
            let line = format!(
                "  ({}{}{}{})",
                short_line(status, 32),
                part("now", now),
                part("done", done),
                part("left", pending)
            );
            Some(dim(&line))
        }
        ReplyBody::HandedOff { to } => {
            Some(dim(&format!("  (agent {} answers)", short_line(to, 64))))
        }
        ReplyBody::Steered {} => Some(dim("  (added to the running turn)")),
        ReplyBody::Resumed { attempt, .. } => Some(dim(&format!(
            "  (attempt {attempt}: another process continues the turn; text since the last call is \
             repeated)"
        ))),
        ReplyBody::TextDelta { .. }
        | ReplyBody::Answer { .. }
        | ReplyBody::ApprovalAsked { .. }
        | ReplyBody::ApprovalClosed { .. }
        | ReplyBody::InputAsked { .. }
        | ReplyBody::InputClosed { .. }
        | ReplyBody::DelegationProgressed { .. }
        | ReplyBody::DelegationEnded { .. }
        | ReplyBody::FollowUp { .. }
        | ReplyBody::Other => None,
    }
}

/// Shortens a generated instance id to its end, which is random; the rest is the time.
pub(crate) fn place(ran_on: &str) -> String {
    match ran_on.split_once('/') {
        Some((service, instance)) if instance.len() > 16 => {
            let tail = &instance[instance.floor_char_boundary(instance.len() - 8)..];
            format!("{service}/…{tail}")
        }
        _ => ran_on.to_owned(),
    }
}

/// Formats the usage of a turn and of the conversation.
pub(crate) fn usage(usage: &TurnUsage) -> String {
    let mut lines = vec![format!("  turn          {}", spending(&usage.turn))];
    if usage.children != Spending::default() {
        lines.push(format!("  other agents  {}", spending(&usage.children)));
    }
    lines.push(format!("  conversation  {}", spending(&usage.session)));
    lines.join("\n")
}

fn spending(spent: &Spending) -> String {
    let Spending { model_calls, prompt_tokens, completion_tokens, unmetered_calls, .. } = spent;
    let Spending { tool_calls, tool_bytes_in, tool_bytes_out, .. } = spent;
    let mut text = format!("{}, ", counted(*model_calls, "model call"));
    match unmetered_calls {
        0 => text.push_str(&format!("{prompt_tokens} + {completion_tokens} tokens")),
        _ if unmetered_calls == model_calls => text.push_str("tokens unknown"),
        _ => text.push_str(&format!(
            "{prompt_tokens} + {completion_tokens} tokens ({unmetered_calls} unmetered)"
        )),
    }
    let (bytes_in, bytes_out) = (size(*tool_bytes_in), size(*tool_bytes_out));
    text.push_str(&format!(", {}", counted(*tool_calls, "tool call")));
    if *tool_calls > 0 {
        text.push_str(&format!(" ({bytes_in} in, {bytes_out} out)"));
    }
    if spent.unpriced_calls < spent.model_calls {
        text.push_str(&format!(", ${:.4}", spent.cost_micros as f64 / 1e6));
        if spent.unpriced_calls > 0 {
            text.push_str(&format!(" ({} unpriced)", spent.unpriced_calls));
        }
    }
    text
}

fn counted(count: u64, noun: &str) -> String {
    format!("{count} {noun}{}", if count == 1 { "" } else { "s" })
}

/// Formats a duration in a suitable unit.
pub(crate) fn duration(time: Duration) -> String {
    let micros = time.as_micros();
    match micros {
        0..1_000 => format!("{micros} µs"),
        1_000..1_000_000 => format!("{:.1} ms", time.as_secs_f64() * 1e3),
        _ => format!("{:.1} s", time.as_secs_f64()),
    }
}

/// Formats the durations of a call's stages, which are whole milliseconds.
pub(crate) fn stages(stages: &CallStages) -> String {
    let millis = |millis| match millis {
        0 => "< 1 ms".to_owned(),
        millis => duration(Duration::from_millis(millis)),
    };
    let CallStages { queue_ms, start_ms, run_ms } = *stages;
    let queue = queue_ms.map(|queue| format!("queue {}, ", millis(queue))).unwrap_or_default();
    format!("{queue}start {}, run {}", millis(start_ms), millis(run_ms))
}

/// Formats a size in a suitable unit.
pub(crate) fn size(bytes: u64) -> String {
    match bytes {
        0..1_024 => format!("{bytes} B"),
        1_024..1_048_576 => format!("{:.1} KiB", bytes as f64 / 1024.0),
        _ => format!("{:.1} MiB", bytes as f64 / 1_048_576.0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn styled_cells_align_with_their_heading() {
        let rows = [("time", good("ready"), "2"), ("broken", bad("failed"), "0")];
        let rows = rows.map(|(name, state, tools)| vec![name.to_owned(), state, tools.to_owned()]);
        let table = table(&["server", "state", "tools"], rows);
        assert!(table.contains("\u{1b}[32mready\u{1b}[0m"), "{table:?}");
        let plain = MARKS.iter().fold(table, |table, (style, _)| table.replace(style, ""));
        let lines: Vec<_> = plain.lines().collect();
        let columns = [lines[0].find("TOOLS"), lines[1].find('2'), lines[2].find('0')];
        assert!(columns[0].is_some() && columns.iter().all(|at| *at == columns[0]), "{plain}");
    }

    #[test]
    fn clean_removes_control_characters() {
        assert_eq!(clean("a\u{1b}[31mb\u{202e}c\u{200b}\r\n"), "abc\n");
    }

    #[test]
    fn hidden_characters_are_escaped() {
        let hostile = "a\u{1b}[31mb\u{202e}c\r\nd\u{9b}\u{200b}ü";
        assert_eq!(visible(hostile), "a\\u{1b}[31mb\\u{202e}c\\r\nd\\u{9b}\\u{200b}ü");
        assert!(!visible_line(hostile).contains('\n'));
        let value = serde_json::json!({ "text": format!("{hostile}\u{e0041}") });
        let shown = json(&value);
        assert!(shown.chars().all(|c| c == '\n' || !is_escaped(c)), "{shown:?}");
        assert_eq!(serde_json::from_str::<serde_json::Value>(&shown).unwrap(), value);
        let line = json_line(&value);
        assert!(!line.contains(is_escaped), "{line:?}");
        assert_eq!(serde_json::from_str::<serde_json::Value>(&line).unwrap(), value);
    }

    #[test]
    fn age_has_one_unit() {
        let ages = [0, 61, 3 * 3_600, 72 * 3_600].map(|age| ago(1_000_000 - age, 1_000_000));
        assert_eq!(ages, ["0 s ago", "1 min ago", "3 h ago", "3 days ago"]);
    }

    #[test]
    fn unit_depends_on_magnitude() {
        assert_eq!(duration(Duration::from_micros(999)), "999 µs");
        assert_eq!(duration(Duration::from_micros(1500)), "1.5 ms");
        assert_eq!(duration(Duration::from_secs(90)), "90.0 s");
        assert_eq!((size(10), size(2048)), ("10 B".to_owned(), "2.0 KiB".to_owned()));
    }

    #[test]
    fn usage_shows_unmetered_and_unpriced_calls() {
        let metered = Spending {
            model_calls: 2,
            prompt_tokens: 1200,
            completion_tokens: 80,
            tool_calls: 1,
            tool_bytes_in: 30,
            tool_bytes_out: 2048,
            cost_micros: 2300,
            ..Spending::default()
        };
        let text = "2 model calls, 1200 + 80 tokens, 1 tool call (30 B in, 2.0 KiB out), $0.0023";
        assert_eq!(spending(&metered), text);
        let partly = Spending { unmetered_calls: 1, unpriced_calls: 1, tool_calls: 0, ..metered };
        assert_eq!(
            spending(&partly),
            "2 model calls, 1200 + 80 tokens (1 unmetered), 0 tool calls, $0.0023 (1 unpriced)"
        );
        let nothing = Spending {
            model_calls: 1,
            unmetered_calls: 1,
            unpriced_calls: 1,
            ..Spending::default()
        };
        assert_eq!(spending(&nothing), "1 model call, tokens unknown, 0 tool calls");
    }

    #[test]
    fn call_line_shows_where_the_call_ran() {
        for (ran_on, executed, error, expected) in [
            (Some("tool-handler/a"), Executed::Yes, None, "ran on tool-handler/a, "),
            (None, Executed::Yes, None, "ran in the agent, "),
            (None, Executed::No, Some(ToolErrorCode::NotPermitted), "did not run, "),
            (None, Executed::Unknown, Some(ToolErrorCode::Timeout), "no reply, "),
        ] {
            let line = call_line(&ReplyBody::ToolFinished {
                tool_call_id: rockbot_contracts::ToolCallId::generate(),
                tool_name: "remember".to_owned(),
                ran_on: ran_on.map(str::to_owned),
                elapsed_us: 7,
                bytes: 3,
                error,
                executed,
                child_loop_id: None,
                stages: None,
                result: None,
                result_left_out: 0,
            });
            let line = line.unwrap();
            assert!(line.contains(expected), "{line}");
        }
    }

    #[test]
    fn generated_instance_is_shortened() {
        assert_eq!(place("tool-handler/handler-0"), "tool-handler/handler-0");
        assert_eq!(place("h/018f3c1e7a2b7c3d8e4f5a6b7c8d9e0f"), "h/…7c8d9e0f");
    }
}
