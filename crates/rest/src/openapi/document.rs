//! Reading and identification of documents.

use std::{fmt, str::FromStr};

use rockbot_contracts::{json, outside_text};
use serde_json::Value;

use super::{
    json_shape::{self, ShapeError},
    limits::ImportLimits,
    swagger,
};

/// Maximum length of a title or a version, in characters.
const MAX_TITLE_CHARS: usize = 200;
/// Maximum length of the description of an API, in characters.
const MAX_DESCRIPTION_CHARS: usize = 2_000;

/// Maximum nesting of YAML, whose parser needs more stack than that of JSON.
const MAX_YAML_DEPTH: usize = 64;
/// Limits of aliases in YAML: their number, and the size of all that they can repeat.
const MAX_ALIASES: usize = 500;
const MAX_ANCHORED_EVENTS: usize = 50_000;
const MAX_ANCHORED_BYTES: usize = 256 * 1024;
const MAX_REPEATED_EVENTS: usize = 500_000;

/// Reason why a document cannot be imported at all.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum DocumentError {
    /// It exceeds [`ImportLimits::document_bytes`].
    #[error(
        "document has more than {max_bytes} bytes; import a part of it, or give the process more memory"
    )]
    TooLarge {
        /// Maximum size of a document.
        max_bytes: usize,
    },
    /// It holds too many values, or needs too much memory.
    #[error(
        "document holds more than {max_values} values, or needs more than {max_mib} MiB of memory; \
         import a part of it, or give the process more memory"
    )]
    TooManyValues {
        /// Maximum number of values.
        max_values: usize,
        /// Maximum memory, in MiB.
        max_mib: usize,
    },
    /// It nests too deeply.
    #[error("document nests deeper than {} levels; flatten it with references", json::MAX_DEPTH)]
    TooDeep,
    /// It is neither JSON nor YAML.
    #[error("document is not valid {format}: {reason}; correct it")]
    Syntax {
        /// `JSON` or `YAML`.
        format: &'static str,
        /// Cause.
        reason: String,
    },
    /// It has neither `openapi` nor `swagger`.
    #[error("document has no field \"openapi\" or \"swagger\"; it is not an OpenAPI document")]
    NotOpenApi,
    /// Its version is not supported.
    #[error("OpenAPI version {version:?} is not supported; convert the document to 3.0 or 3.1")]
    Version {
        /// Version, truncated.
        version: String,
    },
}

/// Version of the specification that a document follows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Version {
    /// Swagger 2.0.
    V2,
    /// `OpenAPI` 3.0.
    V30,
    /// `OpenAPI` 3.1.
    V31,
    /// `OpenAPI` 3.2.
    V32,
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::V2 => "2.0",
            Self::V30 => "3.0",
            Self::V31 => "3.1",
            Self::V32 => "3.2",
        })
    }
}

/// A document that was read, in the form of `OpenAPI` 3.
#[derive(Debug, Clone)]
pub struct Document {
    version: Version,
    root: Value,
    limits: ImportLimits,
}

impl Document {
    /// Reads a document that was parsed already, within the default limits.
    ///
    /// # Errors
    /// See [`DocumentError`].
    pub fn from_value(root: Value) -> Result<Self, DocumentError> {
        Self::parsed(root, ImportLimits::default())
    }

    /// Reads a document from JSON, or from YAML when it does not begin with `{`.
    ///
    /// A document takes up to a second and several times its size in memory: call this on a blocking
    /// thread.
    ///
    /// # Errors
    /// See [`DocumentError`].
    pub fn read(text: &str, limits: ImportLimits) -> Result<Self, DocumentError> {
        let max_bytes = limits.document_bytes();
        if text.len() > max_bytes {
            return Err(DocumentError::TooLarge { max_bytes });
        }
        let text = text.trim_start_matches('\u{feff}').trim_start();
        let is_json = text.starts_with('{');
        let root = if is_json { from_json(text, limits)? } else { from_yaml(text, limits)? };
        Self::parsed(root, limits)
    }

    fn parsed(root: Value, limits: ImportLimits) -> Result<Self, DocumentError> {
        check_shape(&root, limits)?;
        let version = version(&root)?;
        let root = match version {
            Version::V2 => swagger::upgrade(root, limits).ok_or_else(|| too_many_values(limits))?,
            _ => root,
        };
        Ok(Self { version, root, limits })
    }

    /// Returns the version of the specification that it follows.
    #[must_use]
    pub fn version(&self) -> Version {
        self.version
    }

    /// Returns its title, at most 200 characters, or nothing.
    #[must_use]
    pub fn title(&self) -> String {
        self.info("title", MAX_TITLE_CHARS)
    }

    /// Returns the description of the API, at most 2,000 characters, or nothing.
    #[must_use]
    pub fn description(&self) -> String {
        self.info("description", MAX_DESCRIPTION_CHARS)
    }

    /// Returns the version of the API, at most 200 characters, or nothing.
    #[must_use]
    pub fn api_version(&self) -> String {
        self.info("version", MAX_TITLE_CHARS)
    }

    /// Returns the URLs of its servers as written, with their variables.
    #[must_use]
    pub fn servers(&self) -> Vec<&str> {
        let servers = self.root["servers"].as_array().into_iter().flatten();
        servers.filter_map(|server| server["url"].as_str()).collect()
    }

    /// Returns the names of its security schemes.
    #[must_use]
    pub fn security_schemes(&self) -> Vec<&str> {
        let schemes = self.root["components"]["securitySchemes"].as_object();
        schemes.into_iter().flatten().map(|(name, _)| name.as_str()).collect()
    }

    pub(super) fn root(&self) -> &Value {
        &self.root
    }

    pub(super) fn limits(&self) -> ImportLimits {
        self.limits
    }

    fn info(&self, field: &str, max_chars: usize) -> String {
        match &self.root["info"][field] {
            Value::String(text) => outside_text::plain(text.trim(), max_chars),
            Value::Number(number) => number.to_string(),
            _ => String::new(),
        }
    }
}

impl FromStr for Document {
    type Err = DocumentError;

    /// Reads a document within the default limits, see [`Document::read`].
    ///
    /// # Errors
    /// See [`DocumentError`].
    fn from_str(text: &str) -> Result<Self, DocumentError> {
        Self::read(text, ImportLimits::default())
    }
}

fn too_many_values(limits: ImportLimits) -> DocumentError {
    DocumentError::TooManyValues { max_values: limits.nodes(), max_mib: limits.memory() >> 20 }
}

fn from_json(text: &str, limits: ImportLimits) -> Result<Value, DocumentError> {
    json_shape::check(text, limits.nodes(), limits.memory()).map_err(|error| match error {
        ShapeError::TooDeep => DocumentError::TooDeep,
        ShapeError::TooManyValues => too_many_values(limits),
    })?;
    serde_json::from_str(text).map_err(|error| {
        if json::is_too_deep(&error) {
            return DocumentError::TooDeep;
        }
        DocumentError::Syntax { format: "JSON", reason: json::describe_error(&error) }
    })
}

fn from_yaml(text: &str, limits: ImportLimits) -> Result<Value, DocumentError> {
    use serde_saphyr::options::DuplicateKeyPolicy;
    let options = serde_saphyr::options! {
        budget: serde_saphyr::budget! {
            max_events: 2 * limits.yaml_nodes(),
            max_nodes: limits.yaml_nodes(),
            max_depth: MAX_YAML_DEPTH,
            flow_nesting_limit: MAX_YAML_DEPTH,
            max_documents: 1,
            max_aliases: MAX_ALIASES,
            max_anchors: MAX_ALIASES,
            max_recorded_anchor_events: MAX_ANCHORED_EVENTS,
            max_recorded_anchor_bytes: MAX_ANCHORED_BYTES,
            max_merge_keys: MAX_ALIASES,
        },
        alias_limits: serde_saphyr::alias_limits! {
            max_total_replayed_events: MAX_REPEATED_EVENTS,
            max_replay_stack_depth: 16,
        },
        duplicate_keys: DuplicateKeyPolicy::LastWins,
        strict_booleans: true,
        with_snippet: false,
    };
    serde_saphyr::from_str_with_options(text, options).map_err(|error| {
        let reason = outside_text::plain(&error.to_string(), 300);
        DocumentError::Syntax { format: "YAML", reason }
    })
}

/// Checks nesting and number of values without recursion.
fn check_shape(root: &Value, limits: ImportLimits) -> Result<(), DocumentError> {
    let mut pending = vec![(root, 1)];
    let mut nodes = 0;
    while let Some((value, depth)) = pending.pop() {
        nodes += 1;
        if depth > json::MAX_DEPTH + 1 {
            return Err(DocumentError::TooDeep);
        }
        if nodes + pending.len() > limits.nodes() {
            return Err(too_many_values(limits));
        }
        match value {
            Value::Array(list) => pending.extend(list.iter().map(|inner| (inner, depth + 1))),
            Value::Object(map) => pending.extend(map.values().map(|inner| (inner, depth + 1))),
            _ => {}
        }
    }
    Ok(())
}

fn version(root: &Value) -> Result<Version, DocumentError> {
    let field = |name: &str| match root.get(name)? {
        Value::String(text) => Some(text.trim().to_owned()),
        Value::Number(number) => Some(number.to_string()),
        _ => None,
    };
    let is = |version: &str, minor: &str| {
        version == minor || version.strip_prefix(minor).is_some_and(|rest| rest.starts_with('.'))
    };
    if let Some(version) = field("openapi") {
        let known = [("3.0", Version::V30), ("3.1", Version::V31), ("3.2", Version::V32)];
        let found = known.into_iter().find(|(minor, _)| is(&version, minor));
        return found.map(|(_, found)| found).ok_or_else(|| unsupported(&version));
    }
    let version = field("swagger").ok_or(DocumentError::NotOpenApi)?;
    if is(&version, "2.0") || version == "2" {
        return Ok(Version::V2);
    }
    Err(unsupported(&version))
}

fn unsupported(version: &str) -> DocumentError {
    DocumentError::Version { version: outside_text::plain(version, 20) }
}
