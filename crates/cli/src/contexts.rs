//! Named broker connections in the user's configuration folder.

use std::{
    collections::BTreeMap,
    fs::File,
    io::{ErrorKind, Read},
    path::{Path, PathBuf},
};

use secrecy::{ExposeSecret, SecretString};
use serde::{Deserialize, Serialize};
use url::Url;

use crate::{private_file, similar_names};

/// Name of the file in the configuration folder.
const FILE: &str = "contexts.toml";
/// Largest file, in bytes.
const MAX_FILE_BYTES: u64 = 256 * 1024;
/// Maximum number of contexts.
const MAX_CONTEXTS: usize = 256;
/// Longest name, in bytes.
const MAX_NAME_BYTES: usize = 32;

/// The stored contexts.
#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct Contexts {
    /// The selected one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) current: Option<String>,
    pub(crate) contexts: BTreeMap<String, Context>,
}

/// A connection to the broker of a fleet.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Context {
    /// URL of the broker, with user and password.
    #[serde(serialize_with = "expose")]
    pub(crate) bus: SecretString,
    /// Namespace of the fleet. Default: the configured one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) namespace: Option<String>,
    /// Set for a production fleet.
    #[serde(default)]
    pub(crate) production: bool,
}

/// The file is private, and the URL is useless without its password.
fn expose<S: serde::Serializer>(url: &SecretString, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(url.expose_secret())
}

/// The context that a command uses.
#[derive(Debug, Clone)]
pub(crate) struct SelectedContext {
    pub(crate) name: String,
    pub(crate) context: Context,
}

/// The use of the context that `rockbot context use` selected. One that is named with `--context` is always used.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum SelectedContextUse {
    /// Its broker is used.
    Join,
    /// It is not used: the command would start services there.
    Ignore,
}

impl SelectedContext {
    pub(crate) fn is_production(&self) -> bool {
        self.context.production
    }
}

impl Context {
    /// Returns the URL without its password.
    pub(crate) fn shown_url(&self) -> String {
        match Url::parse(self.bus.expose_secret()) {
            Ok(mut url) => {
                let _ = url.set_password(None);
                url.to_string()
            }
            Err(_) => "an invalid URL".to_owned(),
        }
    }
}

impl Contexts {
    /// Returns the file of the contexts.
    pub(crate) fn file(folder: &Path) -> PathBuf {
        folder.join(FILE)
    }

    /// Reads the contexts in a configuration folder. A missing file has none.
    ///
    /// # Errors
    /// The problem with the file.
    pub(crate) fn read(folder: &Path) -> Result<Self, String> {
        let path = Self::file(folder);
        let shown = path.display();
        let file = match File::open(&path) {
            Ok(file) => file,
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Self::default()),
            Err(error) => return Err(format!("{shown}: {error}")),
        };
        let mut text = String::new();
        let read = file.take(MAX_FILE_BYTES + 1).read_to_string(&mut text);
        let bytes = read.map_err(|error| format!("{shown}: {error}"))? as u64;
        if bytes > MAX_FILE_BYTES {
            return Err(format!("{shown}: larger than {MAX_FILE_BYTES} bytes; remove contexts"));
        }
        // The parser's message may have the value, and so a password.
        toml::from_str(&text).map_err(|error| {
            let line = error.span().map(|span| text[..span.start].lines().count().max(1));
            let line = line.map(|line| format!(" near line {line}")).unwrap_or_default();
            format!("{shown}: invalid{line}; correct it, or remove it and add the contexts again")
        })
    }

    /// Writes the contexts to a file that only its owner can read.
    ///
    /// # Errors
    /// When the file cannot be written.
    pub(crate) fn write(&self, folder: &Path) -> anyhow::Result<()> {
        private_file::create_folder(folder)?;
        private_file::replace(&Self::file(folder), &toml::to_string(self)?)
    }

    /// Adds or replaces a context.
    ///
    /// # Errors
    /// The problem with the name or the number of contexts.
    pub(crate) fn add(&mut self, name: &str, context: Context) -> Result<(), String> {
        let is_part = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
        if name.is_empty() || name.len() > MAX_NAME_BYTES || !name.bytes().all(is_part) {
            return Err(format!(
                "the name of a context has 1 to {MAX_NAME_BYTES} letters, digits and -_."
            ));
        }
        if self.contexts.len() >= MAX_CONTEXTS && !self.contexts.contains_key(name) {
            return Err(format!("there are {MAX_CONTEXTS} contexts already; remove one"));
        }
        self.contexts.insert(name.to_owned(), context);
        Ok(())
    }

    /// Returns the context `name`, or the selected one, if one is.
    ///
    /// # Errors
    /// When it does not exist.
    pub(crate) fn select(&self, name: Option<&str>) -> Result<Option<SelectedContext>, String> {
        let Some(name) = name.or(self.current.as_deref()) else { return Ok(None) };
        match self.contexts.get(name) {
            Some(context) => {
                Ok(Some(SelectedContext { name: name.to_owned(), context: context.clone() }))
            }
            None => Err(self.unknown(name)),
        }
    }

    /// Returns the error for a context that does not exist.
    pub(crate) fn unknown(&self, name: &str) -> String {
        let advice = match similar_names::closest(name, self.contexts.keys()) {
            Some(similar) => format!("did you mean {similar}?"),
            None => "`rockbot context list` shows the existing ones".to_owned(),
        };
        format!("there is no context {name:?}; {advice}")
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    fn context(url: &str) -> Context {
        Context { bus: SecretString::from(url), namespace: None, production: false }
    }

    #[test]
    fn contexts_are_kept_in_a_private_file() {
        let folder = tempfile::tempdir().unwrap();
        let folder = folder.path().join("rockbot");
        let mut contexts = Contexts::read(&folder).unwrap();
        contexts.add("prod", context("amqps://a:hunter2@b/%2f")).unwrap();
        contexts.current = Some("prod".to_owned());
        contexts.write(&folder).unwrap();
        let mode = Contexts::file(&folder).metadata().unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
        let read = Contexts::read(&folder).unwrap();
        let selected = read.select(None).unwrap().unwrap();
        assert_eq!(selected.name, "prod");
        assert_eq!(selected.context.bus.expose_secret(), "amqps://a:hunter2@b/%2f");
        assert_eq!(selected.context.shown_url(), "amqps://a@b/%2f");
        assert!(!format!("{read:?}").contains("hunter2"));
    }

    #[test]
    fn unknown_context_names_a_similar_one() {
        let mut contexts = Contexts::default();
        assert!(contexts.select(None).unwrap().is_none());
        contexts.add("production", context("amqp://a@b")).unwrap();
        assert!(
            contexts.select(Some("prodction")).unwrap_err().contains("did you mean production")
        );
        for name in ["", "a b", "../x", &"x".repeat(33)] {
            assert!(contexts.add(name, context("amqp://a@b")).is_err(), "{name}");
        }
    }

    #[test]
    fn invalid_file_is_reported_without_its_text() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join(FILE), "[contexts.a]\nbus = hunter2\n").unwrap();
        let problem = Contexts::read(folder.path()).unwrap_err();
        assert!(problem.contains("contexts.toml") && !problem.contains("hunter2"), "{problem}");
    }
}
