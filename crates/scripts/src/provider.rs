//! The provider of `execute_python_script`.

use std::sync::Arc;

use rockbot_contracts::ScriptIsolation;
use rockbot_tools::{Guide, Tool, ToolProvider, ToolSource};

use crate::{
    runner::{Isolation, ScriptRunner},
    tool::{ExecutePythonScript, GUIDE},
};

/// Provides `execute_python_script` on a runner.
pub struct ScriptsProvider {
    tool: Arc<ExecutePythonScript>,
    isolation: Option<ScriptIsolation>,
}

impl ScriptsProvider {
    /// Creates the tool; see [`ExecutePythonScript::new`].
    #[must_use]
    pub fn new(runner: Arc<dyn ScriptRunner>, isolated: bool) -> Self {
        Self { tool: Arc::new(ExecutePythonScript::new(runner, isolated)), isolation: None }
    }

    /// Sets the isolation to announce.
    #[must_use]
    pub fn with_isolation(self, isolation: Option<Isolation>) -> Self {
        let announced = |Isolation { mechanism, gaps }| ScriptIsolation { mechanism, gaps };
        Self { isolation: isolation.map(announced), ..self }
    }
}

impl ToolProvider for ScriptsProvider {
    fn source(&self) -> ToolSource {
        ToolSource::Script
    }

    fn list(&self) -> Vec<Arc<dyn Tool>> {
        vec![self.tool.clone()]
    }

    fn guides(&self) -> Vec<Guide> {
        vec![GUIDE]
    }

    fn script_isolation(&self) -> Option<ScriptIsolation> {
        self.isolation.clone()
    }
}
