//! What day it is, where the agent's people are.

use std::{fmt, sync::Arc};

use futures_util::future::BoxFuture;
use jiff::{Timestamp, tz::TimeZone};
use rockbot_contracts::AgentName;

use super::{ContextPart, ContextRequest, ContextSource};

/// Knows which time zone an agent's people live in.
pub trait TimeZoneSource: Send + Sync + 'static {
    /// The zone of an agent; none when nobody said.
    fn zone<'a>(&'a self, agent: &'a AgentName) -> BoxFuture<'a, Option<TimeZone>>;
}

/// Tells the date, the day of the week and the time zone. Not the time of the day, which would
/// make the beginning of every request different.
pub struct CurrentDate {
    zones: Option<Arc<dyn TimeZoneSource>>,
    now: fn() -> Timestamp,
}

impl CurrentDate {
    /// In the zones that `zones` knows, else in this machine's.
    #[must_use]
    pub fn new(zones: Option<Arc<dyn TimeZoneSource>>) -> Self {
        Self { zones, now: Timestamp::now }
    }
}

impl ContextSource for CurrentDate {
    fn part(&self) -> ContextPart {
        ContextPart::Clock
    }

    fn text<'a>(&'a self, request: ContextRequest<'a>) -> BoxFuture<'a, Option<String>> {
        Box::pin(async move {
            let found = match &self.zones {
                Some(zones) => zones.zone(request.agent).await,
                None => None,
            };
            Some(describe((self.now)(), found.unwrap_or_else(TimeZone::system)))
        })
    }
}

fn describe(now: Timestamp, zone: TimeZone) -> String {
    let now = now.to_zoned(zone);
    let name = now.time_zone().iana_name().unwrap_or("local time").to_owned();
    format!("Today is {}, in {name} (UTC{}).", now.strftime("%A, %Y-%m-%d"), now.strftime("%:z"))
}

impl fmt::Debug for CurrentDate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CurrentDate").field("zones", &self.zones.is_some()).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_day_is_that_of_the_zone() {
        let late: Timestamp = "2026-03-01T23:30:00Z".parse().unwrap();
        let berlin = TimeZone::get("Europe/Berlin").unwrap();
        assert_eq!(
            describe(late, berlin),
            "Today is Monday, 2026-03-02, in Europe/Berlin (UTC+01:00)."
        );
        assert_eq!(
            describe(late, TimeZone::UTC),
            "Today is Sunday, 2026-03-01, in UTC (UTC+00:00)."
        );
    }
}
