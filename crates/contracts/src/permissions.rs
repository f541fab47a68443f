//! Permissions of broker users.
//!
//! RabbitMQ requires *configure* to declare or delete, *write* to publish to an exchange or to bind a
//! queue, *read* to consume or to bind to an exchange. On a topic exchange it also checks the routing
//! keys of publishes and bindings. Everything not listed here is refused.

#[cfg(test)]
pub(crate) use pattern::MAX_BYTES as MAX_PERMISSION_BYTES;
use pattern::any_of;
pub(crate) use pattern::expression;

use crate::{
    identity::{CLI, User},
    ids::AgentName,
    pool::HandlerPool,
    shape::dead_letter_exchange,
    topology::{
        AGENT_RESPONSE, AGENT_TASK, AGENT_TASK_CANCEL, BindingPattern, MCP_MANAGE_AT,
        MCP_MANAGE_RESPONSE, MONITOR, QueueSpec, RoutingKey, SCRIPT_RESULT, TOOL_INVOKE_MCP_AT,
        TOOL_INVOKE_POOL, TOOL_PROGRESS, TOOL_RESULT, USER_APPROVAL, USER_CONVERSATION, USER_INPUT,
        USER_MESSAGE, USER_NOTICE, USER_RESPONSE, agent_response, agent_task, agent_task_cancel,
        discovery_announce, discovery_refresh, doctor_ping, key_segment, mcp_manage,
        monitored_replies, monitored_requests, quarantine_of, script_invoke, tool_cancel,
        tool_catalog_announce, tool_catalog_refresh, tool_invoke, tool_invoke_mcp, tool_meta_mcp,
        tool_meta_mcp_refresh, tool_result_default, user_approval, user_conversation, user_input,
        user_message, user_notice,
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

#[cfg(test)]
impl Permissions {
    /// Returns the length in bytes of the longest expression; see [`MAX_PERMISSION_BYTES`].
    pub(crate) fn longest(&self) -> usize {
        let all = [&self.configure, &self.write, &self.read, &self.topic_write, &self.topic_read];
        all.map(String::len).into_iter().max().unwrap_or_default()
    }
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
                // Replicas of the agent forward messages to the one that runs the conversation.
                let forwarded = each(&format!("{inbox}.at"));
                grants.publishes.push(forwarded.clone());
                grants.binds.push(forwarded.clone());
                grants.queues.push(forwarded);
                let approvals = user_approval(agent);
                // A queue of `approvals` also receives responses to requests for input.
                grants.binds.extend([one(&approvals), one(&user_input(agent))]);
                grants.queues.push(each(approvals.as_str()));
                grants.publishes.push(one(&user_notice(agent)));
                grants
                    .with_other_agents(agent)
                    .with_work_queue(inbox)
                    .with_work_queue(user_conversation(agent))
            }
            User::Cli => {
                let mut grants = Self::caller(CLI);
                let to_agents = [USER_MESSAGE, USER_APPROVAL, USER_INPUT, USER_CONVERSATION];
                grants.publishes.push(one(&script_invoke()));
                grants.publishes.extend(to_agents.map(each));
                grants.binds.push(each_instance(SCRIPT_RESULT, CLI));
                grants.queues.push(each_instance(SCRIPT_RESULT, CLI));
                for own in [USER_RESPONSE, doctor_ping().as_str()] {
                    grants.binds.push(each(own));
                    grants.queues.push(each(own));
                }
                grants.publishes.push(each(doctor_ping().as_str()));
                grants.binds.push(each(USER_NOTICE));
                grants.queues.push(BindingPattern::new(&format!("{USER_NOTICE}.*.*")));
                grants.publishes.extend([each(AGENT_TASK), each(AGENT_TASK_CANCEL)]);
                grants.publishes.push(one(&discovery_refresh()));
                grants.binds.push(one(&discovery_announce()));
                grants.queues.push(each(discovery_announce().as_str()));
                // A process of the command line has no work queue for responses.
                grants.binds.push(each_instance(AGENT_RESPONSE, CLI));
                grants.queues.push(each_instance(AGENT_RESPONSE, CLI));
                let works = [tool_invoke(), tool_invoke_mcp(), mcp_manage(), script_invoke()];
                let families = [each(TOOL_INVOKE_POOL), each(USER_MESSAGE)];
                grants.inspects = works.iter().map(one).chain(families).collect();
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
                for family in
                    [TOOL_INVOKE_POOL, USER_MESSAGE, USER_CONVERSATION, AGENT_TASK, AGENT_RESPONSE]
                {
                    grants.inspects.push(each(family));
                    grants.publishes.push(each(family));
                    grants.queues.push(BindingPattern::new(&format!("{family}.*.dlq")));
                }
                grants
            }
            User::Monitor => Self {
                publishes: Vec::new(),
                binds: {
                    let requests = monitored_requests();
                    let requests = requests.iter().map(one).chain([each(TOOL_INVOKE_POOL)]);
                    requests.chain(monitored_replies()).collect()
                },
                queues: vec![each(MONITOR)],
                work_queues: Vec::new(),
                inspects: Vec::new(),
            },
            User::Gateway => {
                let (announce, mcp) = (tool_catalog_announce(), tool_meta_mcp());
                let mut queues =
                    vec![each(USER_RESPONSE), each(announce.as_str()), each(mcp.as_str())];
                queues.push(BindingPattern::new(&format!("{USER_NOTICE}.*.*")));
                Self {
                    publishes: vec![
                        each(USER_MESSAGE),
                        each(USER_APPROVAL),
                        each(USER_INPUT),
                        each(USER_CONVERSATION),
                        one(&tool_catalog_refresh()),
                        one(&tool_meta_mcp_refresh()),
                    ],
                    binds: vec![each(USER_RESPONSE), one(&announce), one(&mcp), each(USER_NOTICE)],
                    queues,
                    work_queues: Vec::new(),
                    inspects: vec![each(USER_MESSAGE)],
                }
            }
            User::ToolHandler => Self::handler().with_call_queue(tool_invoke()),
            User::PoolHandler(name) => {
                let key = HandlerPool::Named(name.clone()).invoke_key();
                Self::handler().with_call_queue(key)
            }
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
            publishes: publishes
                .chain([each(TOOL_INVOKE_POOL), each(TOOL_INVOKE_MCP_AT), each(MCP_MANAGE_AT)])
                .collect(),
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

    /// Adds the exchange with other agents: tasks and cancels to all of them, and responses to all that asked;
    /// its own tasks, the responses to its own requests, and announcements.
    fn with_other_agents(mut self, agent: &AgentName) -> Self {
        let (announce, refresh) = (discovery_announce(), discovery_refresh());
        self.publishes.extend([
            each(AGENT_TASK),
            each(AGENT_TASK_CANCEL),
            each(AGENT_RESPONSE),
            each_caller_instance(AGENT_RESPONSE),
            one(&announce),
            one(&refresh),
        ]);
        for topic in [&announce, &refresh] {
            self.binds.push(one(topic));
            self.queues.push(each(topic.as_str()));
        }
        self.binds.push(one(&agent_task_cancel(agent)));
        self.with_work_queue(agent_task(agent)).with_work_queue(agent_response(agent))
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
        let named = |bare: &BindingPattern| format!("{namespace}.{}", bare.as_str());
        let queues: Vec<_> = self.queues.iter().map(named).collect();
        let mut write = Vec::new();
        if !self.publishes.is_empty() {
            write.push(namespace.to_owned());
        }
        if !self.work_queues.is_empty() {
            // Required to declare a queue with a dead-letter exchange, and to dead-letter a message.
            write.push(dead_letter_exchange(namespace));
        }
        write.extend(queues.iter().cloned());
        // From 4.2.7 and 4.3.1 on, this is the least right that RabbitMQ requires to inspect a queue. A
        // user that may publish to a queue gains nothing by binding it.
        write.extend(self.inspects.iter().map(named));
        let read = std::iter::once(namespace).chain(queues.iter().map(String::as_str));
        let keys = |keys: &[BindingPattern]| any_of(keys.iter().map(BindingPattern::as_str));
        Permissions {
            configure: any_of(&queues),
            write: any_of(&write),
            read: any_of(read),
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

mod pattern;
#[cfg(test)]
mod tests;
