//! The tools of one API, for a process that offers them under its own names.

use std::{fmt, path::Path, sync::Arc, time::Duration};

use rockbot_contracts::outside_text::is_name;
use rockbot_egress::{DialPolicy, EgressError};
use rockbot_tools::{CallPolicy, Tool};
use serde_json::Value;

use super::{
    document::{self, DocumentWatch, FileFingerprint},
    import::{ImportedApi, SkippedTool},
};
use crate::{
    call::RestClient,
    config::{ApiConfig, SpecLocation},
    openapi::{NAME_PREFIX, Version},
    tool::RestTool,
};

/// Time without data after which a connection counts as lost.
const IDLE_TIMEOUT: Duration = Duration::from_secs(30);

/// A validated API: the location of its document, and how its operations are called.
///
/// Clones are cheap. Entries are equal if they say the same, with the values of their variables.
#[derive(Clone)]
pub struct ApiEntry(Arc<ApiConfig>);

impl ApiEntry {
    /// Validates an entry of `openApi` as in the file of REST tools. `folder` is the folder that the path
    /// of a document refers to, and `lookup` returns the values of variables. `queue`, `cache` and
    /// `toolNamePrefix` have no effect.
    ///
    /// # Errors
    /// A message for the operator.
    pub fn new(
        entry: &Value,
        folder: &Path,
        lookup: &dyn Fn(&str) -> Option<String>,
    ) -> Result<Self, String> {
        let config = ApiConfig::new(entry, folder, lookup).map_err(|error| error.to_string())?;
        Ok(Self(Arc::new(config)))
    }
}

/// Secrets do not implement `PartialEq`; detecting changes of a file needs a comparison.
impl PartialEq for ApiEntry {
    fn eq(&self, other: &Self) -> bool {
        self.0.spec == other.0.spec && self.0.expanded == other.0.expanded
    }
}

impl fmt::Debug for ApiEntry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let location: &dyn fmt::Debug = match &self.0.spec {
            SpecLocation::File(path) => path,
            SpecLocation::Url(url) => &url.host_str(),
        };
        f.debug_struct("ApiEntry").field("spec", location).finish_non_exhaustive()
    }
}

/// Reads documents and sends requests. Clones share connections and access tokens.
#[derive(Clone)]
pub struct ApiClient {
    client: RestClient,
    policy: Arc<DialPolicy>,
}

impl ApiClient {
    /// Creates a client that dials what `policy` allows. A connection without data for 30 s counts as
    /// lost.
    ///
    /// # Errors
    /// When the trusted certificates cannot be read.
    pub fn new(policy: Arc<DialPolicy>) -> Result<Self, EgressError> {
        Ok(Self { client: RestClient::new(policy.clone(), IDLE_TIMEOUT)?, policy })
    }
}

/// The tools of an API, as its document was when it was read.
pub struct ApiTools {
    version: Version,
    title: String,
    description: String,
    tools: Vec<ApiTool>,
    skipped: Vec<SkippedTool>,
    warnings: Vec<String>,
    spec: SpecLocation,
    fingerprint: Option<FileFingerprint>,
}

impl ApiTools {
    /// Reads the document of an API and imports its operations. `name` is the name of the API in metrics.
    ///
    /// Takes up to 30 s for a document at a URL, and seconds for the import of a large one.
    ///
    /// # Errors
    /// A message for the operator.
    ///
    /// # Cancellation
    /// An import that has begun continues on its thread, for up to a minute. Its result is dropped.
    pub async fn read(name: &str, entry: &ApiEntry, client: &ApiClient) -> Result<Self, String> {
        let config = ApiConfig::clone(&entry.0);
        let spec = config.spec.clone();
        // Taken first: a change while the document is read is a change.
        let fingerprint = document::fingerprint(&spec);
        let policy = CallPolicy::default();
        let imported =
            ImportedApi::read(name, config, &policy, &client.policy, &client.client).await?;
        let ImportedApi { version, title, description, tools, skipped, warnings } = imported;
        let overrides = &entry.0.import.overrides;
        let tools = tools.into_iter().map(|(id, tool)| {
            let own = overrides.get(&id).and_then(|change| change.name.clone());
            ApiTool::new(own.unwrap_or(id), tool)
        });
        let tools = tools.collect();
        Ok(Self { version, title, description, tools, skipped, warnings, spec, fingerprint })
    }

    /// Returns the version of the specification that the document follows.
    #[must_use]
    pub fn version(&self) -> Version {
        self.version
    }

    /// Returns the title of the API, at most 200 characters. Untrusted text, which may be empty.
    #[must_use]
    pub fn title(&self) -> &str {
        &self.title
    }

    /// Returns the description of the API, at most 2,000 characters. Untrusted text, which may be
    /// empty.
    #[must_use]
    pub fn description(&self) -> &str {
        &self.description
    }

    /// Returns the tools in the order of the paths in the document.
    #[must_use]
    pub fn tools(&self) -> &[ApiTool] {
        &self.tools
    }

    /// Returns the operations that are not offered.
    #[must_use]
    pub fn skipped(&self) -> &[SkippedTool] {
        &self.skipped
    }

    /// Returns the parts of the entry that have no effect.
    #[must_use]
    pub fn warnings(&self) -> &[String] {
        &self.warnings
    }

    /// Returns a watch for changes of the document since it was read.
    #[must_use]
    pub fn watch(&self) -> DocumentWatch {
        DocumentWatch::new(self.spec.clone(), self.fingerprint.clone())
    }
}

/// An operation of an API as a tool.
#[derive(Clone)]
pub struct ApiTool(Arc<RestTool>);

impl ApiTool {
    fn new(name: String, mut tool: RestTool) -> Self {
        let registered = &mut tool.registration.name;
        *registered = if is_name(&name) {
            name
        } else {
            registered.strip_prefix(NAME_PREFIX).unwrap_or(registered).to_owned()
        };
        Self(Arc::new(tool))
    }

    /// Returns its name: that of `overrides`, or else the id of the operation, or a shortened one where
    /// that is not printable or has more than 128 bytes. Names may repeat if `overrides` do.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.0.registration.name
    }

    /// Returns the tool, registered under its name.
    #[must_use]
    pub fn tool(&self) -> &dyn Tool {
        self.0.as_ref()
    }
}
