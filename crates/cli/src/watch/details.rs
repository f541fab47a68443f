//! The details of one call as text.

use std::time::Duration;

use ratatui::{
    style::{Modifier, Style},
    text::{Line, Span},
};
use rockbot_monitor::{
    Call,
    calls::{Progress, Timed},
    message::{ReplyInfo, RequestInfo},
};

use super::style::{color, tool};
use crate::render;

const DIM: Style = Style::new().add_modifier(Modifier::DIM);

/// Returns the lines of the details. They include arguments and results only when those were kept.
pub(super) fn lines(call: &Call, now: Duration) -> Vec<Line<'static>> {
    let mut lines = vec![line("call", call.id.as_str()), line("tool", &tool(call))];
    lines.extend(call.trace.as_deref().map(|trace| line("trace", trace)));
    let agent = call.agent.as_deref().unwrap_or("–");
    lines.push(line("agent", agent));
    if let Some(request) = &call.request {
        push_request(&mut lines, request, now);
    } else {
        lines.push(line(
            "request",
            "not observed: sent before this watch started, or on another queue",
        ));
    }
    let start = call.request.as_ref().map(|request| request.at);
    let after = |at: Duration| match start.and_then(|start| at.checked_sub(start)) {
        Some(time) => format!("after {}", render::duration(time)),
        None => format!("{} ago", render::duration(now.saturating_sub(at))),
    };
    if let Some(progress) = &call.progress {
        push_progress(&mut lines, progress, after);
    }
    if let Some(cancel) = &call.cancel {
        lines.push(line("cancelled", &after(cancel.at)));
        push_content(&mut lines, cancel.value.as_deref());
    }
    match &call.reply {
        Some(reply) => push_reply(&mut lines, call, reply, &after(reply.at)),
        None => {
            let state = call.state();
            let name = Span::styled(render::visible_line(state.as_str()), color(state));
            lines.push(Line::from(vec![label("state"), name]));
        }
    }
    lines
}

fn push_request(lines: &mut Vec<Line<'static>>, request: &Timed<RequestInfo>, now: Duration) {
    let info = &request.value;
    lines.extend(info.session.as_deref().map(|session| line("session", session)));
    lines.extend(info.user.as_deref().map(|user| line("user", user)));
    lines.extend(info.reply_to.as_deref().map(|key| line("reply to", key)));
    let mut text = format!(
        "{} s ago, on {}, {}",
        now.saturating_sub(request.at).as_secs(),
        info.key,
        render::size(request.bytes as u64)
    );
    if let Some(budget) = info.budget {
        text.push_str(&format!(", budget {}", render::duration(budget)));
    }
    if info.attempt > 1 {
        text.push_str(&format!(", attempt {}", info.attempt));
    }
    lines.push(line("request", &text));
    push_content(lines, info.arguments.as_deref());
}

fn push_progress(
    lines: &mut Vec<Line<'static>>,
    progress: &Progress,
    after: impl Fn(Duration) -> String,
) {
    let (first, last) = (after(progress.first), after(progress.last.at));
    let text = match progress.count {
        1 => format!("1 message: {first}"),
        count => format!("{count} messages: first {first}, last {last}"),
    };
    lines.push(line("progress", &text));
    push_content(lines, progress.last.value.text.as_deref());
}

fn push_reply(lines: &mut Vec<Line<'static>>, call: &Call, reply: &Timed<ReplyInfo>, after: &str) {
    let info = &reply.value;
    let handler = render::visible_line(info.handler.as_deref().unwrap_or("–"));
    let state = call.state();
    let size = render::size(reply.bytes as u64);
    lines.push(Line::from(vec![
        label("reply"),
        Span::raw(format!("{after} by {handler}: ")),
        Span::styled(render::visible_line(state.as_str()), color(state)),
        Span::raw(format!(", executed: {}, {size}", info.executed)),
    ]));
    if let Some(run_time) = info.run_time {
        let mut text = render::duration(run_time);
        // The handler reports whole milliseconds, which may exceed the latency a little.
        if let Some(rest) = call.latency().map(|latency| latency.saturating_sub(run_time)) {
            text.push_str(&format!(", transport and waiting {}", render::duration(rest)));
        }
        lines.push(line("run time", &text));
    }
    if let Some(stages) = &info.stages {
        lines.push(line("stages", &render::stages(stages)));
    }
    push_content(lines, info.result.as_deref());
}

fn label(name: &str) -> Span<'static> {
    Span::styled(format!("{name:<10}"), DIM)
}

fn line(name: &str, text: &str) -> Line<'static> {
    Line::from(vec![label(name), Span::raw(render::visible_line(text))])
}

/// Appends content, indented, with control and invisible characters escaped.
fn push_content(lines: &mut Vec<Line<'static>>, text: Option<&str>) {
    for part in text.unwrap_or_default().lines() {
        lines.push(Line::from(format!("          {}", render::visible_line(part))));
    }
}
