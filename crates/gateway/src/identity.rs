//! Who sends a request, and what they may use.

use std::{collections::BTreeSet, net::IpAddr, sync::Arc};

use rockbot_contracts::AgentName;
use serde::{Deserialize, Serialize};

/// A face of the gateway: one protocol that it speaks with the outside.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum FaceName {
    /// The web console, and the REST API with its event stream.
    Console,
    /// The OpenAI-compatible API.
    Openai,
    /// The MCP server.
    Mcp,
    /// The A2A protocol.
    A2a,
}

impl FaceName {
    /// All faces.
    pub const ALL: [Self; 4] = [Self::Console, Self::Openai, Self::Mcp, Self::A2a];

    /// Returns the name as in configuration.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Console => "console",
            Self::Openai => "openai",
            Self::Mcp => "mcp",
            Self::A2a => "a2a",
        }
    }
}

/// A right of a person or program.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Right {
    /// Watches all calls of the fleet, without their content.
    Watch,
    /// Reads arguments and results of all calls.
    Content,
    /// Talks with agents, and decides on the approvals of own conversations.
    Talk,
    /// Reads, replays and purges dead letters.
    Letters,
    /// Calls tools by hand.
    Call,
}

impl Right {
    /// All rights.
    pub const ALL: [Self; 5] = [Self::Watch, Self::Content, Self::Talk, Self::Letters, Self::Call];

    /// Returns the name as in configuration.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Watch => "watch",
            Self::Content => "content",
            Self::Talk => "talk",
            Self::Letters => "letters",
            Self::Call => "call",
        }
    }
}

/// The means by which an identity was established.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Credential {
    /// The cookie of a login link.
    Session,
    /// A bearer token.
    Token,
    /// The headers of a trusted proxy.
    Proxy,
}

/// Beginning of the subject of a token. No person has such a name.
pub(crate) const TOKEN_PREFIX: &str = "token:";

/// Patterns for names; `*` matches any text.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct NamePatterns(Vec<String>);

impl NamePatterns {
    /// Maximum number of patterns.
    pub const MAX: usize = 256;

    /// Creates patterns.
    #[must_use]
    pub fn new(patterns: Vec<String>) -> Self {
        Self(patterns)
    }

    /// Patterns that match every name.
    #[must_use]
    pub fn all() -> Self {
        Self(vec!["*".to_owned()])
    }

    /// Returns whether one of the patterns matches the name.
    #[must_use]
    pub fn matches(&self, name: &str) -> bool {
        self.0.iter().any(|pattern| matches(pattern, name))
    }

    /// Returns the patterns.
    pub fn iter(&self) -> impl Iterator<Item = &str> {
        self.0.iter().map(String::as_str)
    }
}

/// Returns whether `pattern` matches all of `text`. Each `*` matches the shortest text first, and only the
/// last one is tried again, so that the time grows with the product of both lengths at most.
fn matches(pattern: &str, text: &str) -> bool {
    let (pattern, text) = (pattern.as_bytes(), text.as_bytes());
    let (mut at, mut pattern_at) = (0, 0);
    let mut last_star = None;
    while at < text.len() {
        match pattern.get(pattern_at) {
            Some(b'*') => {
                last_star = Some((pattern_at, at));
                pattern_at += 1;
            }
            Some(byte) if *byte == text[at] => {
                at += 1;
                pattern_at += 1;
            }
            _ => {
                let Some((star, from)) = last_star else { return false };
                last_star = Some((star, from + 1));
                (pattern_at, at) = (star + 1, from + 1);
            }
        }
    }
    pattern[pattern_at..].iter().all(|byte| *byte == b'*')
}

/// The sender of a request, and what it may use. The guard adds it to the extensions of a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Identity {
    /// Name of the person or program, at most 255 bytes. The owner of a conversation is compared by it.
    pub subject: Arc<str>,
    /// The means by which it was established.
    pub credential: Credential,
    /// Its rights.
    pub rights: BTreeSet<Right>,
    /// The faces that it may use.
    pub faces: BTreeSet<FaceName>,
    /// The agents that it may use.
    pub agents: NamePatterns,
    /// The tools that it may call directly, by their names; those of MCP servers as `SERVER__TOOL`.
    pub tools: NamePatterns,
    /// Requests per minute; without a limit of its own when `None`.
    pub requests_per_minute: Option<u32>,
    /// Address that the request came from: that of the proxy, behind one.
    pub address: Option<IpAddr>,
}

impl Identity {
    /// Returns whether it has the right.
    #[must_use]
    pub fn has(&self, right: Right) -> bool {
        self.rights.contains(&right)
    }

    /// Returns whether it may use the agent.
    #[must_use]
    pub fn may_use_agent(&self, agent: &AgentName) -> bool {
        self.agents.matches(agent.as_str())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn star_matches_any_text() {
        for (pattern, name, expected) in [
            ("*", "", true),
            ("*", "assistant", true),
            ("assistant", "assistant", true),
            ("assistant", "assistant2", false),
            ("github__*", "github__search", true),
            ("github__*", "gitlab__search", false),
            ("*_file", "read_file", true),
            ("*a*b", "xaxbxb", true),
            ("*a*b", "xaxbx", false),
            ("", "", true),
            ("", "x", false),
        ] {
            assert_eq!(matches(pattern, name), expected, "{pattern} {name}");
        }
    }

    #[test]
    fn many_stars_match_in_polynomial_time() {
        assert!(!matches(&"*a".repeat(60), &format!("{}b", "a".repeat(255))));
    }

    #[test]
    fn no_pattern_matches_nothing() {
        assert!(!NamePatterns::default().matches("bash"));
    }
}
