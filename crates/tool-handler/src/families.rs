//! The families of tools that a handler runs, as providers.
//!
//! This is the one place that assembles the tools of a handler: for the program, and for the handler that
//! the `rockbot` command embeds.

#[cfg(feature = "pdf")]
use std::process::ExitCode;
use std::{collections::BTreeMap, sync::Arc};

use rockbot_egress::EgressError;
use rockbot_rest::{RestProvider, RestSection};
use rockbot_scripts::{Isolation, ScriptRunner, Scripts, ScriptsProvider};
use rockbot_tool_rpc::Family;
use rockbot_toolkit::files::{self, FilesConfig, FilesError, FilesProvider};
use rockbot_tools::{
    FixedTools, Outputs, Tool as _, ToolOutput, ToolProvider, limits::queue::Queue,
};
#[cfg(feature = "pdf")]
use rockbot_web::pdf::{PdfProcess, READ_PDF_ARGUMENT, read_pdf_main};
use rockbot_web::{PdfReader, WebError, WebProvider, WebSection};

/// Error of creating the tools of a family.
#[derive(Debug, thiserror::Error)]
pub enum FamilyError {
    /// The file tools cannot be created.
    #[error("[files]: {0}")]
    Files(#[from] FilesError),
    /// The web tools cannot be created.
    #[error("[web]: {0}")]
    Web(#[from] WebError),
    /// The client of the REST tools cannot be created.
    #[error("[rest]: {0}")]
    Rest(#[from] EgressError),
}

/// The runner of scripts of a handler.
pub struct HandlerScripts {
    /// Runs the scripts.
    pub runner: Arc<dyn ScriptRunner>,
    /// Set when scripts can't reach anything outside their sandbox.
    pub is_isolated: bool,
    /// The isolation to announce; `None` while it is unknown.
    pub isolation: Option<Isolation>,
}

impl From<&Scripts> for HandlerScripts {
    fn from(scripts: &Scripts) -> Self {
        let isolation = scripts.isolation();
        Self {
            runner: scripts.runner(),
            is_isolated: isolation.is_complete(),
            isolation: Some(isolation.clone()),
        }
    }
}

/// Settings and services from which the families are created.
pub struct FamilyParts<'a> {
    /// Section `[files]`, for [`Family::Files`].
    pub files: &'a FilesConfig,
    /// The configured runner, for [`Family::Scripts`]. Without one, the family has no tools.
    pub scripts: Option<HandlerScripts>,
    /// Section `[web]`, for [`Family::Web`]; its defaults when it is `None`.
    pub web: Option<&'a WebSection>,
    /// Reader of PDF documents, for [`Family::Web`]. Without one, they are not read.
    pub pdf: Option<Arc<dyn PdfReader>>,
    /// Section `[rest]`, for [`Family::Rest`]. Without a file, the family has no tools.
    pub rest: Option<&'a RestSection>,
    /// Queues that REST tools can name.
    pub queues: BTreeMap<String, Arc<Queue>>,
    /// Stored outputs. Every handler with them offers the tool that reads them.
    pub outputs: Option<Arc<Outputs>>,
}

impl<'a> FamilyParts<'a> {
    /// Returns the parts of a handler with these settings of the file tools, without scripts, REST tools
    /// and stored outputs.
    #[must_use]
    pub fn new(files: &'a FilesConfig) -> Self {
        Self {
            files,
            scripts: None,
            web: None,
            pdf: None,
            rest: None,
            queues: BTreeMap::new(),
            outputs: None,
        }
    }
}

/// Creates the providers of the families, in this order, and the one of stored outputs. Must be called in
/// a Tokio runtime.
///
/// # Errors
/// See [`FamilyError`].
pub fn providers(
    families: &[Family],
    parts: FamilyParts<'_>,
) -> Result<Vec<Arc<dyn ToolProvider>>, FamilyError> {
    protect_environment(families);
    let FamilyParts { files, mut scripts, web, pdf, rest, queues, outputs } = parts;
    let mut providers: Vec<Arc<dyn ToolProvider>> = Vec::new();
    for family in families {
        match family {
            Family::Files => providers.push(Arc::new(FilesProvider::new(files)?)),
            Family::Scripts => {
                if let Some(HandlerScripts { runner, is_isolated, isolation }) = scripts.take() {
                    let provider = ScriptsProvider::new(runner, is_isolated);
                    providers.push(Arc::new(provider.with_isolation(isolation)));
                }
            }
            Family::Web => {
                let default = WebSection::default();
                let section = web.unwrap_or(&default);
                let provider = WebProvider::from_section(section, variable, pdf.clone())?;
                providers.push(Arc::new(provider));
            }
            Family::Rest => {
                if let Some(rest) = rest
                    && let Some(config) = &rest.config
                {
                    providers.push(RestProvider::new(rest.options(config, queues.clone()))?);
                }
            }
        }
    }
    if let Some(outputs) = outputs {
        let tool = ToolOutput::new(outputs);
        let source = tool.registration().source.clone();
        providers.push(Arc::new(FixedTools::new(source, vec![Arc::new(tool)])));
    }
    Ok(providers)
}

/// Keeps processes of the same user from reading this one's environment and memory, which have the keys of
/// web and REST tools: commands of `bash`, scripts, and those of another handler on this machine. Processes
/// of root can still read it.
fn protect_environment(families: &[Family]) {
    let has_keys = |family: &Family| matches!(family, Family::Web | Family::Rest);
    if families.iter().any(has_keys) {
        let behavior = rustix::process::DumpableBehavior::NotDumpable;
        if let Err(error) = rustix::process::set_dumpable_behavior(behavior) {
            tracing::warn!(%error, "other processes of this user can read the keys of this process");
        }
    }
}

/// Validates the sections of the families. Returns the problems, as messages for an operator.
#[must_use]
pub fn validate(
    families: &[Family],
    files: &FilesConfig,
    web: &WebSection,
    rest: &RestSection,
) -> Vec<String> {
    let problems = |family: &Family| match family {
        Family::Files => {
            let error = files::tools(files).err();
            error.map(|error| format!("files: {error}")).into_iter().collect()
        }
        Family::Scripts => Vec::new(),
        Family::Web => web.validate(variable),
        Family::Rest => rest.validate(),
    };
    families.iter().flat_map(problems).collect()
}

/// Returns the reader of PDF documents: this program itself, run with the argument that
/// [`read_pdf_if_requested`] recognizes.
#[cfg(feature = "pdf")]
#[must_use]
pub fn pdf_reader() -> Option<Arc<dyn PdfReader>> {
    match PdfProcess::current_program() {
        Ok(reader) => Some(Arc::new(reader)),
        Err(error) => {
            tracing::warn!(%error, "PDF documents are not read: the path of this program is unknown");
            None
        }
    }
}

/// Reads a PDF document from standard input if the program was started for that, and returns its exit
/// code. The main function calls this first.
#[cfg(feature = "pdf")]
#[must_use]
pub fn read_pdf_if_requested() -> Option<ExitCode> {
    let requested = std::env::args_os().nth(1).is_some_and(|first| first == READ_PDF_ARGUMENT);
    requested.then(read_pdf_main)
}

fn variable(name: &str) -> Option<String> {
    std::env::var(name).ok()
}

#[cfg(test)]
mod tests {
    use rockbot_tools::ToolSource;

    use super::*;

    fn sources(families: &[Family]) -> Result<Vec<ToolSource>, FamilyError> {
        let root = tempfile::tempdir().unwrap();
        let files = FilesConfig { root: root.path().to_owned(), ..FilesConfig::default() };
        let providers = providers(families, FamilyParts::new(&files))?;
        Ok(providers.iter().map(|provider| provider.source()).collect())
    }

    #[test]
    fn families_decide_the_providers() {
        assert_eq!(sources(&[Family::Files]).unwrap(), [ToolSource::Files]);
        assert_eq!(sources(&[Family::Scripts]).unwrap(), [], "without a runner");
        assert_eq!(sources(&[Family::Rest]).unwrap(), [], "without a file");
        let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
        let all = [Family::Web, Family::Files];
        assert_eq!(sources(&all).unwrap(), [ToolSource::Web, ToolSource::Files]);
    }

    #[test]
    fn root_is_validated_only_for_the_file_tools() {
        let files = FilesConfig { root: "/nowhere".into(), ..FilesConfig::default() };
        let problems = |families: &[Family]| {
            let web = WebSection { ports: vec![0], ..WebSection::default() };
            validate(families, &files, &web, &RestSection::default())
        };
        assert!(problems(&[Family::Files])[0].starts_with("files: "));
        assert_eq!(problems(&[Family::Scripts, Family::Rest]), [""; 0]);
        assert_eq!(problems(&[Family::Web]), ["web.ports: 0 is not a port"]);
    }
}
