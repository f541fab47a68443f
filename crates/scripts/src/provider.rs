//! The provider of `execute_python_script`.

use std::sync::Arc;

use rockbot_tools::{Guide, Tool, ToolProvider, ToolSource};

use crate::{
    runner::ScriptRunner,
    tool::{ExecutePythonScript, GUIDE},
};

/// Provides `execute_python_script` on a runner.
pub struct ScriptsProvider(Arc<ExecutePythonScript>);

impl ScriptsProvider {
    /// Creates the tool; see [`ExecutePythonScript::new`].
    #[must_use]
    pub fn new(runner: Arc<dyn ScriptRunner>, isolated: bool) -> Self {
        Self(Arc::new(ExecutePythonScript::new(runner, isolated)))
    }
}

impl ToolProvider for ScriptsProvider {
    fn source(&self) -> ToolSource {
        ToolSource::Script
    }

    fn list(&self) -> Vec<Arc<dyn Tool>> {
        vec![self.0.clone()]
    }

    fn guides(&self) -> Vec<Guide> {
        vec![GUIDE]
    }
}
