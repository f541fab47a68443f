//! The stages of one call, in words.

use std::time::Duration;

use ratatui::{
    style::{Modifier, Style},
    text::{Line, Span},
};

use super::{
    calls::{Call, Progress, Stage},
    heard::{Answered, Asked},
    screen::{colour, tool},
};
use crate::show;

const DIM: Style = Style::new().add_modifier(Modifier::DIM);

/// The lines of the details; what was asked and answered is among them only where it was kept.
pub(super) fn of(call: &Call, now: Duration) -> Vec<Line<'static>> {
    let mut lines = vec![line("call", call.id.as_str()), line("tool", &tool(call))];
    lines.extend(call.trace.as_deref().map(|trace| line("trace", trace)));
    let agent = call.agent.as_deref().unwrap_or("–");
    lines.push(line("agent", agent));
    if let Some(asked) = &call.asked {
        of_question(&mut lines, asked, now);
    } else {
        lines.push(line("asked", "before this watch began, or where it does not listen"));
    }
    let start = call.asked.as_ref().map(|asked| asked.at);
    let after = |at: Duration| match start.and_then(|start| at.checked_sub(start)) {
        Some(time) => format!("after {}", show::duration(time)),
        None => format!("{} ago", show::duration(now.saturating_sub(at))),
    };
    if let Some(progress) = &call.progress {
        of_progress(&mut lines, progress, after);
    }
    if let Some(cancelled) = &call.cancelled {
        lines.push(line("cancelled", &after(cancelled.at)));
        content(&mut lines, cancelled.said.as_deref());
    }
    match &call.answered {
        Some(answer) => of_answer(&mut lines, call, answer, &after(answer.at)),
        None => {
            let state = call.state();
            let word = Span::styled(show::visible_line(state.word()), colour(state));
            lines.push(Line::from(vec![label("state"), word]));
        }
    }
    lines
}

fn of_question(lines: &mut Vec<Line<'static>>, asked: &Stage<Asked>, now: Duration) {
    let said = &asked.said;
    lines.extend(said.session.as_deref().map(|session| line("session", session)));
    lines.extend(said.user.as_deref().map(|user| line("user", user)));
    lines.extend(said.reply_to.as_deref().map(|key| line("reply to", key)));
    let mut words = format!(
        "{} s ago, on {}, {}",
        now.saturating_sub(asked.at).as_secs(),
        said.key,
        show::size(asked.bytes as u64)
    );
    if let Some(budget) = said.budget {
        words.push_str(&format!(", {} to answer", show::duration(budget)));
    }
    if said.times > 1 {
        words.push_str(&format!(", asked {} times", said.times));
    }
    lines.push(line("asked", &words));
    content(lines, said.arguments.as_deref());
}

fn of_progress(
    lines: &mut Vec<Line<'static>>,
    progress: &Progress,
    after: impl Fn(Duration) -> String,
) {
    let (first, last) = (after(progress.first), after(progress.last.at));
    let signs = match progress.signs {
        1 => format!("1 sign: {first}"),
        signs => format!("{signs} signs: the first {first}, the last {last}"),
    };
    lines.push(line("progress", &signs));
    content(lines, progress.last.said.text.as_deref());
}

fn of_answer(lines: &mut Vec<Line<'static>>, call: &Call, answer: &Stage<Answered>, after: &str) {
    let said = &answer.said;
    let worker = show::visible_line(said.worker.as_deref().unwrap_or("–"));
    let state = call.state();
    let size = show::size(answer.bytes as u64);
    lines.push(Line::from(vec![
        label("answered"),
        Span::raw(format!("{after} by {worker}: ")),
        Span::styled(show::visible_line(state.word()), colour(state)),
        Span::raw(format!(", executed: {}, {size}", said.executed)),
    ]));
    if let Some(ran) = said.ran {
        let mut words = format!("ran {}", show::duration(ran));
        // The worker tells whole milliseconds, which may be a little more.
        if let Some(rest) = call.latency().map(|latency| latency.saturating_sub(ran)) {
            words.push_str(&format!(", on the way and waiting {}", show::duration(rest)));
        }
        lines.push(line("of that", &words));
    }
    content(lines, said.result.as_deref());
}

fn label(name: &str) -> Span<'static> {
    Span::styled(format!("{name:<10}"), DIM)
}

fn line(name: &str, words: &str) -> Line<'static> {
    Line::from(vec![label(name), Span::raw(show::visible_line(words))])
}

/// What was said, indented, with signs for what controls or hides.
fn content(lines: &mut Vec<Line<'static>>, text: Option<&str>) {
    for part in text.unwrap_or_default().lines() {
        lines.push(Line::from(format!("          {}", show::visible_line(part))));
    }
}
