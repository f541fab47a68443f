//! Layered configuration.
//!
//! In ascending precedence: the commented defaults compiled into the program, the file named with
//! `--config`, the environment (`ROCKBOT_<SECTION>__<KEY>`, and `ROCKBOT_<SECTION>__<KEY>_FILE` for
//! a value in a file, such as a mounted secret). All problems are reported at once.

use std::{fmt, path::Path};

use figment::{
    Figment, Profile,
    providers::{Format, Serialized, Toml},
    value::Value,
};
use serde::de::DeserializeOwned;

const PREFIX: &str = "ROCKBOT_";
/// Keys whose value is a path. Their variables end in `_FILE` as well, and the file is read by its user.
const PATHS: [&str; 4] =
    ["bus.tls.ca_file", "bus.tls.cert_file", "bus.tls.key_file", "gateway.a2a.signing_key_file"];
const MAX_FILE_BYTES: u64 = 1024 * 1024;
/// Maximum number of errors that are reported for one section.
const MAX_SECTION_ERRORS: usize = 32;

/// All problems of a configuration.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConfigProblems(Vec<String>);

impl fmt::Display for ConfigProblems {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "invalid configuration:")?;
        self.0.iter().try_for_each(|problem| write!(f, "\n  - {problem}"))
    }
}

impl std::error::Error for ConfigProblems {}

impl ConfigProblems {
    /// Returns the problems, each on one line.
    #[must_use]
    pub fn list(&self) -> &[String] {
        &self.0
    }
}

/// A configuration from which sections are read; it collects their problems.
#[derive(Debug)]
pub struct Configuration {
    layers: Figment,
    sections: Vec<&'static str>,
    file_sections: Vec<String>,
    /// Keys whose values could not be read and were replaced by defaults.
    unreadable: Vec<String>,
    problems: Vec<String>,
    is_check: bool,
}

impl Configuration {
    /// Merges the layers. `environment` is that of the process, or a test's.
    pub fn layered(
        defaults: &str,
        file: Option<&Path>,
        environment: impl IntoIterator<Item = (String, String)>,
    ) -> Self {
        let mut problems = Vec::new();
        let mut layers = Figment::from(Toml::string(defaults));
        let mut file_sections = Vec::new();
        if let Some(path) = file {
            match read_file(path) {
                Ok(text) => {
                    let toml = Figment::from(Toml::string(&text));
                    match toml.extract::<figment::value::Dict>() {
                        Ok(sections) => {
                            file_sections = sections.into_keys().collect();
                            layers = layers.merge(Toml::string(&text));
                        }
                        Err(error) => problems.push(format!("{}: {error}", path.display())),
                    }
                }
                Err(problem) => problems.push(problem),
            }
        }
        for (name, value) in environment {
            let Some(key) = name.strip_prefix(PREFIX) else { continue };
            // Variables without a section, such as those of the tests, are not configuration.
            let Some((section, key)) = key.split_once("__") else { continue };
            let section = section.to_ascii_lowercase();
            let key = key.to_ascii_lowercase().replace("__", ".");
            let is_path = PATHS.contains(&format!("{section}.{key}").as_str());
            let (key, value) = match key.strip_suffix("_file").filter(|_| !is_path) {
                Some(key) => match read_file(Path::new(&value)) {
                    Ok(text) => (key.to_owned(), text.trim_end().to_owned()),
                    Err(problem) => {
                        problems.push(format!("{name}: {problem}"));
                        continue;
                    }
                },
                None => (key, value),
            };
            let value: Value = match value.parse() {
                Ok(value) => value,
                Err(never) => match never {},
            };
            let path = format!("{section}.{key}");
            let layer = Serialized::default(&path, value).profile(Profile::Default);
            layers = layers.merge(Named { layer, name: format!("environment variable {name}") });
        }
        let (sections, unreadable) = (Vec::new(), Vec::new());
        Self { layers, sections, file_sections, unreadable, problems, is_check: false }
    }

    /// Marks the configuration as read for `--check-config`.
    #[must_use]
    pub fn for_check(self, is_check: bool) -> Self {
        Self { is_check, ..self }
    }

    /// Returns whether the configuration is read for `--check-config`. Then parts of
    /// other files that a running process skips are errors too.
    #[must_use]
    pub fn is_check(&self) -> bool {
        self.is_check
    }

    /// Reads one section. An absent section has its defaults. Each error is recorded for
    /// [`Configuration::finish`]; its key gets the default, and the other keys keep their values.
    pub fn section<S: DeserializeOwned + Default>(&mut self, name: &'static str) -> S {
        let again = self.sections.contains(&name);
        self.sections.push(name);
        let Ok(mut values) = self.layers.find_value(name) else { return S::default() };
        for _ in 0..MAX_SECTION_ERRORS {
            let error = match S::deserialize(&values) {
                Ok(section) => return section,
                Err(error) => error,
            };
            // The first read has reported it.
            if !again {
                self.report(name, &error);
            }
            if !remove(&mut values, &error.path) {
                break;
            }
        }
        S::default()
    }

    /// Records an error of a section, without the value, which may be a secret.
    fn report(&mut self, section: &str, error: &figment::Error) {
        let keys = error.path.iter().map(String::as_str);
        let key = std::iter::once(section).chain(keys).collect::<Vec<_>>().join(".");
        let from = self.layers.find_metadata(&key).map(|from| format!(" ({})", from.name));
        let from = from.unwrap_or_default();
        self.problems.push(format!("{key}: {}{from}", describe(&error.kind)));
        if !matches!(error.kind, figment::error::Kind::UnknownField(..)) {
            self.unreadable.push(key);
        }
    }

    /// Adds a problem, `KEY: REASON`, found by the reader of a section. It is ignored if the value of the
    /// key, or of a key below it, could not be read: the reader saw the default.
    pub fn problem(&mut self, problem: impl Into<String>) {
        let problem = problem.into();
        let key = problem.split(": ").next().unwrap_or_default();
        let has_default = |unreadable: &String| {
            unreadable
                .strip_prefix(key)
                .is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
        };
        if !self.unreadable.iter().any(has_default) {
            self.problems.push(problem);
        }
    }

    /// Finishes reading.
    ///
    /// # Errors
    /// All problems found, and every section of the file that was not read.
    pub fn finish(mut self) -> Result<(), ConfigProblems> {
        for section in &self.file_sections {
            if !self.sections.contains(&section.as_str()) {
                let known = self.sections.join(", ");
                self.problems.push(format!("unknown section [{section}]; known sections: {known}"));
            }
        }
        if self.problems.is_empty() { Ok(()) } else { Err(ConfigProblems(self.problems)) }
    }
}

/// Removes the value at `path`. Returns false if it has no removable value.
fn remove(value: &mut Value, path: &[String]) -> bool {
    match (value, path) {
        (Value::Dict(_, values), [key]) => values.remove(key).is_some(),
        (Value::Dict(_, values), [key, rest @ ..]) => {
            values.get_mut(key).is_some_and(|value| remove(value, rest))
        }
        (Value::Array(_, values), [index, rest @ ..]) if !rest.is_empty() => {
            let value = index.parse::<usize>().ok().and_then(|index| values.get_mut(index));
            value.is_some_and(|value| remove(value, rest))
        }
        _ => false,
    }
}

/// Describes an error without the value.
fn describe(kind: &figment::error::Kind) -> String {
    use figment::error::Kind;
    match kind {
        Kind::InvalidType(got, expected) => {
            format!("expected {expected}, got {}", type_name(got))
        }
        Kind::InvalidValue(_, expected) => format!("expected {expected}"),
        Kind::UnknownField(key, known) => {
            format!("unknown key {key:?}; known keys: {}", known.join(", "))
        }
        Kind::UnknownVariant(_, known) => format!("expected one of {}", known.join(", ")),
        Kind::MissingField(key) => format!("{key} is missing"),
        other => other.to_string(),
    }
}

fn type_name(actual: &figment::error::Actual) -> &'static str {
    use figment::error::Actual;
    match actual {
        Actual::Bool(_) => "true or false",
        Actual::Unsigned(_) | Actual::Signed(_) => "a whole number",
        Actual::Float(_) => "a number",
        Actual::Str(_) | Actual::Char(_) => "text",
        Actual::Seq => "a list",
        Actual::Map => "a table",
        _ => "something else",
    }
}

fn read_file(path: &Path) -> Result<String, String> {
    let shown = path.display();
    let size = std::fs::metadata(path).map_err(|error| format!("{shown}: {error}"))?.len();
    if size > MAX_FILE_BYTES {
        return Err(format!("{shown}: {size} bytes, at most {MAX_FILE_BYTES}"));
    }
    std::fs::read_to_string(path).map_err(|error| format!("{shown}: {error}"))
}

/// A layer with a name for errors.
struct Named<P> {
    layer: P,
    name: String,
}

impl<P: figment::Provider> figment::Provider for Named<P> {
    fn metadata(&self) -> figment::Metadata {
        figment::Metadata::named(self.name.clone())
    }

    fn data(&self) -> Result<figment::value::Map<Profile, figment::value::Dict>, figment::Error> {
        self.layer.data()
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use std::path::PathBuf;

    use secrecy::{ExposeSecret, SecretString};
    use serde::Deserialize;

    use super::*;
    use crate::sections::{LogSection, ServiceSection};

    #[derive(Debug, Default, Deserialize)]
    #[serde(deny_unknown_fields, default)]
    struct Tools {
        concurrency: u16,
        name: String,
    }

    #[derive(Debug, Default, Deserialize)]
    #[serde(deny_unknown_fields, default)]
    struct Peer {
        url: SecretString,
        tls: Tls,
    }

    #[derive(Debug, Default, Deserialize)]
    #[serde(deny_unknown_fields, default)]
    struct Tls {
        ca_file: Option<PathBuf>,
    }

    const DEFAULTS: &str = "[tools]\nconcurrency = 1\nname = \"default\"\n";

    fn environment(pairs: &[(&str, &str)]) -> Vec<(String, String)> {
        pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
    }

    fn file(text: &str) -> tempfile::NamedTempFile {
        let mut file = tempfile::NamedTempFile::new().unwrap();
        file.write_all(text.as_bytes()).unwrap();
        file
    }

    #[test]
    fn environment_overrides_file_and_file_overrides_defaults() {
        let file = file("[tools]\nconcurrency = 2\nname = \"file\"\n");
        let environment = environment(&[("ROCKBOT_TOOLS__CONCURRENCY", "3"), ("PATH", "/bin")]);
        let mut configuration = Configuration::layered(DEFAULTS, Some(file.path()), environment);
        let tools: Tools = configuration.section("tools");
        assert_eq!((tools.concurrency, tools.name.as_str()), (3, "file"));
        configuration.finish().unwrap();
    }

    #[test]
    fn problems_are_reported_together_without_values() {
        let file = file("[tools]\nconcurrency = \"hunter2\"\n[tolls]\nx = 1\n");
        let environment = environment(&[("ROCKBOT_LOG__FORMAT", "hunter2")]);
        let mut configuration = Configuration::layered(DEFAULTS, Some(file.path()), environment);
        let _: Tools = configuration.section("tools");
        let _: LogSection = configuration.section("log");
        let problems = configuration.finish().unwrap_err();
        let text = problems.to_string();
        assert_eq!(problems.list().len(), 3, "{text}");
        assert!(text.contains("tools.concurrency") && text.contains("log.format"), "{text}");
        assert!(text.contains("ROCKBOT_LOG__FORMAT") && text.contains("[tolls]"), "{text}");
        assert!(!text.contains("hunter2"), "{text}");
    }

    #[test]
    fn invalid_keys_leave_the_other_keys_of_their_section() {
        let file = file(
            "[tools]\nconcurency = 2\nname = 7\nconcurrency = 3\n\
             [bus]\nurl = \"amqp://broker\"\ntls.ca = \"x\"\ntls.ca_file = \"ca.pem\"\n",
        );
        let mut configuration = Configuration::layered(DEFAULTS, Some(file.path()), []);
        let tools: Tools = configuration.section("tools");
        assert_eq!((tools.concurrency, tools.name.as_str()), (3, ""));
        let bus: Peer = configuration.section("bus");
        assert_eq!(bus.url.expose_secret(), "amqp://broker");
        assert_eq!(bus.tls.ca_file.as_deref(), Some(Path::new("ca.pem")));
        let problems = configuration.finish().unwrap_err();
        let expected = ["tools.concurency: unknown", "tools.name: expected", "bus.tls.ca: unknown"];
        assert_eq!(problems.list().len(), expected.len(), "{problems}");
        for (problem, expected) in problems.list().iter().zip(expected) {
            assert!(problem.starts_with(expected), "{problems}");
        }
    }

    #[test]
    fn problem_of_a_replaced_value_is_ignored() {
        let file = file("[bus]\nurl = 7\n[tools]\nname = 7\n");
        let mut configuration = Configuration::layered("", Some(file.path()), []);
        let _: Peer = configuration.section("bus");
        let _: Tools = configuration.section("tools");
        configuration.problem("bus: invalid broker configuration: invalid URL");
        configuration.problem("tools.name: must not be empty");
        configuration.problem("tools.names: other key");
        let problems = configuration.finish().unwrap_err();
        assert_eq!(problems.list().len(), 3, "{problems}");
        assert_eq!(problems.list()[2], "tools.names: other key");
    }

    #[test]
    fn secret_from_file_is_hidden_in_debug() {
        let secret = file("amqp://user:hunter2@broker\n");
        let path = secret.path().display().to_string();
        let environment = environment(&[("ROCKBOT_BUS__URL_FILE", &path)]);
        let mut configuration = Configuration::layered("", None, environment);
        let bus: Peer = configuration.section("bus");
        configuration.finish().unwrap();
        assert_eq!(bus.url.expose_secret(), "amqp://user:hunter2@broker");
        assert!(!format!("{bus:?}").contains("hunter2"));
    }

    #[test]
    fn durations_require_a_unit_in_file_and_environment() {
        let variable = |value| environment(&[("ROCKBOT_SERVICE__DRAIN", value)]);
        let file = file("[service]\ndrain = 25\n");
        let mut configuration = Configuration::layered("", Some(file.path()), variable("2m"));
        let service: ServiceSection = configuration.section("service");
        configuration.finish().unwrap();
        assert_eq!(service.drain(), std::time::Duration::from_secs(120));
        for (path, variables) in [(Some(file.path()), Vec::new()), (None, variable("25"))] {
            let mut configuration = Configuration::layered("", path, variables);
            let _: ServiceSection = configuration.section("service");
            let text = configuration.finish().unwrap_err().to_string();
            assert!(text.contains("service.drain: expected a duration with a unit"), "{text}");
            assert!(
                text.contains("such as \"30s\"") && text.contains("got a whole number"),
                "{text}"
            );
        }
    }

    #[test]
    fn certificate_file_is_named_and_not_read() {
        let environment = environment(&[("ROCKBOT_BUS__TLS__CA_FILE", "/nowhere/at/all.pem")]);
        let mut configuration = Configuration::layered("", None, environment);
        let bus: Peer = configuration.section("bus");
        configuration.finish().unwrap();
        assert_eq!(bus.tls.ca_file.as_deref(), Some(Path::new("/nowhere/at/all.pem")));
    }

    #[test]
    fn missing_or_malformed_file_is_a_problem() {
        let mut missing =
            Configuration::layered("", Some(Path::new("/nowhere/at/all.toml")), Vec::new());
        let _: LogSection = missing.section("log");
        assert!(missing.finish().unwrap_err().to_string().contains("/nowhere/at/all.toml"));
        let broken = file("[tools\n");
        let broken = Configuration::layered("", Some(broken.path()), Vec::new());
        assert_eq!(broken.finish().unwrap_err().list().len(), 1);
    }
}
