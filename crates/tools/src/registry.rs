//! Registry of the tools in one process.

use std::{
    collections::BTreeMap,
    fmt,
    sync::{Arc, OnceLock},
};

use parking_lot::{RwLock, RwLockReadGuard, RwLockWriteGuard};

use rockbot_contracts::{ToolRegistration, ToolSource};
use tokio::sync::watch;

use crate::{
    fingerprint::registration_fingerprint,
    names::{MAX_NAME_BYTES, sanitize},
    schema::{ArgumentSchema, SchemaError},
    tool::Tool,
};

/// Maximum size of a tool's description and schema together, in bytes.
pub const MAX_DEFINITION_BYTES: usize = 64 * 1024;

/// Error of a registration.
#[derive(Debug, thiserror::Error)]
pub enum RegisterError {
    /// Another tool has the same name.
    #[error("tool {name} of {new} is already registered by {existing}; rename one of them")]
    Duplicate {
        /// Name of both tools.
        name: String,
        /// Source of the registered tool.
        existing: ToolSource,
        /// Source of the rejected tool.
        new: ToolSource,
    },
    /// No model provider accepts the name.
    #[error("invalid tool name {name:?}: use 1 to {MAX_NAME_BYTES} letters, digits, `_` or `-`")]
    InvalidName {
        /// Name, truncated.
        name: String,
    },
    /// Arguments cannot be validated against the parameters.
    #[error("invalid parameters of tool {name}: {source}")]
    InvalidSchema {
        /// Name of the tool.
        name: String,
        /// Cause.
        source: SchemaError,
    },
    /// The definition exceeds [`MAX_DEFINITION_BYTES`].
    #[error("definition of tool {name} too large: {bytes} bytes; at most {MAX_DEFINITION_BYTES}")]
    TooLarge {
        /// Name of the tool.
        name: String,
        /// Size of its description and schema.
        bytes: usize,
    },
}

/// A tool with its compiled schema.
pub struct RegisteredTool {
    tool: Arc<dyn Tool>,
    schema: Arc<ArgumentSchema>,
    fingerprint: OnceLock<String>,
}

impl RegisteredTool {
    fn new(tool: Arc<dyn Tool>) -> Result<Self, RegisterError> {
        let registration = tool.registration();
        let name = &registration.name;
        if *name != sanitize(name, MAX_NAME_BYTES) {
            let name = name.chars().take(MAX_NAME_BYTES + 1).collect();
            return Err(RegisterError::InvalidName { name });
        }
        let parameters = &registration.parameters;
        let bytes = parameters.to_string().len() + registration.model_description().len();
        if bytes > MAX_DEFINITION_BYTES {
            return Err(RegisterError::TooLarge { name: name.clone(), bytes });
        }
        let schema = ArgumentSchema::compile(parameters)
            .map_err(|source| RegisterError::InvalidSchema { name: name.clone(), source })?;
        Ok(Self { tool, schema: Arc::new(schema), fingerprint: OnceLock::new() })
    }

    /// Returns the tool.
    #[must_use]
    pub fn tool(&self) -> &Arc<dyn Tool> {
        &self.tool
    }

    /// Returns the definition.
    #[must_use]
    pub fn registration(&self) -> &ToolRegistration {
        self.tool.registration()
    }

    /// Returns a digest of the definition: name, description, schema, hints and source.
    #[must_use]
    pub fn fingerprint(&self) -> &str {
        self.fingerprint.get_or_init(|| registration_fingerprint(self.registration()))
    }

    /// Returns the compiled schema.
    #[must_use]
    pub fn schema(&self) -> &Arc<ArgumentSchema> {
        &self.schema
    }
}

impl fmt::Debug for RegisteredTool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("RegisteredTool").field(&self.registration().name).finish()
    }
}

/// The tools that a process can call, by name. Cheap to share. Lists are sorted by name.
#[derive(Debug)]
pub struct ToolRegistry {
    tools: RwLock<Tools>,
    changes: watch::Sender<u64>,
    base: Option<Arc<ToolRegistry>>,
}

#[derive(Debug, Default)]
struct Tools {
    by_name: BTreeMap<String, Arc<RegisteredTool>>,
    aliases: BTreeMap<String, String>,
}

impl Default for ToolRegistry {
    fn default() -> Self {
        Self { tools: RwLock::default(), changes: watch::Sender::new(0), base: None }
    }
}

impl ToolRegistry {
    /// Creates an empty registry.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Creates an empty registry on top of `base`, whose tools are found and listed as well. A tool of
    /// `base` takes precedence over one of the same name here. Subscribers are notified only of changes
    /// made here.
    #[must_use]
    pub fn with_base(base: Arc<Self>) -> Self {
        Self { base: Some(base), ..Self::default() }
    }

    /// Adds a tool and notifies subscribers.
    ///
    /// # Errors
    /// See [`RegisterError`]. The registry is then unchanged.
    pub fn register(&self, tool: Arc<dyn Tool>) -> Result<(), RegisterError> {
        let registered = Arc::new(RegisteredTool::new(tool)?);
        let registration = registered.registration();
        let mut tools = self.write();
        if let Some(existing) = tools.by_name.get(&registration.name) {
            return Err(RegisterError::Duplicate {
                name: registration.name.clone(),
                existing: existing.registration().source.clone(),
                new: registration.source.clone(),
            });
        }
        tools.by_name.insert(registration.name.clone(), registered);
        drop(tools);
        self.notify();
        Ok(())
    }

    /// Adds a tool in place of one with the same name, if there is one, and notifies subscribers. A running
    /// call of the replaced tool finishes.
    ///
    /// # Errors
    /// See [`RegisterError`], without `Duplicate`. The registry is then unchanged.
    pub fn replace(&self, tool: Arc<dyn Tool>) -> Result<(), RegisterError> {
        let registered = Arc::new(RegisteredTool::new(tool)?);
        let name = registered.registration().name.clone();
        self.write().by_name.insert(name, registered);
        self.notify();
        Ok(())
    }

    /// Removes a tool and notifies subscribers. Returns `false` if the tool was not registered.
    pub fn unregister(&self, name: &str) -> bool {
        let removed = self.write().by_name.remove(name).is_some();
        if removed {
            self.notify();
        }
        removed
    }

    /// Adds another name for a tool.
    pub fn alias(&self, alias: impl Into<String>, name: impl Into<String>) {
        self.write().aliases.insert(alias.into(), name.into());
    }

    /// Finds a tool by the name that a model used: the exact name, then the sanitized name, then an
    /// alias. An alias therefore never shadows a tool, in either registry.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<Arc<RegisteredTool>> {
        if let Some(exact) = self.find(name) {
            return Some(exact);
        }
        self.find(&sanitize(name, MAX_NAME_BYTES)).or_else(|| self.find_alias(name))
    }

    fn find(&self, name: &str) -> Option<Arc<RegisteredTool>> {
        let base = self.base.as_ref().and_then(|base| base.find(name));
        base.or_else(|| self.read().by_name.get(name).cloned())
    }

    /// Finds the tool of an alias. An alias of the base may be for a tool that is only registered here.
    fn find_alias(&self, alias: &str) -> Option<Arc<RegisteredTool>> {
        self.find(&self.alias_target(alias)?)
    }

    fn alias_target(&self, alias: &str) -> Option<String> {
        let base = self.base.as_ref().and_then(|base| base.alias_target(alias));
        base.or_else(|| self.read().aliases.get(alias).cloned())
    }

    /// Returns all tools, sorted by name.
    #[must_use]
    pub fn all(&self) -> Vec<Arc<RegisteredTool>> {
        let mut tools = self.read().by_name.clone();
        if let Some(base) = &self.base {
            let base = base.all().into_iter();
            tools.extend(base.map(|tool| (tool.registration().name.clone(), tool)));
        }
        tools.into_values().collect()
    }

    /// Returns all definitions, sorted by name.
    #[must_use]
    pub fn list(&self) -> Vec<ToolRegistration> {
        self.all().iter().map(|tool| tool.registration().clone()).collect()
    }

    /// Returns a receiver that is notified of every change.
    #[must_use]
    pub fn subscribe(&self) -> watch::Receiver<u64> {
        self.changes.subscribe()
    }

    fn notify(&self) {
        self.changes.send_modify(|version| *version += 1);
    }

    fn read(&self) -> RwLockReadGuard<'_, Tools> {
        self.tools.read()
    }

    fn write(&self) -> RwLockWriteGuard<'_, Tools> {
        self.tools.write()
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::testing::{Echo, registration};

    fn echo(name: &str) -> Arc<dyn Tool> {
        Arc::new(Echo(registration(name)))
    }

    #[test]
    fn duplicate_error_names_both_sources() {
        let registry = ToolRegistry::new();
        registry.register(echo("read")).unwrap();
        let mut other = registration("read");
        other.source = ToolSource::Mcp("files".to_owned());
        let error = registry.register(Arc::new(Echo(other))).unwrap_err().to_string();
        assert!(error.contains("mcp:files") && error.contains("internal"), "{error}");
    }

    #[test]
    fn names_resolve_exact_then_sanitized_then_alias() {
        let registry = ToolRegistry::new();
        registry.register(echo("read_file")).unwrap();
        registry.alias("cat", "read_file");
        for name in ["read_file", "read.file", "cat"] {
            assert_eq!(registry.get(name).unwrap().registration().name, "read_file");
        }
        assert!(registry.get("write").is_none());
    }

    #[test]
    fn base_tool_takes_precedence() {
        let base = Arc::new(ToolRegistry::new());
        let front = ToolRegistry::with_base(base.clone());
        base.register(echo("read")).unwrap();
        let mut other = registration("read");
        other.description = "another".to_owned();
        front.register(Arc::new(Echo(other))).unwrap();
        front.register(echo("a")).unwrap();
        base.alias("first", "a");
        assert_eq!(front.get("first").unwrap().registration().name, "a");
        assert!(base.get("first").is_none());
        let found = front.get("read").unwrap().registration().description.clone();
        assert_eq!(found, "a tool of a test");
        let all: Vec<_> = front.list().into_iter().map(|tool| tool.description).collect();
        assert_eq!(all, ["a tool of a test"; 2]);
        assert!(base.get("a").is_none());
    }

    #[test]
    fn subscribers_see_changes_and_lists_are_sorted() {
        let registry = ToolRegistry::new();
        let mut changes = registry.subscribe();
        for name in ["b", "c", "a"] {
            registry.register(echo(name)).unwrap();
        }
        assert!(changes.has_changed().unwrap());
        changes.mark_unchanged();
        assert!(registry.unregister("c"));
        assert!(!registry.unregister("c"));
        assert!(changes.has_changed().unwrap());
        let names: Vec<_> = registry.list().into_iter().map(|tool| tool.name).collect();
        assert_eq!(names, ["a", "b"]);
    }

    #[test]
    fn invalid_definitions_are_rejected() {
        let registry = ToolRegistry::new();
        for name in ["", "a b", &"x".repeat(129)] {
            let error = registry.register(echo(name)).unwrap_err();
            assert!(matches!(error, RegisterError::InvalidName { .. }), "{error}");
        }
        for schema in [json!(true), json!({"type": "string"}), json!({"properties": 7})] {
            let mut tool = registration("tool");
            tool.parameters = schema;
            let error = registry.register(Arc::new(Echo(tool))).unwrap_err();
            assert!(matches!(error, RegisterError::InvalidSchema { .. }), "{error}");
        }
        let mut tool = registration("tool");
        tool.parameters = json!({"type": "object", "$ref": "file:///etc/passwd"});
        assert!(registry.register(Arc::new(Echo(tool))).is_err(), "no schema reads a file");
    }
}
