//! Fields of forms: what they permit, and what users type.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::tool::null_is_default;

/// A field of a form.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct InputField {
    /// Key of the value in the response.
    pub name: String,
    /// Title for people; may be empty.
    #[serde(
        default,
        deserialize_with = "null_is_default",
        skip_serializing_if = "String::is_empty"
    )]
    pub title: String,
    /// Description for people; may be empty.
    #[serde(
        default,
        deserialize_with = "null_is_default",
        skip_serializing_if = "String::is_empty"
    )]
    pub description: String,
    /// Set if the response must have a value.
    #[serde(default, deserialize_with = "null_is_default")]
    pub required: bool,
    /// Value that is proposed, of the kind of the field.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub default: Option<Value>,
    /// Permitted values.
    #[serde(flatten)]
    pub kind: InputKind,
}

/// The values that a field permits.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case", rename_all_fields = "camelCase")]
pub enum InputKind {
    /// Text.
    Text {
        /// Minimum length in characters.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        min_length: Option<u32>,
        /// Maximum length in characters.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        max_length: Option<u32>,
        /// `email`, `uri`, `date` or `date-time`; other formats are not checked.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        format: Option<String>,
    },
    /// A number.
    Number {
        /// Set if it must be an integer.
        #[serde(default, deserialize_with = "null_is_default")]
        integer: bool,
        /// Smallest value.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        minimum: Option<f64>,
        /// Largest value.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        maximum: Option<f64>,
    },
    /// `true` or `false`.
    Boolean,
    /// One of the options.
    Choice {
        /// The options, at most [`InputRequest::MAX_OPTIONS`](super::InputRequest::MAX_OPTIONS).
        options: Vec<InputOption>,
    },
    /// Several of the options.
    Choices {
        /// The options, at most [`InputRequest::MAX_OPTIONS`](super::InputRequest::MAX_OPTIONS).
        options: Vec<InputOption>,
        /// Minimum number of chosen options.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        min_items: Option<u32>,
        /// Maximum number of chosen options.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        max_items: Option<u32>,
    },
    /// A kind that this build does not know. It permits no value.
    #[serde(other)]
    Other,
}

/// An option of a choice.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct InputOption {
    /// The value in the response.
    pub value: String,
    /// Title for people; the value when empty.
    #[serde(
        default,
        deserialize_with = "null_is_default",
        skip_serializing_if = "String::is_empty"
    )]
    pub title: String,
}

/// Words for secrets in the names of fields. Forms must not ask for them: their values pass through agents
/// and brokers.
const SECRET_WORDS: [&str; 14] = [
    "password",
    "passwd",
    "pwd",
    "onetimecode",
    "passphrase",
    "secret",
    "token",
    "apikey",
    "accesskey",
    "privatekey",
    "credential",
    "cardnumber",
    "creditcard",
    "pincode",
];

/// Secrets as whole names: longer names contain them by chance.
const SECRET_NAMES: [&str; 6] = ["cvc", "cvv", "otp", "pin", "ssn", "totp"];

impl InputField {
    /// Maximum size of a text value in bytes.
    pub const MAX_VALUE_BYTES: usize = 4096;

    /// Returns whether its name, title or format marks the value as a secret: a password, a key, a token, the
    /// number of a card. Names and titles are recognized in English.
    #[must_use]
    pub fn is_secret(&self) -> bool {
        let is_secret = |text: &str| {
            let letters = text.chars().filter(|c| c.is_alphanumeric());
            let text: String = letters.flat_map(char::to_lowercase).collect();
            SECRET_NAMES.contains(&text.as_str())
                || SECRET_WORDS.iter().any(|word| text.contains(word))
        };
        let has_secret_format = match &self.kind {
            InputKind::Text { format: Some(format), .. } => format.eq_ignore_ascii_case("password"),
            _ => false,
        };
        has_secret_format || is_secret(&self.name) || is_secret(&self.title)
    }

    /// Returns the size of its texts in bytes.
    pub(super) fn size(&self) -> usize {
        let kind = match &self.kind {
            InputKind::Choice { options } | InputKind::Choices { options, .. } => {
                options.iter().map(|option| option.value.len() + option.title.len()).sum()
            }
            InputKind::Text { format, .. } => format.as_ref().map_or(0, String::len),
            InputKind::Number { .. } | InputKind::Boolean | InputKind::Other => 0,
        };
        let default = self.default.as_ref().map_or(0, |value| value.to_string().len());
        self.name.len() + self.title.len() + self.description.len() + default + kind
    }

    /// Parses a value that a user typed. Options are chosen by value, title or number from 1; several of
    /// them are separated by commas.
    ///
    /// # Errors
    /// The mistake, for the user.
    pub fn parse(&self, typed: &str) -> Result<Value, String> {
        let trimmed = typed.trim();
        let value = match &self.kind {
            InputKind::Text { .. } => Value::from(typed),
            InputKind::Number { integer: true, .. } => {
                let number: i64 = trimmed.parse().map_err(|_| "a whole number is needed")?;
                Value::from(number)
            }
            InputKind::Number { .. } => {
                let number: f64 = trimmed.parse().map_err(|_| "a number is needed")?;
                Value::from(number)
            }
            InputKind::Boolean => match trimmed.to_lowercase().as_str() {
                "y" | "yes" | "true" => Value::Bool(true),
                "n" | "no" | "false" => Value::Bool(false),
                _ => return Err("yes or no is needed".to_owned()),
            },
            InputKind::Choice { options } => Value::from(find_option(options, trimmed)?),
            InputKind::Choices { options, .. } => {
                let chosen = trimmed.split(',').map(str::trim).filter(|part| !part.is_empty());
                let chosen: Result<Vec<_>, _> =
                    chosen.map(|part| find_option(options, part)).collect();
                Value::from(chosen?)
            }
            InputKind::Other => return Err("this field cannot be filled in".to_owned()),
        };
        self.check(&value).map(|()| value)
    }

    /// Checks a value.
    ///
    /// # Errors
    /// The mistake, for the user.
    pub fn check(&self, value: &Value) -> Result<(), String> {
        let checked = match (&self.kind, value) {
            (InputKind::Text { min_length, max_length, format }, Value::String(text)) => {
                check_text(text, *min_length, *max_length, format.as_deref())
            }
            (InputKind::Number { integer, minimum, maximum }, Value::Number(number)) => {
                let value = number.as_f64().unwrap_or(f64::NAN);
                check_number(value, *integer, *minimum, *maximum)
            }
            (InputKind::Boolean, Value::Bool(_)) => Ok(()),
            (InputKind::Choice { options }, Value::String(value)) => has_option(options, value),
            (InputKind::Choices { options, min_items, max_items }, Value::Array(values)) => {
                check_choices(options, values, *min_items, *max_items)
            }
            _ => Err("the value is of another kind".to_owned()),
        };
        checked.map_err(|reason| format!("{}: {reason}", self.name))
    }
}

fn check_number(
    value: f64,
    integer: bool,
    minimum: Option<f64>,
    maximum: Option<f64>,
) -> Result<(), String> {
    if !value.is_finite() {
        return Err("it is not a number".to_owned());
    }
    if integer && value.fract() != 0.0 {
        return Err("a whole number is needed".to_owned());
    }
    if let Some(minimum) = minimum.filter(|minimum| value < *minimum) {
        return Err(format!("at least {minimum} is needed"));
    }
    match maximum.filter(|maximum| value > *maximum) {
        Some(maximum) => Err(format!("at most {maximum} is permitted")),
        None => Ok(()),
    }
}

fn check_text(
    text: &str,
    min_length: Option<u32>,
    max_length: Option<u32>,
    format: Option<&str>,
) -> Result<(), String> {
    let length = text.chars().count();
    if text.len() > InputField::MAX_VALUE_BYTES {
        return Err(format!("at most {} bytes are permitted", InputField::MAX_VALUE_BYTES));
    }
    if let Some(min) = min_length.filter(|min| length < *min as usize) {
        return Err(format!("at least {min} characters are needed"));
    }
    if let Some(max) = max_length.filter(|max| length > *max as usize) {
        return Err(format!("at most {max} characters are permitted"));
    }
    match format {
        Some(format) if !has_format(text, format) => {
            Err(format!("it is not of the format {format}"))
        }
        _ => Ok(()),
    }
}

/// Returns whether a text has the shape of a format. The server checks the rest.
fn has_format(text: &str, format: &str) -> bool {
    let has_space = text.contains(char::is_whitespace);
    let is_date = |text: &[u8]| {
        text.len() == 10
            && text.iter().enumerate().all(|(at, byte)| match at {
                4 | 7 => *byte == b'-',
                _ => byte.is_ascii_digit(),
            })
    };
    match format {
        "email" => {
            let parts = text.rsplit_once('@');
            !has_space && parts.is_some_and(|(user, host)| !user.is_empty() && !host.is_empty())
        }
        "uri" => {
            let parts = text.split_once(':');
            !has_space && parts.is_some_and(|(scheme, rest)| !scheme.is_empty() && !rest.is_empty())
        }
        "date" => is_date(text.as_bytes()),
        "date-time" => {
            let bytes = text.as_bytes();
            bytes.len() >= 20 && is_date(&bytes[..10]) && matches!(bytes[10], b'T' | b't' | b' ')
        }
        _ => true,
    }
}

fn check_choices(
    options: &[InputOption],
    values: &[Value],
    min_items: Option<u32>,
    max_items: Option<u32>,
) -> Result<(), String> {
    for (at, value) in values.iter().enumerate() {
        let Value::String(value) = value else {
            return Err("the value is of another kind".to_owned());
        };
        has_option(options, value)?;
        if values[..at].iter().any(|other| other == value.as_str()) {
            return Err("an option is chosen twice".to_owned());
        }
    }
    if let Some(min) = min_items.filter(|min| values.len() < *min as usize) {
        return Err(format!("at least {min} options are needed"));
    }
    match max_items.filter(|max| values.len() > *max as usize) {
        Some(max) => Err(format!("at most {max} options are permitted")),
        None => Ok(()),
    }
}

fn has_option(options: &[InputOption], value: &str) -> Result<(), String> {
    let is_known = options.iter().any(|option| option.value == value);
    if is_known { Ok(()) } else { Err("one of the options is needed".to_owned()) }
}

/// Returns the value of the option that a user means.
fn find_option<'a>(options: &'a [InputOption], typed: &str) -> Result<&'a str, String> {
    let by_value = options.iter().find(|option| option.value == typed);
    let by_title = || {
        let typed = typed.to_lowercase();
        options.iter().find(|option| {
            option.title.to_lowercase() == typed || option.value.to_lowercase() == typed
        })
    };
    let by_number = || options.get(typed.parse::<usize>().ok()?.checked_sub(1)?);
    let found = by_value.or_else(by_title).or_else(by_number);
    found
        .map(|option| option.value.as_str())
        .ok_or_else(|| "one of the options is needed".to_owned())
}
