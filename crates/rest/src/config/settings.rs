//! Settings of the calls of a tool.

use std::{ops::RangeInclusive, time::Duration};

use http::{HeaderName, Method};
use rockbot_contracts::Period;
use rockbot_tools::ToolHints;

use crate::{
    stream::StreamConfig,
    template::{TemplateError, header_name},
};

/// Valid timeouts, in milliseconds.
const TIMEOUT_MS: RangeInclusive<u64> = 100..=3_600_000;
/// Default timeout, in milliseconds.
const DEFAULT_TIMEOUT_MS: u64 = 30_000;
/// Valid limits of a response, in bytes.
const RESPONSE_BYTES: RangeInclusive<usize> = 1..=16 * 1024 * 1024;
/// Default limit of a response, in bytes.
const DEFAULT_RESPONSE_BYTES: usize = 1024 * 1024;

/// Settings of sending the calls of a tool and reading their responses.
#[derive(Debug, Clone)]
pub(crate) struct CallSettings {
    /// Time limit of a call with all its retries.
    pub(crate) timeout: Duration,
    /// Maximum number of bytes of a response that are read.
    pub(crate) max_response_bytes: usize,
    /// JSON pointer to the part of the response that is the result.
    pub(crate) select: Option<String>,
    /// The response is a stream of messages.
    pub(crate) stream: Option<StreamConfig>,
    /// Header that carries the id of the call.
    pub(crate) idempotency_key: Option<HeaderName>,
    /// Sending the request twice does no harm.
    pub(crate) is_repeatable: bool,
    /// Queue that calls wait in.
    pub(crate) queue: Option<String>,
    /// Time for which results are cached.
    pub(crate) cache: Option<Period>,
}

impl CallSettings {
    /// Creates settings from what an entry states.
    ///
    /// # Errors
    /// When a limit is outside its range.
    pub(crate) fn new(
        timeout_ms: Option<u64>,
        max_response_bytes: Option<usize>,
    ) -> Result<Self, TemplateError> {
        let timeout_ms = timeout_ms.unwrap_or(DEFAULT_TIMEOUT_MS);
        let max_response_bytes = max_response_bytes.unwrap_or(DEFAULT_RESPONSE_BYTES);
        in_range("timeoutMs", &timeout_ms, &TIMEOUT_MS)?;
        in_range("maxResponseBytes", &max_response_bytes, &RESPONSE_BYTES)?;
        Ok(Self {
            timeout: Duration::from_millis(timeout_ms),
            max_response_bytes,
            select: None,
            stream: None,
            idempotency_key: None,
            is_repeatable: false,
            queue: None,
            cache: None,
        })
    }

    /// Sets the header that carries the id of the call.
    ///
    /// # Errors
    /// When the name is not valid or reserved.
    pub(crate) fn with_idempotency_key(
        mut self,
        name: Option<&str>,
    ) -> Result<Self, TemplateError> {
        self.idempotency_key = name.map(header_name).transpose()?;
        Ok(self)
    }
}

fn in_range<T: PartialOrd + std::fmt::Display>(
    key: &str,
    value: &T,
    range: &RangeInclusive<T>,
) -> Result<(), TemplateError> {
    if range.contains(value) {
        return Ok(());
    }
    let (min, max) = (range.start(), range.end());
    Err(TemplateError(format!("{key} is {value}; it must be {min} to {max}")))
}

/// Returns the hints of a tool. What the entry does not state follows from the method.
///
/// # Errors
/// When the entry says that a call changes nothing and that repeating it does harm.
pub(crate) fn hints(
    method: &Method,
    read_only: Option<bool>,
    idempotent: Option<bool>,
) -> Result<ToolHints, TemplateError> {
    let reads = matches!(method.as_str(), "GET" | "HEAD" | "OPTIONS" | "QUERY");
    let replaces = matches!(method.as_str(), "PUT" | "DELETE");
    // A GET that changes something is not idempotent by its method either.
    let by_method = replaces || reads && read_only != Some(false);
    // Of a method that reads, `idempotent: false` alone says that calls change something.
    let read_only = read_only.unwrap_or(reads && idempotent != Some(false));
    if read_only && idempotent == Some(false) {
        return Err(TemplateError(
            "readOnly is true and idempotent is false; a call that changes nothing can be repeated, so \
             set readOnly to false or remove idempotent"
                .to_owned(),
        ));
    }
    Ok(ToolHints {
        read_only,
        destructive: !read_only,
        idempotent: idempotent.unwrap_or(read_only || by_method),
        open_world: true,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hints_follow_method_unless_stated() {
        let hints = |method: &str, read_only, idempotent| {
            let method = Method::from_bytes(method.as_bytes()).unwrap();
            let hints = hints(&method, read_only, idempotent).unwrap();
            assert!(hints.open_world && hints.destructive != hints.read_only);
            (hints.read_only, hints.idempotent)
        };
        assert_eq!(hints("GET", None, None), (true, true));
        assert_eq!(hints("QUERY", None, None), (true, true));
        assert_eq!(hints("PUT", None, None), (false, true));
        assert_eq!(hints("POST", None, None), (false, false));
        assert_eq!(hints("POST", Some(true), None), (true, true));
        assert_eq!(hints("POST", None, Some(true)), (false, true));
        assert_eq!(hints("GET", Some(false), None), (false, false));
        assert_eq!(hints("DELETE", None, Some(false)), (false, false));
        assert_eq!(hints("GET", None, Some(false)), (false, false));
        assert!(super::hints(&Method::POST, Some(true), Some(false)).is_err());
    }

    #[test]
    fn limits_are_checked() {
        assert_eq!(CallSettings::new(None, None).unwrap().timeout, Duration::from_secs(30));
        assert!(CallSettings::new(Some(99), None).is_err());
        assert!(CallSettings::new(None, Some(0)).is_err());
        let settings = CallSettings::new(None, None).unwrap();
        assert!(settings.with_idempotency_key(Some("Host")).is_err());
    }
}
