//! The families of tools that a handler runs, as providers.
//!
//! This is the one place that assembles the tools of a handler: for the program, and for the handler that
//! the `rockbot` command embeds.

use std::sync::Arc;

use rockbot_scripts::{ScriptRunner, Scripts, ScriptsProvider};
use rockbot_tool_rpc::Family;
use rockbot_toolkit::files::{self, FilesConfig, FilesError, FilesProvider};
use rockbot_tools::{FixedTools, Outputs, Tool as _, ToolOutput, ToolProvider};

/// Error of creating the tools of a family.
#[derive(Debug, thiserror::Error)]
pub enum FamilyError {
    /// The file tools cannot be created.
    #[error("[files]: {0}")]
    Files(#[from] FilesError),
    /// The program was built without the family.
    #[error("{}", not_built(*.0))]
    NotBuilt(Family),
}

/// The runner of scripts of a handler.
pub struct HandlerScripts {
    /// Runs the scripts.
    pub runner: Arc<dyn ScriptRunner>,
    /// Set when scripts can't reach anything outside their sandbox.
    pub is_isolated: bool,
}

impl From<&Scripts> for HandlerScripts {
    fn from(scripts: &Scripts) -> Self {
        Self { runner: scripts.runner(), is_isolated: scripts.isolation().is_complete() }
    }
}

/// Settings and services from which the families are created.
pub struct FamilyParts<'a> {
    /// Section `[files]`, for [`Family::Files`].
    pub files: &'a FilesConfig,
    /// The configured runner, for [`Family::Scripts`]. Without one, the family has no tools.
    pub scripts: Option<HandlerScripts>,
    /// Stored outputs. Every handler with them offers the tool that reads them.
    pub outputs: Option<Arc<Outputs>>,
}

/// Creates the providers of the families, in this order, and the one of stored outputs.
///
/// # Errors
/// See [`FamilyError`].
pub fn providers(
    families: &[Family],
    parts: FamilyParts<'_>,
) -> Result<Vec<Arc<dyn ToolProvider>>, FamilyError> {
    let FamilyParts { files, mut scripts, outputs } = parts;
    let mut providers: Vec<Arc<dyn ToolProvider>> = Vec::new();
    for family in families {
        match family {
            Family::Files => providers.push(Arc::new(FilesProvider::new(files)?)),
            Family::Scripts => {
                if let Some(HandlerScripts { runner, is_isolated }) = scripts.take() {
                    providers.push(Arc::new(ScriptsProvider::new(runner, is_isolated)));
                }
            }
            Family::Web | Family::Rest => return Err(FamilyError::NotBuilt(*family)),
        }
    }
    if let Some(outputs) = outputs {
        let tool = ToolOutput::new(outputs);
        let source = tool.registration().source.clone();
        providers.push(Arc::new(FixedTools::new(source, vec![Arc::new(tool)])));
    }
    Ok(providers)
}

/// Validates the sections of the families. Returns the problems, as messages for an operator.
#[must_use]
pub fn validate(families: &[Family], files: &FilesConfig) -> Vec<String> {
    let problem = |family: &Family| match family {
        Family::Files => files::tools(files).err().map(|error| format!("files: {error}")),
        Family::Scripts => None,
        Family::Web | Family::Rest => Some(format!("handler.families: {}", not_built(*family))),
    };
    families.iter().filter_map(problem).collect()
}

fn not_built(family: Family) -> String {
    format!("this program has no tools of the family {family}; remove it")
}

#[cfg(test)]
mod tests {
    use rockbot_tools::ToolSource;

    use super::*;

    fn sources(families: &[Family]) -> Result<Vec<ToolSource>, FamilyError> {
        let root = tempfile::tempdir().unwrap();
        let files = FilesConfig { root: root.path().to_owned(), ..FilesConfig::default() };
        let parts = FamilyParts { files: &files, scripts: None, outputs: None };
        let providers = providers(families, parts)?;
        Ok(providers.iter().map(|provider| provider.source()).collect())
    }

    #[test]
    fn families_decide_the_providers() {
        assert_eq!(sources(&[Family::Files]).unwrap(), [ToolSource::Files]);
        assert_eq!(sources(&[Family::Scripts]).unwrap(), [], "without a runner");
    }

    #[test]
    fn root_is_validated_only_for_the_file_tools() {
        let files = FilesConfig { root: "/nowhere".into(), ..FilesConfig::default() };
        assert!(validate(&[Family::Files], &files)[0].starts_with("files: "));
        assert_eq!(validate(&[Family::Scripts], &files), [""; 0]);
    }
}
