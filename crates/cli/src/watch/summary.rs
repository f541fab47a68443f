//! Rates and latencies of the shown calls, in total and by tool.

use std::{collections::BTreeMap, time::Duration};

use ratatui::{
    Frame,
    layout::{Constraint, Rect},
    style::{Color, Modifier, Style},
    text::Span,
    widgets::{Cell, Row, Table},
};
use rockbot_monitor::Call;

use super::style::tool;
use crate::render;

/// The time over which rates are measured.
const WINDOW: Duration = Duration::from_secs(10);

/// Calls of the last 10 s.
#[derive(Debug, Default, PartialEq)]
pub(super) struct Rates {
    /// Replies per second.
    per_second: f64,
    /// Median latency; `None` without a reply whose request was observed.
    p50: Option<Duration>,
    p95: Option<Duration>,
}

impl Rates {
    /// Measures the replies of the last 10 s before `now`.
    pub(super) fn of_calls(calls: &[&Call], now: Duration) -> Self {
        // A watch that has just started has seen less.
        let window = WINDOW.min(now);
        let since = now.saturating_sub(WINDOW);
        let is_recent = |call: &&&Call| call.reply.as_ref().is_some_and(|one| one.at >= since);
        let recent: Vec<_> = calls.iter().filter(is_recent).collect();
        let seconds = window.as_secs_f64();
        let per_second = if seconds > 0.0 { recent.len() as f64 / seconds } else { 0.0 };
        let (p50, p95) = percentiles(recent.iter().filter_map(|call| call.latency()));
        Self { per_second, p50, p95 }
    }

    /// Formats the rates for the header.
    pub(super) fn describe(&self) -> String {
        let mut text = format!("{:.1}/s", self.per_second);
        if let (Some(p50), Some(p95)) = (self.p50, self.p95) {
            let (p50, p95) = (render::duration(p50), render::duration(p95));
            text.push_str(&format!(", p50 {p50}, p95 {p95}"));
        }
        text
    }
}

/// Returns the median and the 95th percentile.
fn percentiles(latencies: impl Iterator<Item = Duration>) -> (Option<Duration>, Option<Duration>) {
    let mut latencies: Vec<_> = latencies.collect();
    latencies.sort_unstable();
    let last = latencies.len().saturating_sub(1);
    let at = |part: usize| latencies.get((last * part).div_ceil(100)).copied();
    (at(50), at(95))
}

/// The calls of one tool.
#[derive(Debug, Default)]
struct ToolSummary {
    calls: usize,
    live: usize,
    failed: usize,
    latencies: Vec<Duration>,
}

/// Draws one row per tool, the tools with the most calls first.
pub(super) fn draw(frame: &mut Frame<'_>, area: Rect, calls: &[&Call]) {
    let mut tools: BTreeMap<String, ToolSummary> = BTreeMap::new();
    for call in calls {
        let summary = tools.entry(tool(call)).or_default();
        summary.calls += 1;
        summary.live += usize::from(call.state().is_live());
        summary.failed += usize::from(call.state().is_failed());
        summary.latencies.extend(call.latency());
    }
    let mut tools: Vec<_> = tools.into_iter().collect();
    tools.sort_by_key(|(_, summary)| std::cmp::Reverse(summary.calls));
    let rows = tools.into_iter().take(usize::from(area.height)).map(|(name, summary)| {
        let (p50, p95) = percentiles(summary.latencies.into_iter());
        let time = |time: Option<Duration>| time.map_or_else(|| "–".to_owned(), render::duration);
        let failed = if summary.failed > 0 { Color::Red.into() } else { Style::new() };
        Row::new([
            Cell::from(name),
            Cell::from(summary.calls.to_string()),
            Cell::from(summary.live.to_string()),
            Cell::from(Span::styled(summary.failed.to_string(), failed)),
            Cell::from(time(p50)),
            Cell::from(time(p95)),
        ])
    });
    let widths = [
        Constraint::Fill(1),
        Constraint::Length(8),
        Constraint::Length(6),
        Constraint::Length(7),
        Constraint::Length(10),
        Constraint::Length(10),
    ];
    let headings = Row::new(["TOOL", "CALLS", "LIVE", "FAILED", "P50", "P95"]);
    let headings = headings.style(Style::new().add_modifier(Modifier::BOLD));
    frame.render_widget(Table::new(rows, widths).header(headings), area);
}

#[cfg(test)]
mod tests {
    use rockbot_monitor::{Calls, Status};

    use super::*;
    use crate::watch::fixture::{reply, request};

    #[test]
    fn rates_cover_the_last_ten_seconds() {
        let mut calls = Calls::default();
        for (number, at) in [(1_u64, 0_u64), (2, 15_000), (3, 16_000), (4, 17_000)] {
            let id = format!("call-{number}");
            calls.record(request(&id), Duration::from_millis(at));
            let replied = Duration::from_millis(at + 100 * number);
            calls.record(reply(&id, Status::Ok), replied);
        }
        let rows: Vec<_> = calls.newest_first().collect();
        let rates = Rates::of_calls(&rows, Duration::from_secs(20));
        assert_eq!(rates.describe(), "0.3/s, p50 300.0 ms, p95 400.0 ms");
        assert_eq!(Rates::of_calls(&[], Duration::ZERO).describe(), "0.0/s");
    }
}
