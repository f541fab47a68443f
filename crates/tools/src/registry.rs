//! The directory of tools in one process.

use std::{
    collections::BTreeMap,
    fmt,
    sync::{Arc, OnceLock, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard},
};

use jsonschema::Validator;
use rockbot_contracts::{ToolRegistration, ToolSource};
use tokio::sync::watch;

use crate::{
    fingerprint::registration_fingerprint,
    names::{MAX_NAME_BYTES, sanitise},
    tool::Tool,
};

/// The longest description or schema of a tool, in bytes.
pub const MAX_DEFINITION_BYTES: usize = 64 * 1024;

/// Why a tool was not registered.
#[derive(Debug, thiserror::Error)]
pub enum RegisterError {
    /// Another tool has the name.
    #[error("tool {name} of {new} is already registered by {existing}; rename one of them")]
    Duplicate {
        /// The name.
        name: String,
        /// Who has it.
        existing: ToolSource,
        /// Who wants it.
        new: ToolSource,
    },
    /// No model provider would take the name.
    #[error("{name:?} is not a tool name: 1 to {MAX_NAME_BYTES} letters, digits, `_` or `-`")]
    InvalidName {
        /// The name, shortened.
        name: String,
    },
    /// The parameters are not a usable schema.
    #[error("the parameters of tool {name} are not a JSON Schema for an object: {reason}")]
    InvalidSchema {
        /// The tool.
        name: String,
        /// What is wrong.
        reason: String,
    },
    /// The definition is larger than a model should be told.
    #[error("the definition of tool {name} has {bytes} bytes, at most {MAX_DEFINITION_BYTES}")]
    TooLarge {
        /// The tool.
        name: String,
        /// Its size.
        bytes: usize,
    },
}

/// A tool with its compiled schema.
pub struct Registered {
    tool: Arc<dyn Tool>,
    validator: Validator,
    fingerprint: OnceLock<String>,
}

impl Registered {
    fn new(tool: Arc<dyn Tool>) -> Result<Self, RegisterError> {
        let registration = tool.registration();
        let name = &registration.name;
        if *name != sanitise(name, MAX_NAME_BYTES) {
            let name = name.chars().take(MAX_NAME_BYTES + 1).collect();
            return Err(RegisterError::InvalidName { name });
        }
        let schema = &registration.parameters;
        let bytes = schema.to_string().len() + registration.model_description().len();
        if bytes > MAX_DEFINITION_BYTES {
            return Err(RegisterError::TooLarge { name: name.clone(), bytes });
        }
        let invalid = |reason: String| RegisterError::InvalidSchema { name: name.clone(), reason };
        if schema.get("type").is_some_and(|kind| kind != "object") || !schema.is_object() {
            return Err(invalid("its type must be \"object\"".to_owned()));
        }
        let validator =
            jsonschema::validator_for(schema).map_err(|error| invalid(error.to_string()))?;
        Ok(Self { tool, validator, fingerprint: OnceLock::new() })
    }

    /// The tool.
    #[must_use]
    pub fn tool(&self) -> &Arc<dyn Tool> {
        &self.tool
    }

    /// Its definition.
    #[must_use]
    pub fn registration(&self) -> &ToolRegistration {
        self.tool.registration()
    }

    /// Changes when its definition does: name, description, schema or hints.
    #[must_use]
    pub fn fingerprint(&self) -> &str {
        self.fingerprint.get_or_init(|| registration_fingerprint(self.registration()))
    }

    /// Its compiled schema.
    #[must_use]
    pub fn validator(&self) -> &Validator {
        &self.validator
    }
}

impl fmt::Debug for Registered {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Registered").field(&self.registration().name).finish()
    }
}

/// The tools that a process can call, by name. Cheap to share; listing is in name order.
#[derive(Debug)]
pub struct ToolRegistry {
    tools: RwLock<Tools>,
    changes: watch::Sender<u64>,
    below: Option<Arc<ToolRegistry>>,
}

#[derive(Debug, Default)]
struct Tools {
    by_name: BTreeMap<String, Arc<Registered>>,
    aliases: BTreeMap<String, String>,
}

impl Default for ToolRegistry {
    fn default() -> Self {
        Self { tools: RwLock::default(), changes: watch::Sender::new(0), below: None }
    }
}

impl ToolRegistry {
    /// An empty registry.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// An empty registry in front of another, whose tools are found and listed as well. Of two
    /// tools of one name, that of `below` is meant, so that nothing added here takes its place.
    /// Subscribers hear of changes here only.
    #[must_use]
    pub fn over(below: Arc<Self>) -> Self {
        Self { below: Some(below), ..Self::default() }
    }

    /// Adds a tool and tells subscribers.
    ///
    /// # Errors
    /// See [`RegisterError`]; the registry is unchanged then.
    pub fn register(&self, tool: Arc<dyn Tool>) -> Result<(), RegisterError> {
        let registered = Arc::new(Registered::new(tool)?);
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
        self.changed();
        Ok(())
    }

    /// Removes a tool and tells subscribers. False when there was none.
    pub fn unregister(&self, name: &str) -> bool {
        let removed = self.write().by_name.remove(name).is_some();
        if removed {
            self.changed();
        }
        removed
    }

    /// Lets a tool be found by another name as well.
    pub fn alias(&self, alias: impl Into<String>, name: impl Into<String>) {
        self.write().aliases.insert(alias.into(), name.into());
    }

    /// Finds a tool as a model names it: exactly, else as the name would be sanitised, else by
    /// alias. So an alias never takes the place of a tool, whichever registry either is in.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<Arc<Registered>> {
        if let Some(exact) = self.named(name) {
            return Some(exact);
        }
        self.named(&sanitise(name, MAX_NAME_BYTES)).or_else(|| self.aliased(name))
    }

    fn named(&self, name: &str) -> Option<Arc<Registered>> {
        let below = self.below.as_ref().and_then(|below| below.named(name));
        below.or_else(|| self.read().by_name.get(name).cloned())
    }

    fn aliased(&self, alias: &str) -> Option<Arc<Registered>> {
        let below = self.below.as_ref().and_then(|below| below.aliased(alias));
        below.or_else(|| {
            let name = self.read().aliases.get(alias).cloned()?;
            self.named(&name)
        })
    }

    /// Every tool, in name order.
    #[must_use]
    pub fn all(&self) -> Vec<Arc<Registered>> {
        let own = self.read().by_name.clone();
        let Some(below) = &self.below else { return own.into_values().collect() };
        let mut all = own;
        let below = below.all().into_iter();
        all.extend(below.map(|tool| (tool.registration().name.clone(), tool)));
        all.into_values().collect()
    }

    /// Every definition, in name order.
    #[must_use]
    pub fn list(&self) -> Vec<ToolRegistration> {
        self.all().iter().map(|tool| tool.registration().clone()).collect()
    }

    /// Sees a new number after every change.
    #[must_use]
    pub fn subscribe(&self) -> watch::Receiver<u64> {
        self.changes.subscribe()
    }

    fn changed(&self) {
        self.changes.send_modify(|version| *version += 1);
    }

    fn read(&self) -> RwLockReadGuard<'_, Tools> {
        self.tools.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn write(&self) -> RwLockWriteGuard<'_, Tools> {
        self.tools.write().unwrap_or_else(PoisonError::into_inner)
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
    fn a_duplicate_names_both_sources() {
        let registry = ToolRegistry::new();
        registry.register(echo("read")).unwrap();
        let mut other = registration("read");
        other.source = ToolSource::Mcp("files".to_owned());
        let error = registry.register(Arc::new(Echo(other))).unwrap_err().to_string();
        assert!(error.contains("mcp:files") && error.contains("internal"), "{error}");
    }

    #[test]
    fn resolution_goes_exact_then_sanitised_then_alias() {
        let registry = ToolRegistry::new();
        registry.register(echo("read_file")).unwrap();
        registry.alias("cat", "read_file");
        for name in ["read_file", "read.file", "cat"] {
            assert_eq!(registry.get(name).unwrap().registration().name, "read_file");
        }
        assert!(registry.get("write").is_none());
    }

    #[test]
    fn what_is_added_in_front_takes_nobodys_place() {
        let below = Arc::new(ToolRegistry::new());
        let front = ToolRegistry::over(below.clone());
        below.register(echo("read")).unwrap();
        let mut other = registration("read");
        other.description = "another".to_owned();
        front.register(Arc::new(Echo(other))).unwrap();
        front.register(echo("a")).unwrap();
        let found = front.get("read").unwrap().registration().description.clone();
        assert_eq!(found, "a tool of a test");
        let all: Vec<_> = front.list().into_iter().map(|tool| tool.description).collect();
        assert_eq!(all, ["a tool of a test"; 2]);
        assert!(below.get("a").is_none());
    }

    #[test]
    fn changes_are_told_and_lists_are_sorted() {
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
    fn unusable_definitions_are_refused() {
        let registry = ToolRegistry::new();
        for bad in ["", "a b", &"x".repeat(129)] {
            let error = registry.register(echo(bad)).unwrap_err();
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
