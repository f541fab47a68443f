//! Tests of the permissions, name by name.

use regex::Regex;

use super::*;
use crate::{ids::AgentName, pool_name::PoolName};

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
        (Publish, "user.notice.assistant", true),
        (Publish, "user.notice.mallory", false),
        (Bind, "user.notice.assistant", false),
        (Bind, "user.conversation.assistant", true),
        (Bind, "user.conversation.mallory", false),
        (Consume, "rockbot.user.conversation.assistant", true),
        (Consume, "rockbot.user.conversation.mallory", false),
        (Publish, "user.conversation.assistant", false),
        (Publish, "user.conversation.mallory", false),
        (Declare, "rockbot.user.approval.assistant.i", true),
        (Declare, "rockbot.user.approval.assistant.retained", true),
        (Declare, "rockbot.user.approval.mallory.retained", false),
        (Bind, "user.approval.mallory", false),
        (Bind, "user.input.assistant", true),
        (Bind, "user.input.mallory", false),
        (Publish, "user.input.assistant", false),
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
        (Publish, "user.message.assistant.at.agent-0", true),
        (Bind, "user.message.assistant.at.agent-0", true),
        (Declare, "rockbot.user.message.assistant.at.agent-0", true),
        (Consume, "rockbot.user.message.assistant.at.agent-0", true),
        (Publish, "user.message.mallory.at.agent-0", false),
        (Bind, "user.message.mallory.at.agent-0", false),
        (Consume, "rockbot.user.message.mallory.at.agent-0", false),
        (Publish, "user.message.mallory", false),
        (Publish, "tool.invoke.pool.web", true),
        (Bind, "tool.invoke.pool.web", false),
        (Consume, "rockbot.tool.invoke.pool.web", false),
        (Publish, "tool.invoke.pool.web.quarantine", false),
        (Publish, "tool.invoke.other", false),
        (Publish, "tool.invoke.quarantine", false),
        (Publish, "tool.invoke.mcp.quarantine", false),
        (Publish, "agent.task.mallory", true),
        (Publish, "agent.task.cancel.mallory", true),
        (Publish, "agent.response.mallory", true),
        (Publish, "agent.response.cli.i", true),
        (Publish, "discovery.announce", true),
        (Publish, "discovery.refresh", true),
        (Publish, "agent.other.mallory", false),
        (Bind, "agent.task.assistant", true),
        (Bind, "agent.task.cancel.assistant", true),
        (Bind, "agent.response.assistant", true),
        (Bind, "discovery.announce", true),
        (Bind, "discovery.refresh", true),
        (Bind, "agent.task.mallory", false),
        (Bind, "agent.task.cancel.mallory", false),
        (Bind, "agent.task.cancel", false),
        (Bind, "agent.response.mallory", false),
        (Bind, "agent.response.cli.i", false),
        (Consume, "rockbot.agent.task.assistant", true),
        (Consume, "rockbot.agent.response.assistant", true),
        (Declare, "rockbot.discovery.announce.i", true),
        (Consume, "rockbot.agent.task.mallory", false),
        (Consume, "rockbot.agent.response.mallory", false),
        (Consume, "rockbot.agent.task.assistant.dlq", false),
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
fn pool_handler_serves_only_its_own_pool() {
    let user = &User::PoolHandler(PoolName::new("web").unwrap());
    for (operation, name, expected) in [
        (Bind, "tool.invoke.pool.web", true),
        (Declare, "rockbot.tool.invoke.pool.web", true),
        (Consume, "rockbot.tool.invoke.pool.web", true),
        (Publish, "tool.invoke.pool.web.quarantine", true),
        (Bind, "tool.invoke.pool.web.quarantine", true),
        (Consume, "rockbot.tool.invoke.pool.web.quarantine", true),
        (BindQueue, "rockbot.tool.invoke.pool.web.dlq", true),
        (Consume, "rockbot.tool.invoke.pool.web.dlq", false),
        (Publish, "tool.catalog.announce", true),
        (Bind, "tool.catalog.announce", false),
        (Publish, "tool.result.assistant.i", true),
        (Bind, "tool.result.assistant.i", false),
        (Consume, "rockbot.tool.result.assistant.i", false),
        (Publish, "tool.invoke.pool.web", false),
        (Bind, "tool.invoke.pool.files", false),
        (Bind, "tool.invoke.pool.*", false),
        (Declare, "rockbot.tool.invoke.pool.files", false),
        (Consume, "rockbot.tool.invoke.pool.files", false),
        (BindQueue, "rockbot.tool.invoke.pool.files", false),
        (Publish, "tool.invoke.pool.files.quarantine", false),
        (Consume, "rockbot.tool.invoke.pool.webs", false),
        (Consume, "rockbot.tool.invoke", false),
        (Bind, "tool.invoke", false),
        (Consume, "rockbot.tool.invoke.mcp", false),
        (Publish, "tool.meta.mcp", false),
    ] {
        check(user, operation, name, expected);
    }
    for service in User::SERVICES {
        check(&service, Consume, "rockbot.tool.invoke.pool.web", false);
        check(&service, Consume, "rockbot.tool.invoke.pool.web.quarantine", false);
    }
}

#[test]
fn operator_and_command_line_reach_every_pool() {
    let (operator, cli) = (&User::Operator, &User::Cli);
    for user in [operator, cli] {
        check(user, BindQueue, "rockbot.tool.invoke.pool.web", true);
        check(user, Publish, "tool.invoke.pool.web", true);
        check(user, Publish, "tool.invoke.pool.web.quarantine", false);
    }
    check(operator, Consume, "rockbot.tool.invoke.pool.web.dlq", true);
    check(cli, Consume, "rockbot.tool.invoke.pool.web.dlq", false);
    check(&User::Monitor, Bind, "tool.invoke.pool.web", true);
    check(&User::Monitor, Publish, "tool.invoke.pool.web", false);
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
    check(user, BindQueue, "rockbot.user.conversation.assistant", true);
    check(user, Consume, "rockbot.user.conversation.assistant.dlq", true);
    check(user, BindQueue, "rockbot.tool.result.assistant.i", false);
}

#[test]
fn cli_messages_agents_and_calls_tools() {
    let user = &User::Cli;
    for (operation, name, expected) in [
        (Publish, "user.message.assistant", true),
        (Publish, "user.conversation.assistant", true),
        (Bind, "user.conversation.assistant", false),
        (Consume, "rockbot.user.conversation.assistant", false),
        (Bind, "user.notice.assistant", true),
        (Declare, "rockbot.user.notice.assistant.i", true),
        (Consume, "rockbot.user.notice.assistant.i", true),
        (Publish, "user.notice.assistant", false),
        (Publish, "agent.task.assistant", true),
        (Publish, "agent.task.cancel.assistant", true),
        (Publish, "agent.response.assistant", false),
        (Publish, "discovery.refresh", true),
        (Publish, "discovery.announce", false),
        (Bind, "discovery.announce", true),
        (Bind, "agent.response.cli.i", true),
        (Bind, "agent.response.assistant", false),
        (Bind, "agent.task.assistant", false),
        (Consume, "rockbot.agent.response.cli.i", true),
        (Consume, "rockbot.agent.task.assistant", false),
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

#[test]
fn gateway_talks_to_agents_and_calls_no_tools() {
    let user = &User::Gateway;
    for (operation, name, expected) in [
        (Publish, "user.message.assistant", true),
        (Publish, "user.message.assistant.at.agent-0", false),
        (Publish, "user.approval.assistant", true),
        (Publish, "user.input.assistant", true),
        (Publish, "user.conversation.assistant", true),
        (Publish, "tool.catalog.refresh", true),
        (Publish, "tool.meta.mcp.refresh", true),
        (Publish, "tool.catalog.announce", false),
        (Publish, "tool.invoke", false),
        (Publish, "tool.invoke.pool.web", false),
        (Publish, "tool.cancel", false),
        (Publish, "mcp.manage", false),
        (Publish, "script.invoke", false),
        (Publish, "user.response.p", false),
        (Publish, "user.notice.assistant", false),
        (Publish, "agent.task.assistant", false),
        (Publish, "discovery.announce", false),
        (Bind, "user.response.p", true),
        (Bind, "user.notice.assistant", true),
        (Bind, "tool.catalog.announce", true),
        (Bind, "tool.meta.mcp", true),
        (Bind, "tool.result.#", false),
        (Bind, "tool.invoke", false),
        (Bind, "user.message.assistant", false),
        (Declare, "rockbot.user.response.p", true),
        (Consume, "rockbot.user.response.p", true),
        (Declare, "rockbot.user.notice.assistant.i", true),
        (Declare, "rockbot.tool.catalog.announce.i", true),
        (Consume, "rockbot.user.message.assistant", false),
        (Consume, "rockbot.tool.invoke.dlq", false),
        (BindQueue, "rockbot.user.message.assistant", true),
        (BindQueue, "rockbot.tool.invoke", false),
        (PublishTo, "rockbot.dlx", false),
    ] {
        check(user, operation, name, expected);
    }
}
