//! The provider of the family.

use std::sync::Arc;

use rockbot_tools::{Guide, Tool, ToolProvider, ToolSource};

use super::{FilesConfig, FilesError, tools};

/// Guide on the file and shell tools, for models.
pub const GUIDE: Guide = Guide {
    name: "files-and-shell",
    summary: "Reading, searching and changing files, and running commands",
    markdown: include_str!("../../guides/files-and-shell.md"),
};

/// Provides the file tools and, if the configuration allows it, `bash`.
pub struct FilesProvider(Vec<Arc<dyn Tool>>);

impl FilesProvider {
    /// Creates the tools of the family.
    ///
    /// # Errors
    /// As [`tools`].
    pub fn new(config: &FilesConfig) -> Result<Self, FilesError> {
        tools(config).map(Self)
    }
}

impl ToolProvider for FilesProvider {
    fn source(&self) -> ToolSource {
        ToolSource::Files
    }

    fn list(&self) -> Vec<Arc<dyn Tool>> {
        self.0.clone()
    }

    fn guides(&self) -> Vec<Guide> {
        vec![GUIDE]
    }
}
