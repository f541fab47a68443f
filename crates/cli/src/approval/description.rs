//! The text of an approval request.

use std::path::Path;

use rockbot_contracts::{ReplyBody, ToolHints};
use serde_json::Value;

use super::diff;
use crate::{call_view, render};

/// Longest shown rule, in characters.
const MAX_RULE_CHARS: usize = 200;

/// Describes the call to approve, with control and invisible characters escaped. `files` is the root of the
/// file tools, if they work on this machine.
pub(super) fn describe(body: &ReplyBody, files: Option<&Path>) -> String {
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
    let mut text = format!(
        "{} wants to call {} ({})\n",
        line(asking_agent.as_str()),
        line(tool_name),
        line(tool_source),
    );
    let change = (tool_source == "files" && *arguments_left_out == 0)
        .then(|| serde_json::from_str::<Value>(arguments).ok())
        .flatten()
        .and_then(|arguments| diff::change(tool_name, &arguments, files));
    let shown = match change {
        Some(change) => change,
        None => call_view::arguments(arguments, *arguments_left_out),
    };
    text.push_str(&shown);
    if let Some(effects) = hints.and_then(effects) {
        text.push_str(&format!("\n  effects: {effects}"));
    }
    if let Some(rule) = rule.as_deref().filter(|rule| !rule.trim().is_empty()) {
        let rule = render::short_line(&line(rule), MAX_RULE_CHARS);
        text.push_str(&format!("\n  asked by: {rule}"));
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

    #[test]
    fn description_shows_everything_and_escapes_it() {
        let long = "x".repeat(9_000);
        let text = describe(&request("bash\u{1b}[2J", &format!("{{\"a\":\"{long}\"}}"), 7), None);
        assert!(text.starts_with("assistant wants to call bash\\u{1b}[2J (files)\n"), "{text}");
        assert!(text.contains(&long) && text.contains("… 7 more bytes"), "{text}");
        assert!(text.contains("may destroy data"), "{text}");
        assert!(text.ends_with("asked by: tool = \"*\"\\u{202e}"), "{text}");
    }

    #[test]
    fn edit_is_shown_as_diff() {
        let arguments = r#"{"path":"a.txt","old_text":"one\ntwo\n","new_text":"one\n2\n"}"#;
        let text = describe(&request("edit_file", arguments, 0), None);
        let plain = anstream::adapter::strip_str(&text).to_string();
        assert!(plain.contains("path: a.txt") && plain.contains("- two\n"), "{plain}");
        assert!(plain.contains("+ 2"), "{plain}");
    }
}
