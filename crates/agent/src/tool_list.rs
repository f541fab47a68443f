//! The list of tools in a model request.

use std::collections::{HashMap, HashSet};

use parking_lot::Mutex;

use rockbot_contracts::ToolRegistration;
use rockbot_tools::{names::assign, registry::RegisteredTool, scope::ToolScope};
use tracing::info;

/// The tools of one model request: those that the scope permits, up to the limit of the provider, under
/// names that the provider accepts.
#[derive(Debug)]
pub struct ToolList<'a> {
    scope: &'a ToolScope,
    capacity: usize,
    tools: Vec<ToolRegistration>,
    names: HashSet<String>,
    denied: usize,
    left_out: usize,
    quarantined: usize,
}

/// Names of tools that differ in model requests.
///
/// Providers limit the length of names. The original of a shortened name is looked up, never derived from
/// the text.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ToolNames(HashMap<String, String>);

impl ToolNames {
    /// Returns the original name of a tool. Unknown names are returned unchanged.
    #[must_use]
    pub fn own<'a>(&'a self, written: &'a str) -> &'a str {
        self.0.get(written).map_or(written, String::as_str)
    }
}

impl<'a> ToolList<'a> {
    /// Creates an empty list of at most `capacity` tools.
    #[must_use]
    pub fn new(scope: &'a ToolScope, capacity: usize) -> Self {
        Self {
            scope,
            capacity,
            tools: Vec::new(),
            names: HashSet::new(),
            denied: 0,
            left_out: 0,
            quarantined: 0,
        }
    }

    /// Returns how many more tools fit.
    #[must_use]
    pub fn remaining(&self) -> usize {
        self.capacity - self.tools.len()
    }

    /// Adds a tool of a registry. The first tool of a name wins.
    pub fn add(&mut self, tool: &RegisteredTool) {
        self.try_add(tool.registration(), ToolRegistration::clone);
    }

    /// Counts a tool whose definition is not trusted.
    pub fn count_quarantined(&mut self) {
        self.quarantined += 1;
    }

    /// Adds these tools.
    pub fn extend(&mut self, tools: impl IntoIterator<Item = ToolRegistration>) {
        for tool in tools {
            self.try_add(tool, |tool| tool);
        }
    }

    fn try_add<T: std::borrow::Borrow<ToolRegistration>>(
        &mut self,
        tool: T,
        keep: impl FnOnce(T) -> ToolRegistration,
    ) {
        let registration = tool.borrow();
        if self.names.contains(&registration.name) {
            return;
        }
        if !self.scope.permits(registration) {
            self.denied += 1;
        } else if self.remaining() == 0 {
            self.left_out += 1;
        } else {
            self.names.insert(registration.name.clone());
            self.tools.push(keep(tool));
        }
    }

    /// Returns the tools in the order in which they were added, and the renamed ones. Names have at most
    /// `name_bytes` bytes (64 by default, 128 at most).
    #[must_use]
    pub fn finish(
        self,
        name_bytes: usize,
        log: &ToolListLog,
    ) -> (Vec<ToolRegistration>, ToolNames) {
        log.record(&self);
        let mut tools = self.tools;
        if tools.iter().all(|tool| tool.name.len() <= name_bytes) {
            return (tools, ToolNames::default());
        }
        let shown = assign(self.names, name_bytes);
        let mut names = HashMap::new();
        for tool in &mut tools {
            if let Some(shown) = shown.get(&tool.name).filter(|shown| **shown != tool.name) {
                names.insert(shown.clone(), std::mem::replace(&mut tool.name, shown.clone()));
            }
        }
        (tools, ToolNames(names))
    }
}

/// Logs the size of the list at level info when it changes.
#[derive(Debug, Default)]
pub struct ToolListLog(Mutex<HashMap<String, [usize; 4]>>);

impl ToolListLog {
    fn record(&self, list: &ToolList<'_>) {
        let profile = list.scope.to_string();
        let counts = [list.tools.len(), list.denied, list.left_out, list.quarantined];
        let before = self.0.lock().insert(profile.clone(), counts);
        if before != Some(counts) {
            let [allowed, denied, left_out, quarantined] = counts;
            info!(%profile, allowed, denied, quarantined, left_out, "tool list changed");
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use futures_util::future::BoxFuture;
    use rockbot_tools::{
        Tool, ToolContext, ToolFailure, ToolFilter, ToolHints, ToolProfile, ToolRegistry,
        ToolResult, ToolSource, names::MAX_NAME_BYTES,
    };
    use serde_json::{Value, json};

    use super::*;

    struct Idle(ToolRegistration);

    impl Tool for Idle {
        fn registration(&self) -> &ToolRegistration {
            &self.0
        }

        fn call<'a>(
            &'a self,
            _: Value,
            _: &'a ToolContext,
        ) -> BoxFuture<'a, Result<ToolResult, ToolFailure>> {
            Box::pin(std::future::ready(Ok(ToolResult::text("done"))))
        }
    }

    fn registration(name: &str) -> ToolRegistration {
        ToolRegistration {
            name: name.to_owned(),
            label: None,
            description: "a test tool".to_owned(),
            tool_description: None,
            parameters: json!({"type": "object"}),
            source: ToolSource::Internal,
            hints: ToolHints::default(),
            timeout_ms: None,
        }
    }

    fn finish(list: ToolList<'_>, name_bytes: usize) -> (Vec<String>, ToolNames) {
        let (tools, names) = list.finish(name_bytes, &ToolListLog::default());
        (tools.into_iter().map(|tool| tool.name).collect(), names)
    }

    #[test]
    fn list_holds_permitted_tools_once_up_to_capacity() {
        let filter = ToolFilter { deny: vec!["b".to_owned()], ..ToolFilter::default() };
        let scope = ToolScope::new(ToolProfile::main(), filter);
        let registry = ToolRegistry::new();
        for name in ["c", "b", "a"] {
            registry.register(Arc::new(Idle(registration(name)))).unwrap();
        }
        let mut list = ToolList::new(&scope, 3);
        registry.all().iter().for_each(|tool| list.add(tool));
        assert_eq!(list.remaining(), 1);
        list.extend(["a", "e", "d"].map(registration));
        assert_eq!((list.denied, list.left_out), (1, 1));
        assert_eq!(finish(list, 64).0, ["a", "c", "e"]);
    }

    #[test]
    fn long_names_are_shortened_and_mapped_back() {
        let scope = ToolScope::everything();
        let long = ["x".repeat(100) + "1", "x".repeat(100) + "2"];
        let list = || {
            let mut list = ToolList::new(&scope, 10);
            list.extend([registration("short")]);
            list.extend(long.iter().map(|name| registration(name)));
            list
        };
        let (shown, names) = finish(list(), 64);
        assert!(shown.iter().all(|name| name.len() <= 64));
        let own: Vec<_> = shown.iter().map(|name| names.own(name)).collect();
        assert_eq!(own, ["short", &long[0], &long[1]]);
        let (shown, names) = finish(list(), MAX_NAME_BYTES);
        assert_eq!(shown, ["short", &long[0], &long[1]]);
        assert_eq!(names, ToolNames::default());
    }
}
