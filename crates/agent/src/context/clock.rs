//! Date and time zone of the user.

use std::{fmt, sync::Arc};

use futures_util::future::BoxFuture;
use jiff::{Timestamp, tz::TimeZone};
use rockbot_contracts::AgentName;

use super::{ContextPart, ContextRequest, ContextSource};

/// A source of the time zone of an agent's users.
pub trait TimeZoneSource: Send + Sync + 'static {
    /// Returns the time zone of an agent, if one is set.
    fn zone<'a>(&'a self, agent: &'a AgentName) -> BoxFuture<'a, Option<TimeZone>>;
}

/// Adds the date, the weekday and the time zone. The time of day would change the start of every request
/// and defeat the prompt cache.
pub struct CurrentDate {
    zones: Option<Arc<dyn TimeZoneSource>>,
    now: fn() -> Timestamp,
}

impl CurrentDate {
    /// Uses the zones of `zones`, or the zone of this machine.
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
            let zone = match &self.zones {
                Some(zones) => zones.zone(request.agent).await,
                None => None,
            };
            Some(describe((self.now)(), zone.unwrap_or_else(TimeZone::system)))
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
    fn date_follows_the_time_zone() {
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
