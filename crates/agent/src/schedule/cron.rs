//! Cron expressions: their syntax, and when they come true in a time zone.

use std::fmt;

use croner::{
    Cron,
    parser::{CronParser, Seconds, Year},
};
use jiff::{
    SignedDuration,
    tz::{AmbiguousOffset, TimeZone},
};
use rockbot_contracts::schedule::MAX_CRON_BYTES;
use rockbot_store::Timestamp;

/// Repeated local times that are skipped in a row: more than an hour of them.
const MAX_REPEATED: usize = 4096;
/// Clock changes between two fires that are considered: those of more than 60 years.
const MAX_CHANGES: usize = 256;

/// A cron expression of five fields, or of six with seconds first.
///
/// On a day on which the clock changes:
/// - an expression whose minute and hour are fixed fires once at a local time that occurs twice, at the first
///   of both;
/// - one of whose times the clock skips fires once, at the first moment after the gap;
/// - one with `*` in the minute or the hour follows the real time.
///
/// Where both the day of the month and the day of the week are restricted, it fires on a day that meets
/// either; `+` before the day of the week requires both.
#[derive(Clone)]
pub(crate) struct CronExpression {
    text: String,
    cron: Cron,
    has_seconds: bool,
    has_fixed_time: bool,
    is_either_day: bool,
}

/// Error of parsing a [`CronExpression`].
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum InvalidCron {
    /// It is not a cron expression.
    #[error(
        "{text:?} is not a cron expression: {reason}; use 5 fields (minute, hour, day of month, month, \
         day of week), or 6 with seconds first"
    )]
    Syntax {
        /// The expression, shortened.
        text: String,
        /// The problem.
        reason: String,
    },
    /// It never comes true.
    #[error("the cron expression {text:?} never comes true; check its day and month")]
    Never {
        /// The expression.
        text: String,
    },
}

impl CronExpression {
    /// Parses an expression. White space is normalized.
    pub(crate) fn parse(text: &str) -> Result<Self, InvalidCron> {
        let invalid = |reason: String| {
            let text = text.chars().take(MAX_CRON_BYTES).collect();
            InvalidCron::Syntax { text, reason }
        };
        if text.len() > MAX_CRON_BYTES || !text.is_ascii() {
            return Err(invalid(format!("it must have at most {MAX_CRON_BYTES} ASCII characters")));
        }
        let fields: Vec<_> = text.split_ascii_whitespace().collect();
        let normalized = fields.join(" ");
        let parser = CronParser::builder().seconds(Seconds::Optional).year(Year::Disallowed);
        let cron = parser.build().parse(&normalized);
        let cron = cron.map_err(|error| invalid(error.to_string()))?;
        let has_seconds = fields.len() == 6;
        // A nickname, such as @daily, has one field.
        let (time, days) = match fields.as_slice() {
            [minute, hour, day, _, weekday] => (vec![*minute, *hour], (*day, *weekday)),
            [second, minute, hour, day, _, weekday] => {
                (vec![*second, *minute, *hour], (*day, *weekday))
            }
            _ => (Vec::new(), ("*", "*")),
        };
        let is_fixed = |field: &&str| !field.contains(['*', '?']);
        let is_restricted = |field: &str| !matches!(field, "*" | "?");
        let has_fixed_time = !time.is_empty() && time.iter().all(is_fixed);
        let is_either_day =
            is_restricted(days.0) && is_restricted(days.1) && !days.1.starts_with('+');
        Ok(Self { text: normalized, cron, has_seconds, has_fixed_time, is_either_day })
    }

    /// Returns the first time after `after` at which it fires; `None` if it never does.
    pub(crate) fn next_after(&self, after: Timestamp, zone: &TimeZone) -> Option<Timestamp> {
        let next = self.next_match(after, zone)?;
        if !self.has_fixed_time {
            return Some(next);
        }
        Some(self.first_gap(after, next, zone).unwrap_or(next))
    }

    /// Returns the end of the first gap between two times that skips a time of the expression.
    fn first_gap(&self, after: Timestamp, before: Timestamp, zone: &TimeZone) -> Option<Timestamp> {
        let after = jiff::Timestamp::from_millisecond(after.as_millis()).ok()?;
        for change in zone.following(after).take(MAX_CHANGES) {
            let at = change.timestamp();
            let end = Timestamp::from_millis(at.as_millisecond());
            if end >= before {
                return None;
            }
            let offset_before = zone.to_offset(at.checked_sub(SignedDuration::from_secs(1)).ok()?);
            let (gap_start, gap_end) =
                (offset_before.to_datetime(at), change.offset().to_datetime(at));
            if gap_start < gap_end
                && self.cron.find_next_occurrence(&gap_start, true).is_ok_and(|next| next < gap_end)
            {
                return Some(end);
            }
        }
        None
    }

    /// Returns the first time after `after` whose local time matches.
    fn next_match(&self, after: Timestamp, zone: &TimeZone) -> Option<Timestamp> {
        let mut at = jiff::Timestamp::from_millisecond(after.as_millis()).ok()?;
        for _ in 0..MAX_REPEATED {
            let next = self.cron.find_next_occurrence(&at.to_zoned(zone.clone()), false).ok()?;
            at = next.timestamp();
            let millis = Timestamp::from_millis(at.as_millisecond());
            let is_repeated = self.has_fixed_time && is_second_of_two(at, zone);
            if millis > after && !is_repeated {
                return Some(millis);
            }
        }
        None
    }

    /// Returns `true` if it fires on days that meet either of two conditions.
    pub(crate) fn is_either_day(&self) -> bool {
        self.is_either_day
    }

    /// Returns `true` if it has a field for seconds.
    pub(crate) fn has_seconds(&self) -> bool {
        self.has_seconds
    }

    /// Returns the error for an expression that never comes true.
    pub(crate) fn never(&self) -> InvalidCron {
        InvalidCron::Never { text: self.text.clone() }
    }
}

/// Returns `true` if the local time occurs twice and `at` is the second time.
fn is_second_of_two(at: jiff::Timestamp, zone: &TimeZone) -> bool {
    match zone.to_ambiguous_timestamp(zone.to_datetime(at)).offset() {
        AmbiguousOffset::Fold { after, .. } => zone.to_offset(at) == after,
        _ => false,
    }
}

impl fmt::Display for CronExpression {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl fmt::Debug for CronExpression {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("CronExpression").field(&self.text).finish()
    }
}

#[cfg(test)]
mod tests;

#[cfg(test)]
mod peer_tests;
