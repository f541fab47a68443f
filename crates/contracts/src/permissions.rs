//! Permissions of broker users.
//!
//! RabbitMQ requires *configure* to declare or delete, *write* to publish to an exchange or to bind a
//! queue, *read* to consume or to bind to an exchange. On a topic exchange it also checks the routing
//! keys of publishes and bindings. Everything not listed here is refused.

use crate::{
    identity::{CLI, User},
    shape::dead_letter_exchange,
    topology::{
        BindingPattern, MCP_MANAGE_AT, MCP_MANAGE_RESPONSE, MONITOR, QueueSpec, RoutingKey,
        SCRIPT_RESULT, TOOL_INVOKE_MCP_AT, TOOL_PROGRESS, TOOL_RESULT, USER_APPROVAL, USER_MESSAGE,
        USER_RESPONSE, doctor_ping, key_segment, mcp_manage, monitored_replies, monitored_requests,
        quarantine_of, script_invoke, tool_cancel, tool_catalog_announce, tool_catalog_refresh,
        tool_invoke, tool_invoke_mcp, tool_meta_mcp, tool_meta_mcp_refresh, tool_result_default,
        user_approval, user_message,
    },
};

/// Rights of one user on the bus. Patterns are binding patterns: `*` matches one segment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Grants {
    /// Routing keys it publishes with.
    pub publishes: Vec<BindingPattern>,
    /// Routing keys it binds its queues to.
    pub binds: Vec<BindingPattern>,
    /// Bare names of its queues, which it declares, consumes and deletes.
    pub queues: Vec<BindingPattern>,
    /// Work queues among them; it may publish to their dead-letter queues.
    pub work_queues: Vec<RoutingKey>,
    /// Queues of others that it may inspect; it may publish to all of them.
    pub inspects: Vec<BindingPattern>,
}

/// Permissions of a user as regular expressions of RabbitMQ. Each matches a whole name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Permissions {
    /// Queues it may declare and delete.
    pub configure: String,
    /// Exchanges it may publish to, and queues it may bind or inspect.
    pub write: String,
    /// Queues it may consume, and exchanges it may bind to.
    pub read: String,
    /// Routing keys it may publish with on the exchange of the namespace.
    pub topic_write: String,
    /// Routing keys it may bind on it.
    pub topic_read: String,
}

impl Grants {
    /// Returns the rights of `user`. This is the whole policy: the broker's permissions and the table in
    /// the documentation are generated from it.
    #[must_use]
    pub fn for_user(user: &User) -> Self {
        match user {
            User::Agent(agent) => {
                let own = key_segment(agent.as_str());
                let inbox = user_message(agent);
                let mut grants = Self::caller(&own);
                grants.publishes.extend([one(&script_invoke()), each(USER_RESPONSE)]);
                grants.binds.push(each_instance(SCRIPT_RESULT, &own));
                grants.queues.push(each_instance(SCRIPT_RESULT, &own));
                let approvals = user_approval(agent);
                grants.binds.push(one(&approvals));
                grants.queues.push(each(approvals.as_str()));
                grants.with_work_queue(inbox)
            }
            User::Cli => {
                let mut grants = Self::caller(CLI);
                let to_agents = [each(USER_MESSAGE), each(USER_APPROVAL)];
                grants.publishes.push(one(&script_invoke()));
                grants.publishes.extend(to_agents);
                grants.binds.push(each_instance(SCRIPT_RESULT, CLI));
                grants.queues.push(each_instance(SCRIPT_RESULT, CLI));
                for own in [USER_RESPONSE, doctor_ping().as_str()] {
                    grants.binds.push(each(own));
                    grants.queues.push(each(own));
                }
                grants.publishes.push(each(doctor_ping().as_str()));
                let works = [tool_invoke(), tool_invoke_mcp(), mcp_manage(), script_invoke()];
                grants.inspects = works.iter().map(one).chain([each(USER_MESSAGE)]).collect();
                grants
            }
            User::Operator => {
                let works = [tool_invoke(), tool_invoke_mcp(), mcp_manage(), script_invoke()];
                let mut grants = Self {
                    publishes: works.iter().map(one).collect(),
                    binds: Vec::new(),
                    queues: works.iter().map(dead_letters_of).collect(),
                    work_queues: Vec::new(),
                    inspects: works.iter().map(one).collect(),
                };
                grants.inspects.push(each(USER_MESSAGE));
                grants.publishes.push(each(USER_MESSAGE));
                grants.queues.push(BindingPattern::new(&format!("{USER_MESSAGE}.*.dlq")));
                grants
            }
            User::Monitor => Self {
                publishes: Vec::new(),
                binds: monitored_requests().iter().map(one).chain(monitored_replies()).collect(),
                queues: vec![each(MONITOR)],
                work_queues: Vec::new(),
                inspects: Vec::new(),
            },
            User::ToolHandler => Self::handler().with_call_queue(tool_invoke()),
            User::McpBridge => {
                let mut grants = Self::handler();
                grants.publishes.push(one(&tool_meta_mcp()));
                grants.publishes.push(each_caller_instance(MCP_MANAGE_RESPONSE));
                grants.binds.push(one(&tool_meta_mcp_refresh()));
                for own in [TOOL_INVOKE_MCP_AT, MCP_MANAGE_AT] {
                    grants.binds.push(each(own));
                    grants.queues.push(each(own));
                }
                grants.queues.push(each(tool_meta_mcp_refresh().as_str()));
                grants.with_call_queue(tool_invoke_mcp()).with_work_queue(mcp_manage())
            }
            User::ScriptsManager => {
                let grants = Self {
                    publishes: vec![each_caller_instance(SCRIPT_RESULT)],
                    binds: vec![one(&tool_cancel())],
                    queues: vec![each(tool_cancel().as_str())],
                    work_queues: Vec::new(),
                    inspects: Vec::new(),
                };
                grants.with_call_queue(script_invoke())
            }
        }
    }

    /// Rights of a caller of tools, including those of MCP servers: requests out, its own replies in.
    fn caller(own: &str) -> Self {
        let requests = [tool_invoke(), tool_cancel(), tool_catalog_refresh()];
        let of_mcp = [tool_invoke_mcp(), tool_meta_mcp_refresh(), mcp_manage()];
        let publishes = requests.iter().chain(&of_mcp).map(one);
        Self {
            publishes: publishes.chain([each(TOOL_INVOKE_MCP_AT), each(MCP_MANAGE_AT)]).collect(),
            binds: vec![
                each_instance(TOOL_RESULT, own),
                each_instance(TOOL_PROGRESS, own),
                one(&tool_catalog_announce()),
                one(&tool_meta_mcp()),
                each_instance(MCP_MANAGE_RESPONSE, own),
            ],
            queues: vec![
                each_instance(TOOL_RESULT, own),
                each(tool_catalog_announce().as_str()),
                each(tool_meta_mcp().as_str()),
                each_instance(MCP_MANAGE_RESPONSE, own),
            ],
            work_queues: Vec::new(),
            inspects: Vec::new(),
        }
    }

    /// Rights of a tool handler: replies and announcements out.
    fn handler() -> Self {
        Self {
            publishes: vec![
                one(&tool_result_default()),
                each_caller_instance(TOOL_RESULT),
                each_caller_instance(TOOL_PROGRESS),
                one(&tool_catalog_announce()),
            ],
            binds: vec![one(&tool_cancel()), one(&tool_catalog_refresh())],
            queues: vec![each(tool_cancel().as_str()), each(tool_catalog_refresh().as_str())],
            work_queues: Vec::new(),
            inspects: Vec::new(),
        }
    }

    /// Adds a work queue named after its key.
    fn with_work_queue(mut self, key: RoutingKey) -> Self {
        self.binds.push(one(&key));
        self.queues.push(one(&key));
        self.inspects.push(dead_letters_of(&key));
        self.work_queues.push(key);
        self
    }

    /// Adds a work queue of tool calls and its quarantine queue, which only handlers publish to.
    fn with_call_queue(mut self, key: RoutingKey) -> Self {
        let quarantine = quarantine_of(&key);
        self.publishes.push(one(&quarantine));
        self.binds.push(one(&quarantine));
        self.queues.push(one(&quarantine));
        self.with_work_queue(key)
    }

    /// Returns the permissions at RabbitMQ.
    #[must_use]
    pub fn permissions(&self, namespace: &str) -> Permissions {
        let queues: Vec<_> = self
            .queues
            .iter()
            .map(|queue| expression(&format!("{namespace}.{}", queue.as_str())))
            .collect();
        let exchange = expression(namespace);
        let mut write = Vec::new();
        if !self.publishes.is_empty() {
            write.push(exchange.clone());
        }
        if !self.work_queues.is_empty() {
            // Required to declare a queue with a dead-letter exchange, and to dead-letter a message.
            write.push(expression(&dead_letter_exchange(namespace)));
        }
        write.extend(queues.iter().cloned());
        // From 4.2.7 and 4.3.1 on, this is the least right that RabbitMQ requires to inspect a queue. A
        // user that may publish to a queue gains nothing by binding it.
        let inspected = self.inspects.iter().map(BindingPattern::as_str);
        write.extend(inspected.map(|queue| expression(&format!("{namespace}.{queue}"))));
        let read = std::iter::once(exchange).chain(queues.iter().cloned()).collect::<Vec<_>>();
        let keys = |keys: &[BindingPattern]| {
            any_of(&keys.iter().map(|key| expression(key.as_str())).collect::<Vec<_>>())
        };
        Permissions {
            configure: any_of(&queues),
            write: any_of(&write),
            read: any_of(&read),
            topic_write: keys(&self.publishes),
            topic_read: keys(&self.binds),
        }
    }
}

fn one(key: &RoutingKey) -> BindingPattern {
    key.into()
}

fn dead_letters_of(key: &RoutingKey) -> BindingPattern {
    BindingPattern::new(QueueSpec::work(key).name.dead_letters().as_str())
}

/// Returns `family.*`, which matches one segment, such as an instance id.
fn each(family: &str) -> BindingPattern {
    BindingPattern::new(&format!("{family}.*"))
}

/// Returns `family.own.*`, which matches every process of one caller.
fn each_instance(family: &str, own: &str) -> BindingPattern {
    BindingPattern::new(&format!("{family}.{own}.*"))
}

/// Returns `family.*.*`, which matches every process of every caller.
fn each_caller_instance(family: &str) -> BindingPattern {
    BindingPattern::new(&format!("{family}.*.*"))
}

/// A segment as encoded by [`key_segment`]. It excludes wildcards, so that the right to bind one name is
/// not a right to bind all names.
const SEGMENT: &str = "[A-Za-z0-9_%~-]+";

/// Returns a regular expression for the names that match `pattern`.
pub(crate) fn expression(pattern: &str) -> String {
    let segments = pattern.split('.').map(|segment| match segment {
        "*" => SEGMENT.to_owned(),
        literal => literal.chars().map(escaped).collect(),
    });
    segments.collect::<Vec<_>>().join("\\.")
}

fn escaped(character: char) -> String {
    let plain = character.is_alphanumeric() || matches!(character, '_' | '-' | '%' | '~');
    if plain { character.to_string() } else { format!("\\{character}") }
}

fn any_of(expressions: &[String]) -> String {
    // `\z` rather than `$`, which also matches before a line break at the end.
    format!("\\A(?:{})\\z", expressions.join("|"))
}

#[cfg(test)]
mod tests {
    use regex::Regex;

    use super::*;
    use crate::ids::AgentName;

    /// An operation on a queue or exchange, whose name has the namespace, or on a routing key.
    #[derive(Debug, Clone, Copy)]
    enum Operation {
        Declare,
        Consume,
        PublishTo,
        BindQueue,
        Publish,
        Bind,
    }
    use Operation::{Bind, BindQueue, Consume, Declare, Publish, PublishTo};

    fn agent(name: &str) -> User {
        User::Agent(AgentName::new(name).unwrap())
    }

    #[track_caller]
    fn check(user: &User, operation: Operation, name: &str, expected: bool) {
        let permissions = Grants::for_user(user).permissions("rockbot");
        let expression = match operation {
            Declare => &permissions.configure,
            Consume => &permissions.read,
            PublishTo | BindQueue => &permissions.write,
            Publish => &permissions.topic_write,
            Bind => &permissions.topic_read,
        };
        let allowed = Regex::new(expression).unwrap().is_match(name);
        assert_eq!(allowed, expected, "{user}: {operation:?} {name} by {expression}");
    }

    #[test]
    fn agent_sends_requests_and_receives_only_its_replies() {
        let user = &agent("assistant");
        for (operation, name, expected) in [
            (Publish, "tool.invoke", true),
            (Publish, "tool.invoke.mcp", true),
            (Publish, "tool.cancel", true),
            (Publish, "tool.catalog.refresh", true),
            (Publish, "tool.meta.mcp.refresh", true),
            (Publish, "mcp.manage", true),
            (Publish, "mcp.manage.at.bridge-0", true),
            (Publish, "tool.invoke.mcp.at.bridge-0", true),
            (Bind, "tool.invoke.mcp.at.bridge-0", false),
            (Bind, "mcp.manage.at.bridge-0", false),
            (Publish, "script.invoke", true),
            (Publish, "user.response.proxy-1", true),
            (Bind, "user.approval.assistant", true),
            (Declare, "rockbot.user.approval.assistant.i", true),
            (Bind, "user.approval.mallory", false),
            (Declare, "rockbot.user.approval.mallory.i", false),
            (Publish, "user.approval.assistant", false),
            (Publish, "user.approval.mallory", false),
            (Publish, "tool.result.assistant.i", false),
            (Publish, "tool.result.mallory.i", false),
            (Publish, "tool.result", false),
            (Publish, "tool.progress.assistant.i", false),
            (Publish, "tool.catalog.announce", false),
            (Publish, "tool.meta.mcp", false),
            (Publish, "script.result.assistant.i", false),
            (Publish, "user.message.assistant", false),
            (Publish, "user.message.mallory", false),
            (Publish, "tool.invoke.other", false),
            (Publish, "tool.invoke.quarantine", false),
            (Publish, "tool.invoke.mcp.quarantine", false),
            (Publish, "xtool.invoke", false),
            (Publish, "tool.invoke\n", false),
            (Publish, "user.response.a.b", false),
            (Bind, "tool.result.assistant.i", true),
            (Bind, "tool.progress.assistant.i", true),
            (Bind, "tool.catalog.announce", true),
            (Bind, "tool.meta.mcp", true),
            (Bind, "mcp.manage.response.assistant.i", true),
            (Bind, "script.result.assistant.i", true),
            (Bind, "user.message.assistant", true),
            (Bind, "tool.result.mallory.i", false),
            (Bind, "tool.result.assistant.*", false),
            (Bind, "tool.result.*.i", false),
            (Bind, "tool.result.#", false),
            (Bind, "tool.result", false),
            (Bind, "#", false),
            (Bind, "tool.invoke", false),
            (Bind, "tool.cancel", false),
            (Bind, "user.message.mallory", false),
            (Bind, "user.response.p", false),
            (Declare, "rockbot.tool.result.assistant.i", true),
            (Declare, "rockbot.tool.catalog.announce.i", true),
            (Declare, "rockbot.user.message.assistant", true),
            (Declare, "rockbot.user.message.assistant.dlq", false),
            (Declare, "rockbot.tool.result.mallory.i", false),
            (Declare, "rockbot.tool.invoke", false),
            (Declare, "rockbot", false),
            (Declare, "rockbot.dlx", false),
            (Declare, "tool.result.assistant.i", false),
            (Declare, "rockbotxtool.result.assistant.i", false),
            (Declare, "anything", false),
            (Consume, "rockbot.tool.result.assistant.i", true),
            (Consume, "rockbot.user.message.assistant", true),
            (Consume, "rockbot", true),
            (Consume, "rockbot.dlx", false),
            (Consume, "rockbot.tool.result.mallory.i", false),
            (Consume, "rockbot.tool.invoke", false),
            (Consume, "rockbot.tool.invoke.mcp", false),
            (Consume, "rockbot.tool.invoke.dlq", false),
            (Consume, "rockbot.tool.invoke.quarantine", false),
            (Consume, "rockbot.user.message.assistant.dlq", false),
            (PublishTo, "rockbot", true),
            (PublishTo, "rockbot.dlx", true),
            (PublishTo, "amq.default", false),
            (PublishTo, "amq.topic", false),
            (BindQueue, "rockbot.tool.result.assistant.i", true),
            (BindQueue, "rockbot.tool.invoke", false),
            (BindQueue, "rockbot.user.message.assistant.dlq", true),
            (BindQueue, "rockbot.tool.invoke.dlq", false),
            (BindQueue, "rockbot.user.message.mallory.dlq", false),
        ] {
            check(user, operation, name, expected);
        }
    }

    #[test]
    fn agent_name_grants_nothing_on_other_agents() {
        check(&agent("a"), Consume, "rockbot.tool.result.ab.i", false);
        check(&agent(".*"), Consume, "rockbot.tool.result.assistant.i", false);
        check(&agent("a|.*"), Publish, "tool.result.a.i", false);
        check(&agent("a.b"), Consume, "rockbot.tool.result.a.b", false);
        check(&agent("a.b"), Consume, "rockbot.tool.result.a%2Eb.i", true);
    }

    #[test]
    fn handler_replies_and_consumes_its_own_queue() {
        for (user, own, other) in [
            (User::ToolHandler, "tool.invoke", "tool.invoke.mcp"),
            (User::McpBridge, "tool.invoke.mcp", "tool.invoke"),
            (User::McpBridge, "mcp.manage", "tool.invoke"),
            (User::ScriptsManager, "script.invoke", "tool.invoke"),
        ] {
            for (operation, prefix) in [(Declare, "rockbot."), (Consume, "rockbot."), (Bind, "")] {
                check(&user, operation, &format!("{prefix}{own}"), true);
                check(&user, operation, &format!("{prefix}{other}"), false);
            }
            for operation in [Declare, Consume] {
                check(&user, operation, &format!("rockbot.{own}.dlq"), false);
            }
            check(&user, BindQueue, &format!("rockbot.{own}.dlq"), true);
            check(&user, BindQueue, &format!("rockbot.{other}.dlq"), false);
            check(&user, Publish, own, false);
            check(&user, Publish, "tool.cancel", false);
            check(&user, Consume, "rockbot.tool.result.assistant.i", false);
            check(&user, Bind, "tool.result.assistant.i", false);
            check(&user, PublishTo, "rockbot.dlx", true);
            check(&user, Consume, "rockbot.dlx", false);
        }
        for user in [User::ToolHandler, User::McpBridge] {
            for key in ["tool.result", "tool.result.a.i", "tool.progress.a.i"] {
                check(&user, Publish, key, true);
            }
            check(&user, Publish, "tool.catalog.announce", true);
            check(&user, Publish, "user.response.p", false);
            check(&user, Publish, "tool.invoke", false);
            check(&user, Bind, "tool.cancel", true);
        }
        check(&User::ScriptsManager, Publish, "script.result.a.i", true);
        check(&User::ScriptsManager, Publish, "tool.result.a.i", false);
        check(&User::ToolHandler, Publish, "tool.meta.mcp", false);
        check(&User::McpBridge, Publish, "tool.meta.mcp", true);
        check(&User::McpBridge, Publish, "mcp.manage.response.a.i", true);
    }

    #[test]
    fn quarantine_is_limited_to_handlers_of_its_queue() {
        let queues = [("tool.invoke", User::ToolHandler), ("tool.invoke.mcp", User::McpBridge)];
        for (queue, handler) in queues {
            let quarantine = format!("{queue}.quarantine");
            for user in [agent("assistant"), agent("quarantine")].iter().chain(&User::SERVICES) {
                let own = *user == handler;
                check(user, Publish, &quarantine, own);
                check(user, Bind, &quarantine, own);
                for operation in [Declare, Consume, BindQueue] {
                    check(user, operation, &format!("rockbot.{quarantine}"), own);
                    check(user, operation, &format!("rockbot.{quarantine}.dlq"), false);
                }
            }
        }
    }

    #[test]
    fn monitor_receives_every_call_and_publishes_nothing() {
        let user = &User::Monitor;
        for (operation, name, expected) in [
            (Bind, "tool.invoke", true),
            (Bind, "tool.invoke.mcp", true),
            (Bind, "script.invoke", true),
            (Bind, "tool.cancel", true),
            (Bind, "tool.result.#", true),
            (Bind, "tool.progress.#", true),
            (Bind, "script.result.#", true),
            (Bind, "#", false),
            (Bind, "tool.#", false),
            (Bind, "tool.invoke.#", false),
            (Bind, "tool.invoke.quarantine", false),
            (Bind, "tool.invoke.mcp.at.bridge-0", false),
            (Bind, "tool.result.assistant.i", false),
            (Bind, "user.message.assistant", false),
            (Bind, "user.response.p", false),
            (Bind, "user.approval.assistant", false),
            (Bind, "mcp.manage", false),
            (Declare, "rockbot.monitor.i", true),
            (Consume, "rockbot.monitor.i", true),
            (BindQueue, "rockbot.monitor.i", true),
            (Consume, "rockbot", true),
            (Declare, "rockbot", false),
            (Declare, "rockbot.monitor", false),
            (Declare, "rockbot.monitor.a.b", false),
            (Declare, "rockbot.tool.invoke", false),
            (Consume, "rockbot.tool.invoke", false),
            (Consume, "rockbot.tool.invoke.dlq", false),
            (Consume, "rockbot.tool.result.assistant.i", false),
            (Consume, "rockbot.dlx", false),
            (BindQueue, "rockbot.tool.invoke", false),
            (PublishTo, "rockbot", false),
            (PublishTo, "rockbot.dlx", false),
            (PublishTo, "amq.default", false),
            (Publish, "tool.invoke", false),
            (Publish, "tool.cancel", false),
            (Publish, "tool.result.assistant.i", false),
        ] {
            check(user, operation, name, expected);
        }
    }

    #[test]
    fn operator_inspects_every_work_queue_and_binds_none() {
        let user = &User::Operator;
        for queue in ["tool.invoke", "tool.invoke.mcp", "mcp.manage", "script.invoke"] {
            check(user, BindQueue, &format!("rockbot.{queue}"), true);
            check(user, Consume, &format!("rockbot.{queue}"), false);
            check(user, Declare, &format!("rockbot.{queue}"), false);
            check(user, Bind, queue, false);
        }
        check(user, BindQueue, "rockbot.user.message.assistant", true);
        check(user, BindQueue, "rockbot.tool.result.assistant.i", false);
    }

    #[test]
    fn cli_messages_agents_and_calls_tools() {
        let user = &User::Cli;
        for (operation, name, expected) in [
            (Publish, "user.message.assistant", true),
            (Publish, "doctor.ping.i", true),
            (Publish, "tool.invoke", true),
            (Publish, "tool.cancel", true),
            (Publish, "tool.invoke.mcp", true),
            (Publish, "mcp.manage", true),
            (Bind, "mcp.manage.response.cli.i", true),
            (Bind, "mcp.manage.response.assistant.i", false),
            (Publish, "tool.result.cli.i", false),
            (Publish, "user.response.p", false),
            (Bind, "user.response.p", true),
            (Bind, "tool.result.cli.i", true),
            (Bind, "tool.result.assistant.i", false),
            (Bind, "user.message.assistant", false),
            (Consume, "rockbot.user.message.assistant", false),
            (Declare, "rockbot.user.response.p", true),
            (PublishTo, "rockbot.dlx", false),
            (BindQueue, "rockbot.user.message.assistant", true),
            (BindQueue, "rockbot.user.message.assistant.dlq", false),
            (BindQueue, "rockbot.tool.invoke", true),
            (BindQueue, "rockbot.tool.invoke.mcp", true),
            (BindQueue, "rockbot.mcp.manage", true),
            (BindQueue, "rockbot.script.invoke", true),
            (Consume, "rockbot.script.invoke", false),
            (BindQueue, "rockbot.tool.invoke.quarantine", false),
            (BindQueue, "rockbot.tool.result.assistant.i", false),
            (Declare, "rockbot.tool.invoke", false),
            (Consume, "rockbot.tool.invoke", false),
        ] {
            check(user, operation, name, expected);
        }
    }
}
