//! Forms and links that MCP servers show to the user.

use std::time::{Duration, Instant};

use rockbot_contracts::{
    InputAction, InputBody, InputRequest, InputResponse,
    input::{InputField, InputKind, link_host},
};
use serde_json::{Map, Value};

use super::prompt::{Line, RawMode, line_prompt, read_line};
use crate::{print::note, render};

/// Largest number of shown options of a field.
const MAX_SHOWN_OPTIONS: usize = 20;

/// The outcome of a form.
#[derive(Debug, PartialEq)]
pub(super) enum Filled {
    /// The user decided.
    Response(InputResponse),
    /// Ctrl-C.
    Interrupted,
    /// The request expired, or was closed.
    Closed,
}

/// Describes a request, with control and invisible characters escaped.
pub(super) fn describe(request: &InputRequest) -> String {
    let line = render::visible_line;
    let message = request.message.lines().map(|text| format!("\n  | {}", line(text)));
    let mut text =
        format!("server {} asks you{}", line(&request.server), message.collect::<String>());
    match &request.body {
        InputBody::Form { fields } => {
            let names: Vec<_> = fields.iter().map(|field| line(label(field))).collect();
            if !names.is_empty() {
                text.push_str(&format!("\n  for: {}", names.join(", ")));
            }
            text.push_str("\n  the server gets what you type; type no passwords or keys");
        }
        InputBody::Url { url } => match link_host(url) {
            Some(host) => {
                text.push_str(&format!("\n  to open a page of {}\n  {}", line(host), line(url)));
                if !url.starts_with("https:") {
                    text.push_str("\n  the connection to it is not encrypted");
                }
            }
            None => text.push_str("\n  to open a page, whose address is not valid"),
        },
        InputBody::Other => text.push_str("\n  for something that this program cannot show"),
    }
    text
}

/// Returns the response without a user who could be asked, if there is only one.
pub(super) fn only_response(request: &InputRequest) -> Option<InputResponse> {
    match &request.body {
        InputBody::Form { .. } => None,
        InputBody::Url { url } if link_host(url).is_some() => None,
        InputBody::Url { .. } | InputBody::Other => Some(InputAction::Decline.into()),
    }
}

/// Asks for consent, then for each field. Blocks the thread.
pub(super) fn fill(
    request: &InputRequest,
    expires: Instant,
    is_closed: &dyn Fn() -> bool,
) -> Filled {
    let Ok(_raw) = RawMode::enter() else { return Filled::Response(InputAction::Decline.into()) };
    let prompt = match &request.body {
        InputBody::Url { .. } => "did you open it? [y]es, [n]o, [c]ancel",
        _ => "answer? [y]es, [n]o, [c]ancel",
    };
    let consent = |left, typed: &str, columns| line_prompt(prompt, "y/n/c", left, typed, columns);
    let action = loop {
        match read(expires, is_closed, &consent) {
            Ok(line) => {
                if let Some(action) = parse_action(&line) {
                    break action;
                }
            }
            Err(end) => return end,
        }
    };
    let fields = match &request.body {
        InputBody::Form { fields } if action == InputAction::Accept => fields.as_slice(),
        _ => return Filled::Response(action.into()),
    };
    let mut content = Map::new();
    for field in fields {
        match ask_field(field, expires, is_closed) {
            Ok(Some(value)) => {
                content.insert(field.name.clone(), value);
            }
            Ok(None) => {}
            Err(end) => return end,
        }
    }
    Filled::Response(InputResponse { action, content })
}

/// Asks for a value until it is valid. An empty line is the default, or no value.
fn ask_field(
    field: &InputField,
    expires: Instant,
    is_closed: &dyn Fn() -> bool,
) -> Result<Option<Value>, Filled> {
    show(&explain(field));
    let (long, short) = (field_prompt(field), render::visible_line(&field.name));
    let prompt = |left, typed: &str, columns| line_prompt(&long, &short, left, typed, columns);
    loop {
        let typed = read(expires, is_closed, &prompt)?;
        let value = if typed.trim().is_empty() {
            match (&field.default, field.required) {
                (Some(default), _) => return Ok(Some(default.clone())),
                (None, false) => return Ok(None),
                (None, true) => Err("a value is required".to_owned()),
            }
        } else {
            field.parse(&typed)
        };
        match value {
            Ok(value) => return Ok(Some(value)),
            Err(reason) => show(&format!("  {}", render::visible_line(&reason))),
        }
    }
}

fn read(
    expires: Instant,
    is_closed: &dyn Fn() -> bool,
    prompt: &dyn Fn(Duration, &str, usize) -> String,
) -> Result<String, Filled> {
    match read_line(expires, is_closed, prompt) {
        Line::Text(line) => Ok(line),
        Line::Interrupted => Err(Filled::Interrupted),
        Line::EndOfInput => Err(Filled::Response(InputAction::Cancel.into())),
        Line::Closed => Err(Filled::Closed),
    }
}

/// Prints a text while the terminal sends single keys, when a line break does not return the cursor.
fn show(text: &str) {
    if !text.is_empty() {
        note!("{}\r", text.replace('\n', "\r\n"));
    }
}

fn parse_action(line: &str) -> Option<InputAction> {
    match line.trim().to_lowercase().as_str() {
        "y" | "yes" => Some(InputAction::Accept),
        "n" | "no" => Some(InputAction::Decline),
        "c" | "cancel" => Some(InputAction::Cancel),
        _ => None,
    }
}

fn label(field: &InputField) -> &str {
    if field.title.is_empty() { &field.name } else { &field.title }
}

/// Returns the description and the options of a field.
fn explain(field: &InputField) -> String {
    let line = render::visible_line;
    let mut lines = Vec::new();
    if !field.description.is_empty() {
        lines.push(format!("  {}", line(&field.description)));
    }
    if let InputKind::Choice { options } | InputKind::Choices { options, .. } = &field.kind {
        for (at, option) in options.iter().take(MAX_SHOWN_OPTIONS).enumerate() {
            let title = if option.title.is_empty() { &option.value } else { &option.title };
            lines.push(format!("  {}. {}", at + 1, line(title)));
        }
        if options.len() > MAX_SHOWN_OPTIONS {
            lines.push(format!("  and {} more", options.len() - MAX_SHOWN_OPTIONS));
        }
    }
    lines.join("\n")
}

/// Returns the prompt for a field: its label, what it permits, and its default.
fn field_prompt(field: &InputField) -> String {
    let mut notes = Vec::new();
    match &field.kind {
        InputKind::Text { format: Some(format), .. } => notes.push(render::visible_line(format)),
        InputKind::Number { integer: true, .. } => notes.push("whole number".to_owned()),
        InputKind::Number { .. } => notes.push("number".to_owned()),
        InputKind::Boolean => notes.push("yes or no".to_owned()),
        InputKind::Choices { .. } => notes.push("separated by commas".to_owned()),
        InputKind::Text { .. } | InputKind::Choice { .. } | InputKind::Other => {}
    }
    match (&field.default, field.required) {
        (Some(default), _) => {
            let text = default.as_str().map_or_else(|| default.to_string(), str::to_owned);
            notes.push(format!("default {}", render::visible_line(&text)));
        }
        (None, false) => notes.push("optional".to_owned()),
        (None, true) => {}
    }
    let label = render::visible_line(label(field));
    if notes.is_empty() { label } else { format!("{label} ({})", notes.join(", ")) }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn request(body: Value) -> InputRequest {
        let body = serde_json::from_value(body).unwrap();
        InputRequest { server: "github".to_owned(), message: "Why\u{1b}[2J?\nTwo".to_owned(), body }
    }

    #[test]
    fn host_of_a_link_is_shown_and_nothing_is_hidden() {
        let url = "https://auth.example.com/login?next=https://evil.example";
        let text = describe(&request(json!({"mode": "url", "url": url})));
        assert!(text.contains("a page of auth.example.com\n"), "{text}");
        assert!(text.contains(url) && !text.contains('\u{1b}'), "{text}");
        assert!(text.contains("\n  | Two"), "lines of the server are marked: {text}");
        let plain = describe(&request(json!({"mode": "url", "url": "http://a.example/"})));
        assert!(plain.contains("not encrypted"), "{plain}");
        let hidden = request(json!({"mode": "url", "url": "https://a@b/"}));
        assert_eq!(only_response(&hidden), Some(InputAction::Decline.into()));
        assert!(only_response(&request(json!({"mode": "of_a_newer_peer"}))).is_some());
    }

    #[test]
    fn fields_are_explained() {
        let field = |value| serde_json::from_value::<InputField>(value).unwrap();
        let color = field(json!({"name": "color", "title": "Color", "type": "choice",
            "default": "r", "options": [{"value": "r", "title": "Red"}, {"value": "g"}]}));
        assert_eq!(explain(&color), "  1. Red\n  2. g");
        assert_eq!(field_prompt(&color), "Color (default r)");
        let age = field(json!({"name": "age", "type": "number", "integer": true}));
        assert_eq!(field_prompt(&age), "age (whole number, optional)");
        let mail =
            field(json!({"name": "mail", "required": true, "type": "text", "format": "email"}));
        assert_eq!(field_prompt(&mail), "mail (email)");
    }

    #[test]
    fn consent_is_explicit() {
        assert_eq!(parse_action(" Yes "), Some(InputAction::Accept));
        assert_eq!(parse_action("n"), Some(InputAction::Decline));
        assert_eq!(parse_action("c"), Some(InputAction::Cancel));
        assert_eq!((parse_action(""), parse_action("yess")), (None, None));
    }
}
