//! A provider of tools that never change.

use std::{fmt, sync::Arc};

use rockbot_contracts::ToolSource;

use crate::{guides::Guide, provider::ToolProvider, tool::Tool};

/// A provider of tools that never change.
pub struct FixedTools {
    source: ToolSource,
    tools: Vec<Arc<dyn Tool>>,
    guides: Vec<Guide>,
}

impl FixedTools {
    /// Creates a provider of these tools.
    #[must_use]
    pub fn new(source: ToolSource, tools: Vec<Arc<dyn Tool>>) -> Self {
        Self { source, tools, guides: Vec::new() }
    }

    /// Adds guides.
    #[must_use]
    pub fn with_guides(mut self, guides: impl IntoIterator<Item = Guide>) -> Self {
        self.guides.extend(guides);
        self
    }
}

impl ToolProvider for FixedTools {
    fn source(&self) -> ToolSource {
        self.source.clone()
    }

    fn list(&self) -> Vec<Arc<dyn Tool>> {
        self.tools.clone()
    }

    fn guides(&self) -> Vec<Guide> {
        self.guides.clone()
    }
}

impl fmt::Debug for FixedTools {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FixedTools")
            .field("source", &self.source)
            .field("tools", &self.tools.len())
            .finish()
    }
}
