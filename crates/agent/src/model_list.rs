//! What a model is told of the tools: the one place that makes its list.

use std::{
    collections::{HashMap, HashSet},
    sync::{Mutex, PoisonError},
};

use rockbot_contracts::ToolRegistration;
use rockbot_tools::{names::assign, registry::RegisteredTool, scope::ToolScope};
use tracing::info;

/// A model's list of tools, for one request.
///
/// It holds what the scope permits, at most so many as a provider takes, under names that it takes.
#[derive(Debug)]
pub struct ModelList<'a> {
    scope: &'a ToolScope,
    most: usize,
    tools: Vec<ToolRegistration>,
    names: HashSet<String>,
    denied: usize,
    left_out: usize,
    held_back: usize,
}

/// The names that a model knows tools by, where those are not the tools' own.
///
/// Providers limit the length of a name. Which tool a shortened name stands for is looked up here
/// and never read out of the name.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ModelNames(HashMap<String, String>);

impl ModelNames {
    /// The tool's own name for what a model wrote: another text is returned as it is.
    #[must_use]
    pub fn own<'a>(&'a self, written: &'a str) -> &'a str {
        self.0.get(written).map_or(written, String::as_str)
    }
}

impl<'a> ModelList<'a> {
    /// An empty list of at most `most` tools.
    #[must_use]
    pub fn new(scope: &'a ToolScope, most: usize) -> Self {
        Self {
            scope,
            most,
            tools: Vec::new(),
            names: HashSet::new(),
            denied: 0,
            left_out: 0,
            held_back: 0,
        }
    }

    /// How many more tools fit.
    #[must_use]
    pub fn room(&self) -> usize {
        self.most - self.tools.len()
    }

    /// Adds a tool of a registry. Of two tools of one name, the first is meant.
    pub fn add(&mut self, tool: &RegisteredTool) {
        self.consider(tool.registration(), ToolRegistration::clone);
    }

    /// Counts a tool that is kept out because its definition is not trusted.
    pub fn hold_back(&mut self) {
        self.held_back += 1;
    }

    /// Adds these tools.
    pub fn extend(&mut self, tools: impl IntoIterator<Item = ToolRegistration>) {
        for tool in tools {
            self.consider(tool, |tool| tool);
        }
    }

    fn consider<T: std::borrow::Borrow<ToolRegistration>>(
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
        } else if self.room() == 0 {
            self.left_out += 1;
        } else {
            self.names.insert(registration.name.clone());
            self.tools.push(keep(tool));
        }
    }

    /// The list in the order it was made, under names of at most `name_bytes` bytes (64 by default, 128 at
    /// most), and what tools those names stand for.
    #[must_use]
    pub fn finish(
        self,
        name_bytes: usize,
        log: &ModelListLog,
    ) -> (Vec<ToolRegistration>, ModelNames) {
        log.tell(&self);
        let mut tools = self.tools;
        if tools.iter().all(|tool| tool.name.len() <= name_bytes) {
            return (tools, ModelNames::default());
        }
        let shown = assign(self.names, name_bytes);
        let mut names = HashMap::new();
        for tool in &mut tools {
            if let Some(shown) = shown.get(&tool.name).filter(|shown| **shown != tool.name) {
                names.insert(shown.clone(), std::mem::replace(&mut tool.name, shown.clone()));
            }
        }
        (tools, ModelNames(names))
    }
}

/// Says at info what models are offered, when that changes.
#[derive(Debug, Default)]
pub struct ModelListLog(Mutex<HashMap<String, [usize; 4]>>);

impl ModelListLog {
    fn tell(&self, list: &ModelList<'_>) {
        let profile = list.scope.to_string();
        let counts = [list.tools.len(), list.denied, list.left_out, list.held_back];
        let before =
            self.0.lock().unwrap_or_else(PoisonError::into_inner).insert(profile.clone(), counts);
        if before != Some(counts) {
            let [allowed, denied, left_out, quarantined] = counts;
            info!(%profile, allowed, denied, quarantined, left_out, "the tools that a model is offered");
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
            description: "a tool of a test".to_owned(),
            tool_description: None,
            parameters: json!({"type": "object"}),
            source: ToolSource::Internal,
            hints: ToolHints::default(),
            timeout_ms: None,
        }
    }

    fn finish(list: ModelList<'_>, name_bytes: usize) -> (Vec<String>, ModelNames) {
        let (tools, names) = list.finish(name_bytes, &ModelListLog::default());
        (tools.into_iter().map(|tool| tool.name).collect(), names)
    }

    #[test]
    fn a_list_holds_what_is_permitted_once_and_no_more_than_fits() {
        let filter = ToolFilter { deny: vec!["b".to_owned()], ..ToolFilter::default() };
        let scope = ToolScope::new(ToolProfile::main(), filter);
        let registry = ToolRegistry::new();
        for name in ["c", "b", "a"] {
            registry.register(Arc::new(Idle(registration(name)))).unwrap();
        }
        let mut list = ModelList::new(&scope, 3);
        registry.all().iter().for_each(|tool| list.add(tool));
        assert_eq!(list.room(), 1);
        list.extend(["a", "e", "d"].map(registration));
        assert_eq!((list.denied, list.left_out), (1, 1));
        assert_eq!(finish(list, 64).0, ["a", "c", "e"]);
    }

    #[test]
    fn long_names_are_shortened_for_a_provider_and_lead_back_to_their_tools() {
        let scope = ToolScope::everything();
        let long = ["x".repeat(100) + "1", "x".repeat(100) + "2"];
        let list = || {
            let mut list = ModelList::new(&scope, 10);
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
        assert_eq!(names, ModelNames::default());
    }
}
