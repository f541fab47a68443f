//! Senders of dead letters: a replay is trusted to name the caller, so the caller must be known.

use rockbot_contracts::{
    Envelope, HandlerPool, QueueName, RoutingKey,
    identity::{CallerPolicy, UNSIGNED, User, is_agent_user},
    topology::{DELIVERED_TOO_OFTEN, mcp_manage, script_invoke, tool_invoke_mcp},
};

use crate::queues::{has_conversation_requests, inbox_agent};

/// Checks the senders of the dead letters of one queue.
///
/// The user of a handler may publish to the dead letters of any queue, because RabbitMQ requires that right
/// for dead-lettering. Handlers run what the operator resends in the name of the source that it carries.
#[derive(Debug)]
pub struct SenderCheck {
    /// Set when the queue is the inbox of an agent.
    is_inbox: bool,
    /// Set when the queue has requests about conversations.
    has_conversations: bool,
    /// The service that consumes the queue.
    consumer: Option<User>,
    /// Set when the services of the fleet have broker users.
    has_users: bool,
}

impl SenderCheck {
    /// Creates the check of the dead letters of `queue` for the broker user of this process.
    #[must_use]
    pub fn new(queue: &QueueName, namespace: &str, own_user: Option<&str>) -> Self {
        let prefix = format!("{namespace}.");
        let has_users = own_user.is_some_and(|user| user.starts_with(&prefix));
        Self {
            is_inbox: inbox_agent(queue).is_some(),
            has_conversations: has_conversation_requests(queue),
            consumer: consumer(queue),
            has_users,
        }
    }

    /// Returns the reason why a letter may be from another sender than the caller that it names.
    ///
    /// Without broker users no sender is known, and every letter passes.
    #[must_use]
    pub fn refusal(&self, letter: &Envelope) -> Option<String> {
        let user = letter.user_id.as_deref()?;
        let service = User::service_of(user);
        if user == UNSIGNED {
            return Some("it has no user".to_owned());
        }
        if self.has_conversations && self.has_users {
            // A conversation belongs to the user that started it.
            return Some(format!(
                "it was sent by {user}, and its agent refuses it from any other user; purge it"
            ));
        }
        if service.is_some() && service == self.consumer {
            // A handler signs quarantined requests, whose caller it has checked, and those that it refused
            // with a reason, whose sender is then unknown.
            let is_quarantined = letter.dead_letter_reason.as_deref() == Some(DELIVERED_TOO_OFTEN);
            return (!is_quarantined)
                .then(|| format!("{user} refused it, and its sender is unknown"));
        }
        let may_send_messages = self.is_inbox && service == Some(User::Gateway);
        if service.is_some()
            && !matches!(service, Some(User::Cli | User::Operator))
            && !may_send_messages
        {
            return Some(format!("it was sent by {user}, which sends no requests"));
        }
        if self.is_inbox {
            // A message to an agent has no caller; only these users may send it.
            let may_send = service.is_some() || !self.has_users && !is_agent_user(user);
            return (!may_send)
                .then(|| format!("it was sent by {user}, which sends no messages to agents"));
        }
        let policy = if self.has_users { CallerPolicy::Known } else { CallerPolicy::Any };
        policy.admit(letter).err().map(|error| error.to_string())
    }
}

/// Returns the service that consumes a work queue; `None` for the inbox of an agent.
fn consumer(queue: &QueueName) -> Option<User> {
    let key = RoutingKey::new(queue.as_str()).ok()?;
    if let Some(pool) = HandlerPool::from_invoke_key(&key) {
        return Some(pool.user());
    }
    if key == tool_invoke_mcp() || key == mcp_manage() {
        return Some(User::McpBridge);
    }
    (key == script_invoke()).then_some(User::ScriptsManager)
}

#[cfg(test)]
mod tests {
    use super::*;

    const OPERATOR: Option<&str> = Some("rockbot.operator");

    fn letter(user: Option<&str>, source: &str) -> Envelope {
        let mut letter = Envelope::raw("ToolInvokeRequest", Vec::new()).with_source(source);
        letter.user_id = user.map(Into::into);
        letter
    }

    fn passes(queue: &str, own_user: Option<&str>, letter: &Envelope) -> bool {
        let queue = QueueName::new(queue).unwrap();
        SenderCheck::new(&queue, "rockbot", own_user).refusal(letter).is_none()
    }

    #[test]
    fn request_passes_only_from_caller_in_its_source() {
        for (user, source, expected) in [
            ("rockbot.agent.assistant", "assistant", true),
            ("rockbot.agent.mallory", "assistant", false),
            ("rockbot.cli", "cli", true),
            ("rockbot.cli", "assistant", false),
            ("rockbot.operator", "assistant", true),
            ("rockbot.tool-handler.web", "assistant", false),
            ("rockbot.mcp-bridge", "assistant", false),
            ("rockbot.monitor", "assistant", false),
            ("rockbot.gateway", "assistant", false),
            ("guest", "assistant", false),
            (UNSIGNED, "assistant", false),
        ] {
            let letter = letter(Some(user), source);
            for queue in ["tool.invoke", "tool.invoke.pool.jobs", "tool.invoke.mcp.quarantine"] {
                assert_eq!(passes(queue, OPERATOR, &letter), expected, "{queue} {user}");
            }
        }
    }

    #[test]
    fn handler_passes_only_with_quarantined_requests_of_its_queue() {
        for (user, queue) in [
            ("rockbot.tool-handler", "tool.invoke"),
            ("rockbot.tool-handler.web", "tool.invoke.pool.web"),
            ("rockbot.mcp-bridge", "tool.invoke.mcp"),
            ("rockbot.scripts-manager", "script.invoke"),
        ] {
            let mut letter = letter(Some(user), "assistant");
            assert!(!passes(queue, OPERATOR, &letter), "{user}");
            letter.dead_letter_reason = Some("source does not belong to user mallory".into());
            assert!(!passes(queue, OPERATOR, &letter), "{user}");
            letter.dead_letter_reason = Some(DELIVERED_TOO_OFTEN.into());
            assert!(passes(queue, OPERATOR, &letter), "{user}");
            assert!(!passes("tool.invoke.pool.jobs", OPERATOR, &letter), "{user}");
        }
    }

    #[test]
    fn message_to_agent_passes_only_from_its_clients() {
        let queue = "user.message.assistant";
        for (user, expected) in [
            ("rockbot.cli", true),
            ("rockbot.operator", true),
            ("rockbot.gateway", true),
            ("rockbot.agent.mallory", false),
            ("rockbot.agent.assistant", false),
            ("rockbot.tool-handler", false),
            ("guest", false),
            (UNSIGNED, false),
        ] {
            assert_eq!(passes(queue, OPERATOR, &letter(Some(user), "user")), expected, "{user}");
        }
    }

    #[test]
    fn request_about_conversations_does_not_pass() {
        let queue = QueueName::new("user.conversation.assistant").unwrap();
        for user in ["rockbot.gateway", "rockbot.cli", "rockbot.agent.mallory"] {
            let refusal = SenderCheck::new(&queue, "rockbot", OPERATOR);
            let refusal = refusal.refusal(&letter(Some(user), "user")).unwrap();
            assert!(refusal.contains(user) && refusal.contains("purge it"), "{refusal}");
        }
    }

    #[test]
    fn every_sender_passes_without_users() {
        for queue in ["tool.invoke", "user.message.assistant", "user.conversation.writer", "jobs"] {
            assert!(passes(queue, None, &letter(None, "assistant")), "{queue}");
            assert!(passes(queue, Some("guest"), &letter(Some("guest"), "assistant")), "{queue}");
        }
        // A fleet's user is known on any broker.
        let forged = letter(Some("rockbot.tool-handler.web"), "assistant");
        assert!(!passes("tool.invoke", Some("guest"), &forged));
    }
}
