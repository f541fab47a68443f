//! The section of the configuration that every process which runs tools has.

use std::collections::BTreeMap;

use rockbot_contracts::identity::Askers;
use serde::Deserialize;

use crate::{
    invoke::{AdmissionLimits, InvokeOptions, QueueLimits},
    layers::stack::DEFAULT_MAX_RESULT_BYTES,
};

/// `[handler]`.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct HandlerSection {
    /// Calls that run at once. Default 64, at least 1.
    pub concurrency: u16,
    /// Calls of one tool that run at once, of tools in no queue. Default three quarters of
    /// `concurrency`, so that one that hangs leaves room for the others.
    pub per_tool: Option<u16>,
    /// Calls that wait here for room, beyond those that run; at most half of them of one tool that is
    /// in no queue. Default sixteen times `concurrency`.
    pub backlog: Option<u16>,
    /// The largest result, in bytes of content. Default 1 MiB.
    pub max_result_bytes: usize,
    /// Whether to refuse a request whose sender is not a user that the broker knows as an agent or
    /// as the command line program. Default false; always true in the production profile.
    pub require_identity: bool,
    /// As whom the broker knows the handler. Taken from the URL of the bus, not from a file.
    #[serde(skip)]
    pub user: Option<String>,
    /// Tools that share bounds of their own, by the name of their queue.
    pub queues: BTreeMap<String, QueueSection>,
}

/// `[handler.queues.<name>]`.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct QueueSection {
    /// The tools in it, by name.
    pub tools: Vec<String>,
    /// Calls of these tools that run at once, at least 1.
    pub concurrency: u16,
    /// Calls of these tools that wait; one more is answered `overloaded`. Default: all that the
    /// handler takes.
    pub waiting: Option<u16>,
}

impl Default for HandlerSection {
    fn default() -> Self {
        Self {
            concurrency: 64,
            per_tool: None,
            backlog: None,
            max_result_bytes: DEFAULT_MAX_RESULT_BYTES,
            require_identity: false,
            user: None,
            queues: BTreeMap::new(),
        }
    }
}

impl HandlerSection {
    /// What is wrong with it, in words for an operator.
    #[must_use]
    pub fn problems(&self) -> Vec<String> {
        let mut problems = Vec::new();
        if self.concurrency == 0 {
            problems.push("handler.concurrency: must be at least 1".to_owned());
        }
        if self.per_tool == Some(0) {
            problems.push("handler.per_tool: must be at least 1".to_owned());
        }
        let most = 3 * 1024 * 1024;
        if !(1024..=most).contains(&self.max_result_bytes) {
            problems.push(format!("handler.max_result_bytes: must be 1024 to {most}"));
        }
        let mut owners = BTreeMap::new();
        for (name, queue) in &self.queues {
            if queue.concurrency == 0 {
                problems.push(format!("handler.queues.{name}.concurrency: must be at least 1"));
            }
            for tool in &queue.tools {
                if let Some(other) = owners.insert(tool, name) {
                    problems.push(format!("handler.queues.{name}: {tool} is in {other} already"));
                }
            }
        }
        problems
    }

    /// Takes over what the bus knows: as whom the broker knows the handler, and whether everybody on
    /// it is known, so that who is not is nobody.
    pub fn identify(&mut self, user: Option<String>, everybody_is_known: bool) {
        self.user = user;
        self.require_identity |= everybody_is_known;
    }

    /// How much the handler takes on.
    #[must_use]
    pub fn options(&self) -> InvokeOptions {
        let mut options = InvokeOptions::running(self.concurrency);
        let AdmissionLimits { each, queues, .. } = &mut options.admission;
        if let Some(per_tool) = self.per_tool {
            each.running = per_tool.into();
        }
        queues.extend(self.queues.values().map(|queue| {
            let waiting = queue.waiting.map_or(usize::MAX, usize::from);
            (queue.tools.clone(), QueueLimits { running: queue.concurrency.into(), waiting })
        }));
        if self.require_identity {
            options.askers = Askers::Known;
        }
        options.user = self.user.as_deref().map(Into::into);
        match self.backlog {
            Some(backlog) => options.with_backlog(backlog),
            None => options,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tool_is_in_one_queue() {
        let queue = |tools: &[&str]| QueueSection {
            tools: tools.iter().map(ToString::to_string).collect(),
            concurrency: 0,
            waiting: None,
        };
        let queues = [("a", queue(&["bash"])), ("b", queue(&["search", "bash"]))];
        let queues = queues.map(|(name, queue)| (name.to_owned(), queue)).into();
        let section = HandlerSection { queues, ..HandlerSection::default() };
        assert_eq!(
            section.problems(),
            [
                "handler.queues.a.concurrency: must be at least 1",
                "handler.queues.b.concurrency: must be at least 1",
                "handler.queues.b: bash is in a already",
            ]
        );
    }
}
