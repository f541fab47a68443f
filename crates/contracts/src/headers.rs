//! Names of message headers.
//!
//! RockBot's own headers have the prefix `rb-`, added in exactly one function, `prefixed`. Older peers
//! send some of them with the prefix twice, which [`Header::from_wire`] accepts.

use std::{fmt, sync::LazyLock};

/// Wire version that this build writes, and the highest that it reads.
pub const WIRE_VERSION: u32 = 1;

/// A header that RockBot reads and writes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Header {
    /// Agent or service that sent the message.
    Source,
    /// Agent or service that it is addressed to.
    Destination,
    /// Major version of the wire format.
    Wire,
    /// Remaining budget in milliseconds when the message was published.
    TimeoutMs,
    /// Deadline in Unix milliseconds.
    Deadline,
    /// Attempt of the request under its correlation id.
    Attempt,
    /// Trust in the content.
    ContentTrust,
    /// Kind of the tool provider, such as `mcp` or `web`.
    ToolProvider,
    /// Exact name of the MCP server.
    McpServer,
    /// Set on a request whose caller can pass requests for input on to a user.
    AcceptsInput,
    /// Set on a tool request whose id comes from a client's key.
    ClientKey,
    /// Reason of the dead-lettering.
    DeadLetterReason,
    /// W3C trace context.
    TraceParent,
    /// W3C trace state.
    TraceState,
}

/// Adds RockBot's prefix to a header name. No other function does.
fn prefixed(name: &str) -> String {
    format!("{PREFIX}{name}")
}

const PREFIX: &str = "rb-";

static NAMES: LazyLock<[String; Header::ALL.len()]> = LazyLock::new(|| {
    Header::ALL.map(|header| match header.plain() {
        // These two are defined by W3C and have no prefix.
        name @ ("traceparent" | "tracestate") => name.to_owned(),
        name => prefixed(name),
    })
});

impl Header {
    /// Every header.
    pub const ALL: [Self; 14] = [
        Self::Source,
        Self::Destination,
        Self::Wire,
        Self::TimeoutMs,
        Self::Deadline,
        Self::Attempt,
        Self::ContentTrust,
        Self::ToolProvider,
        Self::McpServer,
        Self::AcceptsInput,
        Self::ClientKey,
        Self::DeadLetterReason,
        Self::TraceParent,
        Self::TraceState,
    ];

    const fn plain(self) -> &'static str {
        match self {
            Self::Source => "source",
            Self::Destination => "destination",
            Self::Wire => "wire",
            Self::TimeoutMs => "timeout-ms",
            Self::Deadline => "deadline",
            Self::Attempt => "attempt",
            Self::ContentTrust => "content-trust",
            Self::ToolProvider => "tool-provider",
            Self::McpServer => "mcp-server",
            Self::AcceptsInput => "accepts-input",
            Self::ClientKey => "client-key",
            Self::DeadLetterReason => "dead-letter-reason",
            Self::TraceParent => "traceparent",
            Self::TraceState => "tracestate",
        }
    }

    /// Returns the name on the wire.
    #[must_use]
    pub fn on_wire(self) -> &'static str {
        &NAMES[self as usize]
    }

    /// Parses a header name, with the prefix once, or twice from older peers. `None` for foreign headers.
    #[must_use]
    pub fn from_wire(name: &str) -> Option<Self> {
        let (plain, is_prefixed) = match name.strip_prefix(PREFIX) {
            Some(rest) => (rest.strip_prefix(PREFIX).unwrap_or(rest), true),
            None => (name, false),
        };
        let header = Self::ALL.into_iter().find(|header| header.plain() == plain)?;
        (is_prefixed || matches!(header, Self::TraceParent | Self::TraceState)).then_some(header)
    }
}

impl fmt::Display for Header {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.on_wire())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn header_names_parse_with_prefix_once_and_twice() {
        for header in Header::ALL {
            assert_eq!(Header::from_wire(header.on_wire()), Some(header));
            assert_eq!(Header::from_wire(&format!("rb-{}", header.plain())), Some(header));
            assert_eq!(Header::from_wire(&format!("rb-rb-{}", header.plain())), Some(header));
        }
    }

    #[test]
    fn unprefixed_names_are_foreign() {
        assert_eq!(Header::from_wire("source"), None);
        assert_eq!(Header::from_wire("traceparent"), Some(Header::TraceParent));
        assert_eq!(Header::from_wire("rb-rb-rb-source"), None);
    }
}
