//! Owners and keys of working memory.

use rockbot_contracts::{AgentName, SessionId};
use rockbot_tools::context::ToolContext;

use super::error::WorkingMemoryError;

/// The longest key, in bytes.
const MAX_KEY_BYTES: usize = 200;

/// The first segment of keys that belong to one conversation.
const SESSION: &str = "session";

/// The first segment of keys that a conversation shares with its sub-agents.
pub(super) const WHITEBOARD: &str = "subagent";

/// The owner of entries: an agent in one of its conversations.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MemoryOwner {
    /// The agent.
    pub agent: AgentName,
    /// The conversation.
    pub session: SessionId,
}

impl MemoryOwner {
    /// Returns the agent and conversation of a call.
    #[must_use]
    pub fn from_context(context: &ToolContext) -> Self {
        Self { agent: context.agent.clone(), session: context.session_id.clone() }
    }

    /// Returns the namespace of keys without a slash: `session/{sessionId}`.
    #[must_use]
    pub fn namespace(&self) -> String {
        format!("{SESSION}/{}", self.session)
    }

    /// Resolves a key.
    pub(super) fn resolve(&self, key: &str) -> Result<Address, WorkingMemoryError> {
        let invalid = |reason: &str| WorkingMemoryError::Key { reason: reason.to_owned() };
        if key.len() > MAX_KEY_BYTES {
            return Err(invalid(&format!(
                "it has {} bytes, over the limit of {MAX_KEY_BYTES}",
                key.len()
            )));
        }
        if key.chars().any(char::is_control) {
            return Err(invalid("it contains a control character"));
        }
        let (space, rest) =
            if key.contains('/') { self.resolve_absolute(key)? } else { (Space::Session, key) };
        let segments: Vec<_> = rest.split('/').map(str::to_owned).collect();
        if segments.iter().any(|segment| segment.trim().is_empty()) {
            return Err(invalid("it has an empty segment"));
        }
        if space == Space::Whiteboard && segments.len() < 2 {
            return Err(invalid("below `subagent/` it needs a task id and a name"));
        }
        Ok(Address { space, segments })
    }

    /// Resolves a namespace, which is a key without its last segments.
    pub(super) fn resolve_namespace(&self, namespace: &str) -> Result<Address, WorkingMemoryError> {
        let namespace = namespace.trim_end_matches('/');
        if namespace == SESSION || namespace == self.namespace() {
            return Ok(Address { space: Space::Session, segments: Vec::new() });
        }
        if namespace == WHITEBOARD {
            return Ok(Address { space: Space::Whiteboard, segments: Vec::new() });
        }
        // A namespace is always absolute.
        let mut address = self.resolve(&format!("{namespace}/x"))?;
        address.segments.pop();
        Ok(address)
    }

    /// Returns the absolute key.
    pub(super) fn key(&self, space: Space, segments: &[String]) -> String {
        let rest = segments.join("/");
        match space {
            Space::Session => format!("{}/{rest}", self.namespace()),
            Space::Shared => rest,
            Space::Whiteboard => format!("{WHITEBOARD}/{rest}"),
        }
    }

    /// Splits an absolute key into its space and the rest.
    fn resolve_absolute<'a>(&self, key: &'a str) -> Result<(Space, &'a str), WorkingMemoryError> {
        if let Some(rest) = key.strip_prefix(WHITEBOARD).and_then(|key| key.strip_prefix('/')) {
            return Ok((Space::Whiteboard, rest));
        }
        let Some(session_key) = key.strip_prefix(SESSION).and_then(|key| key.strip_prefix('/'))
        else {
            return Ok((Space::Shared, key));
        };
        let own = session_key.strip_prefix(self.session.as_str());
        match own.and_then(|key| key.strip_prefix('/')) {
            Some(rest) => Ok((Space::Session, rest)),
            None => Err(WorkingMemoryError::Foreign),
        }
    }
}

/// A part of an agent's working memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Space {
    /// The entries of one conversation.
    Session,
    /// The entries shared by all conversations of the agent.
    Shared,
    /// The entries that a conversation shares with its sub-agents.
    Whiteboard,
}

impl Space {
    pub(super) const ALL: [Self; 3] = [Self::Session, Self::Shared, Self::Whiteboard];
}

/// The address of an entry or namespace.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Address {
    pub(super) space: Space,
    pub(super) segments: Vec<String>,
}

/// The purpose of an operation on a whiteboard.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Access {
    /// Permitted to the conversation and all its sub-agents.
    Read,
    /// Permitted to the conversation and the sub-agent of the whiteboard.
    Write,
}

/// The owner of the entries of a space.
#[derive(Debug)]
pub(super) struct Place<'a> {
    pub(super) agent: &'a AgentName,
    pub(super) space: Space,
    /// The conversation; for whiteboards, the one that started the sub-agents.
    pub(super) session: SessionId,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn owner(session: &str) -> MemoryOwner {
        let session = SessionId::new(session).unwrap();
        MemoryOwner { agent: AgentName::new("assistant").unwrap(), session }
    }

    #[track_caller]
    fn check(session: &str, key: &str, expected: Option<(Space, &[&str])>) {
        let found = owner(session).resolve(key).ok();
        let found = found.map(|address| (address.space, address.segments));
        let expected = expected.map(|(space, segments)| {
            (space, segments.iter().map(|segment| (*segment).to_owned()).collect())
        });
        assert_eq!(found, expected, "{key}");
    }

    #[test]
    fn slash_makes_key_absolute() {
        check("s", "notes", Some((Space::Session, &["notes"])));
        check("s", "session/s/notes", Some((Space::Session, &["notes"])));
        check("s", "session/s/web/1", Some((Space::Session, &["web", "1"])));
        check("s", "plans/july", Some((Space::Shared, &["plans", "july"])));
        check("s", "subagent/7/notes/a", Some((Space::Whiteboard, &["7", "notes", "a"])));
        check("s", "subagents/7", Some((Space::Shared, &["subagents", "7"])));
        check("s", "sessions/t/notes", Some((Space::Shared, &["sessions", "t", "notes"])));
    }

    #[test]
    fn key_of_another_conversation_is_rejected() {
        for key in ["session/t/notes", "session/ss/notes", "session/s", "session/", "session//x"] {
            check("s", key, None);
        }
        check("user/1", "session/user/1/notes", Some((Space::Session, &["notes"])));
        check("user/1", "session/user/notes", None);
        assert!(owner("s").resolve_namespace("session/t").is_err());
        assert!(owner("s").resolve_namespace("session/ss").is_err());
    }

    #[test]
    fn invalid_keys_are_rejected() {
        for key in
            ["", " ", "/a", "a/", "a//b", "a\nb", "subagent/7", "subagent/", &"x".repeat(201)]
        {
            check("s", key, None);
        }
        check("s", "..", Some((Space::Session, &[".."])));
    }

    #[test]
    fn absolute_key_resolves_to_same_address() {
        for key in ["notes", "session/s/web/1", "plans/july", "subagent/7/notes"] {
            let owner = owner("s");
            let address = owner.resolve(key).unwrap();
            let full = owner.key(address.space, &address.segments);
            assert_eq!(owner.resolve(&full).unwrap(), address);
        }
    }
}
