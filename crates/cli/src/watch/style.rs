//! The text of a tool and the color of a state, as shown in the table and the details.

use ratatui::style::{Color, Style};
use rockbot_monitor::{Call, State};

use crate::render;

/// Formats the tool, with its server for an MCP tool.
pub(super) fn tool(call: &Call) -> String {
    let tool = call.tool.as_deref().unwrap_or("–");
    let named = call.server().map(|server| format!("{server}/{tool}"));
    render::visible_line(named.as_deref().unwrap_or(tool))
}

/// Returns the color of a state.
pub(super) fn color(state: State<'_>) -> Style {
    match state {
        State::Requested => Style::new(),
        State::Running => Color::Cyan.into(),
        State::Cancelling => Color::Yellow.into(),
        state if state.is_failed() => Color::Red.into(),
        _ => Color::Green.into(),
    }
}
