//! Time zones of scheduled tasks, and times in them for people and models.

use jiff::tz::TimeZone;
use rockbot_store::Timestamp;

/// A time zone with its name in the IANA database.
#[derive(Debug, Clone)]
pub(crate) struct Zone {
    pub(crate) name: String,
    pub(crate) zone: TimeZone,
}

impl Zone {
    /// Returns the zone with this name; `None` if it is unknown.
    pub(crate) fn get(name: &str) -> Option<Self> {
        // A POSIX rule or a path is no name of the database.
        if name.len() > 64 {
            return None;
        }
        TimeZone::get(name).ok().and_then(Self::from_zone)
    }

    /// Returns a zone of the database; `None` for any other.
    pub(crate) fn from_zone(zone: TimeZone) -> Option<Self> {
        let name = zone.iana_name()?.to_owned();
        Some(Self { name, zone })
    }

    /// Returns the zone of this machine, or UTC if that has no name.
    pub(crate) fn system() -> Self {
        let utc = Self { name: "UTC".to_owned(), zone: TimeZone::UTC };
        Self::from_zone(TimeZone::system()).unwrap_or(utc)
    }

    /// Returns the local time with seconds, without the zone.
    pub(crate) fn local(&self, at: Timestamp) -> String {
        self.format(at, "%Y-%m-%d %H:%M:%S")
    }

    /// Returns the local time with seconds, the zone and its offset.
    pub(crate) fn local_with_zone(&self, at: Timestamp) -> String {
        format!("{} ({}, UTC{})", self.local(at), self.name, self.format(at, "%:z"))
    }

    fn format(&self, at: Timestamp, format: &str) -> String {
        match jiff::Timestamp::from_millisecond(at.as_millis()) {
            Ok(at) => at.to_zoned(self.zone.clone()).strftime(format).to_string(),
            Err(_) => at.to_string(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_shown_in_their_zone() {
        let berlin = Zone::get("europe/berlin").unwrap();
        let at = Timestamp::from_millis(1_764_057_600_000);
        assert_eq!(berlin.local_with_zone(at), "2025-11-25 09:00:00 (Europe/Berlin, UTC+01:00)");
        assert!(Zone::get("Mars/Olympus").is_none());
        assert!(Zone::get("../../etc/passwd").is_none());
    }
}
