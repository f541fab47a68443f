//! Durations in configuration: `off`, `250ms`, `5s`, `10m`, `2h`, `1d`, `1w`.

use std::{fmt, str::FromStr, time::Duration};

use serde::{Deserialize, Deserializer, de};

/// A duration, or `off`.
///
/// Written as `off`, or as a whole number with one of the units ms, s, m, h, d, w. A number without a
/// unit is in milliseconds, because other MCP clients write such numbers into `mcp.json`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Period(Option<Duration>);

/// Error of parsing a [`Period`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("expected \"off\", or a whole number with a unit (ms, s, m, h, d, w) up to 52 weeks")]
pub struct InvalidPeriod;

/// Maximum: 52 weeks. A longer period is a mistake.
const MAX: Duration = Duration::from_secs(52 * 7 * 24 * 3600);

impl Period {
    /// No duration.
    pub const OFF: Self = Self(None);

    /// Returns the duration, or `None` if it is off or zero.
    #[must_use]
    pub fn duration(self) -> Option<Duration> {
        self.0.filter(|length| !length.is_zero())
    }

    fn try_from_millis(millis: u64) -> Result<Self, InvalidPeriod> {
        let length = Duration::from_millis(millis);
        if length > MAX { Err(InvalidPeriod) } else { Ok(Self(Some(length))) }
    }
}

impl From<Duration> for Period {
    fn from(length: Duration) -> Self {
        Self(Some(length))
    }
}

impl FromStr for Period {
    type Err = InvalidPeriod;

    fn from_str(text: &str) -> Result<Self, InvalidPeriod> {
        if text == "off" {
            return Ok(Self::OFF);
        }
        let digits = text.bytes().take_while(u8::is_ascii_digit).count();
        let (number, unit) = text.split_at(digits);
        let millis: u64 = match unit {
            "ms" => 1,
            "s" => 1000,
            "m" => 60 * 1000,
            "h" => 3600 * 1000,
            "d" => 24 * 3600 * 1000,
            "w" => 7 * 24 * 3600 * 1000,
            _ => return Err(InvalidPeriod),
        };
        let number: u64 = number.parse().map_err(|_| InvalidPeriod)?;
        Self::try_from_millis(number.checked_mul(millis).ok_or(InvalidPeriod)?)
    }
}

impl<'de> Deserialize<'de> for Period {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(PeriodVisitor)
    }
}

struct PeriodVisitor;

impl de::Visitor<'_> for PeriodVisitor {
    type Value = Period;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("\"off\", or a whole number with a unit (ms, s, m, h, d, w) up to 52 weeks")
    }

    fn visit_str<E: de::Error>(self, text: &str) -> Result<Period, E> {
        text.parse().map_err(|_| E::invalid_value(de::Unexpected::Str(text), &self))
    }

    fn visit_u64<E: de::Error>(self, millis: u64) -> Result<Period, E> {
        let invalid = |_| E::invalid_value(de::Unexpected::Unsigned(millis), &self);
        Period::try_from_millis(millis).map_err(invalid)
    }

    fn visit_i64<E: de::Error>(self, millis: i64) -> Result<Period, E> {
        let invalid = || E::invalid_value(de::Unexpected::Signed(millis), &self);
        u64::try_from(millis).map_err(|_| invalid()).and_then(|millis| self.visit_u64(millis))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn read(value: serde_json::Value) -> Option<Option<Duration>> {
        serde_json::from_value::<Period>(value).ok().map(Period::duration)
    }

    #[test]
    fn all_units_are_parsed() {
        let units = [
            ("250ms", 250),
            ("5s", 5_000),
            ("10m", 600_000),
            ("2h", 7_200_000),
            ("1d", 86_400_000),
            ("1w", 604_800_000),
        ];
        for (text, millis) in units {
            assert_eq!(read(json!(text)), Some(Some(Duration::from_millis(millis))), "{text}");
        }
        assert_eq!(read(json!(300_000)), Some(Some(Duration::from_secs(300))));
        for off in [json!("off"), json!("0s"), json!(0)] {
            assert_eq!(read(off), Some(None));
        }
    }

    #[test]
    fn invalid_periods_are_rejected() {
        let bad = ["", "5", "s", "5 s", "5S", "-5s", "1.5h", "on", "53w", "99999999999999999999s"];
        for text in bad {
            assert_eq!(read(json!(text)), None, "{text}");
        }
        for value in [json!(-1), json!(u64::MAX), json!(true), json!(1.5)] {
            assert_eq!(read(value), None);
        }
    }
}
