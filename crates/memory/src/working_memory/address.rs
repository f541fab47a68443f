//! Whose working memory it is, and where a key leads in it.

use rockbot_contracts::{AgentName, SessionId};
use rockbot_tools::context::ToolContext;

use super::error::WorkingMemoryError;

/// The longest key, in bytes.
const MAX_KEY_BYTES: usize = 200;

/// The first segment of keys that belong to one conversation.
const SESSION: &str = "session";

/// Whose working memory it is: that of an agent, in one of its conversations.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MemoryOwner {
    /// The agent.
    pub agent: AgentName,
    /// The conversation.
    pub session: SessionId,
}

impl MemoryOwner {
    /// The agent and the conversation that a call belongs to.
    #[must_use]
    pub fn of(context: &ToolContext) -> Self {
        Self { agent: context.agent.clone(), session: context.session_id.clone() }
    }

    /// What keys without a slash stand below: `session/{sessionId}`.
    #[must_use]
    pub fn namespace(&self) -> String {
        format!("{SESSION}/{}", self.session)
    }

    /// Where a key leads.
    pub(super) fn address(&self, key: &str) -> Result<Address, WorkingMemoryError> {
        let invalid = |reason: &str| WorkingMemoryError::Key { reason: reason.to_owned() };
        if key.len() > MAX_KEY_BYTES {
            return Err(invalid(&format!("it has {} bytes, at most {MAX_KEY_BYTES}", key.len())));
        }
        if key.chars().any(char::is_control) {
            return Err(invalid("it must be one line of text"));
        }
        let (space, rest) = match key.contains('/') {
            false => (Space::Session, key),
            true => self.within(key)?,
        };
        let segments: Vec<_> = rest.split('/').map(str::to_owned).collect();
        if segments.iter().any(|segment| segment.trim().is_empty()) {
            return Err(invalid("a part of it between slashes is empty"));
        }
        Ok(Address { space, segments })
    }

    /// Where the keys below a namespace are: a key without its last segments.
    pub(super) fn below(&self, namespace: &str) -> Result<Address, WorkingMemoryError> {
        let namespace = namespace.trim_end_matches('/');
        if namespace == SESSION || namespace == self.namespace() {
            return Ok(Address { space: Space::Session, segments: Vec::new() });
        }
        // A namespace is always absolute.
        let mut address = self.address(&format!("{namespace}/x"))?;
        address.segments.pop();
        Ok(address)
    }

    /// The key in full.
    pub(super) fn key(&self, space: Space, segments: &[String]) -> String {
        let rest = segments.join("/");
        match space {
            Space::Session => format!("{}/{rest}", self.namespace()),
            Space::Shared => rest,
        }
    }

    fn within<'a>(&self, key: &'a str) -> Result<(Space, &'a str), WorkingMemoryError> {
        let Some(of_a_session) = key.strip_prefix(SESSION).and_then(|key| key.strip_prefix('/'))
        else {
            return Ok((Space::Shared, key));
        };
        let own = of_a_session.strip_prefix(self.session.as_str());
        match own.and_then(|key| key.strip_prefix('/')) {
            Some(rest) => Ok((Space::Session, rest)),
            None => Err(WorkingMemoryError::Foreign),
        }
    }
}

/// Which part of an agent's working memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Space {
    /// That of one conversation.
    Session,
    /// That of all conversations of the agent.
    Shared,
}

impl Space {
    pub(super) const ALL: [Self; 2] = [Self::Session, Self::Shared];
}

/// Where something is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Address {
    pub(super) space: Space,
    pub(super) segments: Vec<String>,
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
        let found = owner(session).address(key).ok();
        let found = found.map(|address| (address.space, address.segments));
        let expected = expected.map(|(space, segments)| {
            (space, segments.iter().map(|one| (*one).to_owned()).collect())
        });
        assert_eq!(found, expected, "{key}");
    }

    #[test]
    fn a_key_without_a_slash_is_the_conversations_and_with_one_absolute() {
        check("s", "notes", Some((Space::Session, &["notes"])));
        check("s", "session/s/notes", Some((Space::Session, &["notes"])));
        check("s", "session/s/web/1", Some((Space::Session, &["web", "1"])));
        check("s", "plans/july", Some((Space::Shared, &["plans", "july"])));
        check("s", "sessions/t/notes", Some((Space::Shared, &["sessions", "t", "notes"])));
    }

    #[test]
    fn another_conversation_cannot_be_named() {
        for key in ["session/t/notes", "session/ss/notes", "session/s", "session/", "session//x"] {
            check("s", key, None);
        }
        check("user/1", "session/user/1/notes", Some((Space::Session, &["notes"])));
        check("user/1", "session/user/notes", None);
        assert!(owner("s").below("session/t").is_err());
        assert!(owner("s").below("session/ss").is_err());
    }

    #[test]
    fn odd_keys_are_refused() {
        for key in ["", " ", "/a", "a/", "a//b", "a\nb", &"x".repeat(201)] {
            check("s", key, None);
        }
        check("s", "..", Some((Space::Session, &[".."])));
    }

    #[test]
    fn a_key_in_full_leads_where_it_came_from() {
        for key in ["notes", "session/s/web/1", "plans/july"] {
            let owner = owner("s");
            let address = owner.address(key).unwrap();
            let full = owner.key(address.space, &address.segments);
            assert_eq!(owner.address(&full).unwrap(), address);
        }
    }
}
