//! Durations in configuration: `250ms`, `5s`, `10m`, `2h`, `1d`, `1w`, and `off`.
//!
//! A field of type [`Period`] accepts `off`. A field of type [`Duration`] that names [`duration`] in
//! `deserialize_with` rejects it. Neither accepts a number without a unit.

use std::{fmt, str::FromStr, time::Duration};

use serde::{Deserialize, Deserializer, de};

/// A duration, or `off`.
///
/// Written as `off`, or as a whole number with one of the units ms, s, m, h, d, w.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Period(Option<Duration>);

/// Error of parsing a [`Period`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("expected {}", Forms::Period)]
pub struct InvalidPeriod;

/// Maximum: 3650 days. A longer period is a mistake.
const MAX: Duration = Duration::from_secs(3650 * 24 * 3600);
/// Units and their lengths in milliseconds, the longest first.
const UNITS: [(&str, u64); 6] = [
    ("w", 7 * 24 * 3600 * 1000),
    ("d", 24 * 3600 * 1000),
    ("h", 3600 * 1000),
    ("m", 60 * 1000),
    ("s", 1000),
    ("ms", 1),
];

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

/// Formats the period as in configuration, in the largest unit that divides it.
impl fmt::Display for Period {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Some(length) = self.0 else { return f.write_str("off") };
        let millis = length.as_millis();
        let divides =
            |(_, unit): &&(&str, u64)| millis != 0 && millis.is_multiple_of((*unit).into());
        let (unit, length) = UNITS.iter().find(divides).unwrap_or(&("s", 1000));
        write!(f, "{}{unit}", millis / u128::from(*length))
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
        let unit = UNITS.iter().find(|(name, _)| *name == unit);
        let (_, millis) = unit.ok_or(InvalidPeriod)?;
        let number: u64 = number.parse().map_err(|_| InvalidPeriod)?;
        Self::try_from_millis(number.checked_mul(*millis).ok_or(InvalidPeriod)?)
    }
}

/// The forms that a key accepts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Forms {
    Duration,
    Period,
    PeriodOrMillis,
}

impl fmt::Display for Forms {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let others = match self {
            Self::Duration => "",
            Self::Period => "\"off\" or ",
            Self::PeriodOrMillis => "\"off\", a number of milliseconds or ",
        };
        write!(
            f,
            "{others}a duration with a unit (ms, s, m, h, d, w), such as \"30s\", up to 3650d"
        )
    }
}

impl<'de> Deserialize<'de> for Period {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(PeriodVisitor(Forms::Period))
    }
}

/// Deserializes a required duration, for `#[serde(deserialize_with = "…")]`.
///
/// # Errors
/// The value is `off`, has no unit, or is over the maximum.
pub fn duration<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Duration, D::Error> {
    Required::deserialize(deserializer).map(|Required(length)| length)
}

/// Deserializes a duration that may be absent; use it together with `default`.
///
/// # Errors
/// See [`duration`].
pub fn optional_duration<'de, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<Option<Duration>, D::Error> {
    let length = Option::<Required>::deserialize(deserializer)?;
    Ok(length.map(|Required(length)| length))
}

/// Deserializes a period that may be a number of milliseconds, as other MCP clients write it into
/// `mcp.json`; use it together with `default`.
///
/// # Errors
/// The value is not of these forms, or is over the maximum.
pub fn optional_period_or_millis<'de, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<Option<Period>, D::Error> {
    let period = Option::<PeriodOrMillis>::deserialize(deserializer)?;
    Ok(period.map(|PeriodOrMillis(period)| period))
}

struct Required(Duration);

impl<'de> Deserialize<'de> for Required {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let period = deserializer.deserialize_any(PeriodVisitor(Forms::Duration))?;
        // The visitor accepts no "off".
        Ok(Self(period.0.unwrap_or_default()))
    }
}

struct PeriodOrMillis(Period);

impl<'de> Deserialize<'de> for PeriodOrMillis {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(PeriodVisitor(Forms::PeriodOrMillis)).map(Self)
    }
}

struct PeriodVisitor(Forms);

impl de::Visitor<'_> for PeriodVisitor {
    type Value = Period;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)
    }

    fn visit_str<E: de::Error>(self, text: &str) -> Result<Period, E> {
        match text.parse() {
            Ok(Period::OFF) if self.0 == Forms::Duration => {}
            Ok(period) => return Ok(period),
            Err(InvalidPeriod) => {}
        }
        Err(E::invalid_value(de::Unexpected::Str(text), &self))
    }

    fn visit_u64<E: de::Error>(self, millis: u64) -> Result<Period, E> {
        let number = de::Unexpected::Unsigned(millis);
        if self.0 != Forms::PeriodOrMillis {
            return Err(E::invalid_type(number, &self));
        }
        Period::try_from_millis(millis).map_err(|_| E::invalid_value(number, &self))
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

    #[derive(Debug, Deserialize)]
    struct Section {
        #[serde(deserialize_with = "duration")]
        drain: Duration,
        #[serde(default, deserialize_with = "optional_duration")]
        keep: Option<Duration>,
        #[serde(default, deserialize_with = "optional_period_or_millis")]
        cache: Option<Period>,
    }

    fn section(value: serde_json::Value) -> Result<Section, String> {
        serde_json::from_value(value).map_err(|error| error.to_string())
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
        for off in [json!("off"), json!("0s")] {
            assert_eq!(read(off), Some(None));
        }
    }

    #[test]
    fn invalid_periods_are_rejected() {
        let bad = ["", "5", "s", "5 s", "5S", "-5s", "1.5h", "on", "522w", "99999999999999999999s"];
        for text in bad {
            assert_eq!(read(json!(text)), None, "{text}");
        }
        for value in [json!(0), json!(5), json!(-1), json!(u64::MAX), json!(true), json!(1.5)] {
            assert_eq!(read(value), None);
        }
    }

    #[test]
    fn period_is_displayed_in_largest_whole_unit() {
        for text in ["off", "250ms", "1500ms", "25s", "90s", "1m", "24m", "1h", "1d", "1w", "3650d"]
        {
            assert_eq!(
                text.parse::<Period>().map(|period| period.to_string()),
                Ok(text.to_owned())
            );
        }
        assert_eq!(Period::from(Duration::ZERO).to_string(), "0s");
        assert_eq!(Period::from(Duration::from_secs(3600)).to_string(), "1h");
    }

    #[test]
    fn required_duration_rejects_off_and_numbers() {
        let valid = section(json!({"drain": "25s"})).unwrap();
        assert_eq!((valid.drain, valid.keep), (Duration::from_secs(25), None));
        let valid = section(json!({"drain": "0s", "keep": "1d"})).unwrap();
        assert_eq!(valid.keep, Some(Duration::from_secs(86_400)));
        for value in [json!("off"), json!(25), json!("25"), json!(true)] {
            for invalid in [json!({"drain": value}), json!({"drain": "1s", "keep": value})] {
                let error = section(invalid.clone()).unwrap_err();
                assert!(error.contains("such as \"30s\""), "{invalid}: {error}");
                assert!(!error.contains("\"off\" or"), "{invalid}: {error}");
            }
        }
    }

    #[test]
    fn number_is_milliseconds_only_where_allowed() {
        let cache = |value| section(json!({"drain": "1s", "cache": value})).map(|one| one.cache);
        assert_eq!(cache(json!(300_000)), Ok(Some(Duration::from_secs(300).into())));
        assert_eq!(cache(json!("5m")), Ok(Some(Duration::from_secs(300).into())));
        assert_eq!(cache(json!("off")), Ok(Some(Period::OFF)));
        for invalid in [json!(-1), json!(u64::MAX), json!("5"), json!(true)] {
            assert!(cache(invalid.clone()).is_err(), "{invalid}");
        }
    }
}
