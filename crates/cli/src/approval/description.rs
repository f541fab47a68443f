//! The text of an approval request.

use std::path::Path;

use rockbot_contracts::{ReplyBody, ToolHints};
use serde_json::Value;

use super::{
    diff,
    long_line::{self, LineShortener},
};
use crate::{call_view, render, terminal_size};

/// Longest shown rule, in characters.
const MAX_RULE_CHARS: usize = 200;

/// The note about parts that are not shown.
const SHORTENED: &str = "parts of the arguments are not shown; to see all of them, refuse the call and ask for \
                         shorter ones";

/// Describes the call to approve, with control and invisible characters escaped, and without the middle of very
/// long lines. `files` is the root of the file tools, if they work on this machine.
pub(super) fn describe(body: &ReplyBody, files: Option<&Path>) -> String {
    describe_on(terminal_size::rows_and_columns(), body, files)
}

fn describe_on((rows, columns): (usize, usize), body: &ReplyBody, files: Option<&Path>) -> String {
    let ReplyBody::ApprovalAsked {
        asking_agent,
        tool_name,
        tool_source,
        arguments,
        arguments_left_out,
        hints,
        rule,
        ..
    } = body
    else {
        return String::new();
    };
    let line = render::visible_line;
    let title = format!(
        "{} wants to call {} ({})",
        line(asking_agent.as_str()),
        line(tool_name),
        line(tool_source),
    );
    let mut text = format!("{title}\n");
    let mut shortener = LineShortener::default();
    let change = (tool_source == "files" && *arguments_left_out == 0)
        .then(|| serde_json::from_str::<Value>(arguments).ok())
        .flatten()
        .and_then(|arguments| diff::change(tool_name, &arguments, files, &mut shortener));
    let shown = match change {
        Some(change) => change,
        None => {
            let whole = call_view::arguments(arguments, *arguments_left_out);
            let lines: Vec<_> = whole.lines().map(|line| shortener.shorten(line)).collect();
            lines.join("\n")
        }
    };
    text.push_str(&shown);
    if shortener.has_shortened {
        text.push_str(&format!("\n  {}", render::bad(SHORTENED)));
    }
    if let Some(effects) = hints.and_then(effects) {
        text.push_str(&format!("\n  effects: {effects}"));
    }
    if let Some(rule) = rule.as_deref().filter(|rule| !rule.trim().is_empty()) {
        let rule = render::short_line(&line(rule), MAX_RULE_CHARS);
        text.push_str(&format!("\n  asked by: {rule}"));
    }
    // The prompt fills one more row.
    if long_line::rows(&text, columns) >= rows {
        text.push_str(&format!("\n{title}, with the arguments above"));
    }
    text
}

/// Describes what the tool may do, by its hints.
fn effects(hints: ToolHints) -> Option<String> {
    let effects: Vec<_> = [
        (hints.read_only, "reads only"),
        (hints.destructive && !hints.read_only, "may destroy data"),
        (hints.open_world, "reaches other systems"),
    ]
    .into_iter()
    .filter_map(|(applies, text)| applies.then_some(text))
    .collect();
    (!effects.is_empty()).then(|| effects.join(", "))
}

#[cfg(test)]
mod tests {
    use rockbot_contracts::{AgentName, ApprovalId, ToolCallId};

    use super::*;

    fn request(tool_name: &str, arguments: &str, arguments_left_out: u64) -> ReplyBody {
        ReplyBody::ApprovalAsked {
            approval_id: ApprovalId::generate(),
            asking_agent: AgentName::new("assistant").unwrap(),
            tool_call_id: ToolCallId::generate(),
            tool_name: tool_name.to_owned(),
            tool_source: "files".to_owned(),
            arguments: arguments.to_owned(),
            arguments_left_out,
            call_hash: String::new(),
            expires_in_ms: 1,
            hints: Some(ToolHints { destructive: true, ..ToolHints::default() }),
            rule: Some("tool = \"*\"\u{202e}".to_owned()),
        }
    }

    const SCREEN: (usize, usize) = (40, 100);

    #[test]
    fn description_shows_everything_and_escapes_it() {
        let long = "x".repeat(1_000);
        let body = request("bash\u{1b}[2J", &format!("{{\"a\":\"{long}\"}}"), 7);
        let text = describe_on(SCREEN, &body, None);
        assert!(text.starts_with("assistant wants to call bash\\u{1b}[2J (files)\n"), "{text}");
        assert!(text.contains(&long) && text.contains("… 7 more bytes"), "{text}");
        assert!(text.contains("may destroy data"), "{text}");
        assert!(text.ends_with("asked by: tool = \"*\"\\u{202e}"), "{text}");
    }

    #[test]
    fn long_argument_leaves_the_request_on_the_screen() {
        let command = format!("echo {} ; rm notes.md", "x".repeat(60_000));
        let arguments = serde_json::json!({"command": command}).to_string();
        let text = describe_on(SCREEN, &request("bash", &arguments, 0), None);
        let plain = anstream::adapter::strip_str(&text).to_string();
        assert!(
            plain.contains("command: echo xxx") && plain.contains("x ; rm notes.md"),
            "{plain}"
        );
        assert!(
            plain.contains("characters are not shown]") && plain.contains(SHORTENED),
            "{plain}"
        );
        assert!(long_line::rows(&plain, SCREEN.1) < SCREEN.0, "{plain}");
        let edit = serde_json::json!({"path": "a", "old_text": "", "new_text": "y".repeat(60_000)});
        let text = describe_on(SCREEN, &request("edit_file", &edit.to_string(), 0), None);
        assert!(text.contains("characters are not shown]") && text.contains(SHORTENED), "{text}");
    }

    #[test]
    fn many_lines_are_followed_by_the_tool() {
        let lines = "echo\n".repeat(100);
        let arguments = serde_json::json!({"command": lines}).to_string();
        let text = describe_on(SCREEN, &request("bash", &arguments, 0), None);
        let last = "assistant wants to call bash (files), with the arguments above";
        assert!(text.ends_with(last) && text.matches("│ echo").count() == 100, "{text}");
        let short = describe_on(SCREEN, &request("bash", "{}", 0), None);
        assert_eq!(short.matches("wants to call").count(), 1, "{short}");
    }

    #[test]
    fn edit_is_shown_as_diff() {
        let arguments = r#"{"path":"a.txt","old_text":"one\ntwo\n","new_text":"one\n2\n"}"#;
        let text = describe_on(SCREEN, &request("edit_file", arguments, 0), None);
        let plain = anstream::adapter::strip_str(&text).to_string();
        assert!(plain.contains("path: a.txt") && plain.contains("- two\n"), "{plain}");
        assert!(plain.contains("+ 2"), "{plain}");
    }
}
