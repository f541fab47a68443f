//! Entries of the servers file for servers of a registry, for packages and for URLs.
//!
//! Text of a registry is literal: it cannot expand variables of the bridge. Values that the user sets
//! become `${NAME}`.

use serde_json::{Map, Value, json};

use super::document::{Argument, Endpoint, Input, Package, RegistryServer};

/// The longest text of a registry that is part of an entry, in bytes.
const MAX_TEXT_BYTES: usize = 2048;
/// The maximum number of arguments, variables or headers.
const MAX_INPUTS: usize = 64;

/// An entry for the servers file.
#[derive(Debug, Clone, PartialEq)]
pub struct NewEntry {
    /// A name derived from the server.
    pub name: String,
    /// The entry.
    pub entry: Map<String, Value>,
}

impl NewEntry {
    /// Creates the entry of a remote server.
    ///
    /// # Errors
    /// When the URL has no host.
    pub fn from_url(url: &str) -> Result<Self, String> {
        let parsed = reqwest::Url::parse(url).map_err(|error| format!("{url}: {error}"))?;
        let host = parsed.host_str().ok_or_else(|| format!("{url}: it has no host"))?;
        let labels: Vec<_> = host.split('.').collect();
        // The label before the top-level domain; an address or a single name as a whole.
        let name = match labels.as_slice() {
            [.., name, _] if parsed.domain().is_some() => name,
            _ => host,
        };
        Ok(Self { name: short_name(name), entry: object(json!({ "url": url })) })
    }

    /// Creates the entry of a package: `npm:NAME@VERSION` or `pypi:NAME@VERSION`.
    ///
    /// # Errors
    /// When the package or its version is not valid.
    pub fn from_package(package: &str) -> Result<Self, String> {
        let (kind, reference) = package.split_once(':').unwrap_or_default();
        // A scope begins with an @ as well.
        let (identifier, version) = match reference.rfind('@') {
            Some(position) if position > 0 => {
                (&reference[..position], Some(reference[position + 1..].to_owned()))
            }
            _ => (reference, None),
        };
        let package = Package {
            registry_type: kind.to_owned(),
            identifier: identifier.to_owned(),
            version,
            ..Package::default()
        };
        Ok(Self { name: short_name(identifier), entry: package.entry()? })
    }

    /// Creates the entry of a server of a registry: a package with a pinned version, or else a remote
    /// server.
    ///
    /// # Errors
    /// Why the server cannot be used.
    pub fn from_server(server: &RegistryServer) -> Result<Self, String> {
        let mut problems = Vec::new();
        let packages = server.packages.iter().map(Package::entry);
        for entry in packages.chain(server.remotes.iter().map(Endpoint::entry)) {
            match entry {
                Ok(entry) => return Ok(Self { name: short_name(&server.name), entry }),
                Err(problem) => problems.push(problem),
            }
        }
        if problems.is_empty() {
            problems.push("it has neither packages nor remote addresses".to_owned());
        }
        Err(format!("{}: {}", server.name, problems.join("; ")))
    }

    /// Returns the command of the entry, or its URL, for display.
    #[must_use]
    pub fn command_line(&self) -> String {
        let text = |key: &str| self.entry.get(key).and_then(Value::as_str).map(ToOwned::to_owned);
        let arguments = self.entry.get("args").and_then(Value::as_array).into_iter().flatten();
        let arguments = arguments.filter_map(Value::as_str).map(|argument| {
            if argument.contains(char::is_whitespace) {
                format!("{argument:?}")
            } else {
                argument.to_owned()
            }
        });
        let command = text("command").or_else(|| text("url")).unwrap_or_default();
        [command].into_iter().chain(arguments).collect::<Vec<_>>().join(" ")
    }
}

impl Package {
    fn entry(&self) -> Result<Map<String, Value>, String> {
        if !matches!(self.transport.kind.as_str(), "" | "stdio") {
            return Err(format!(
                "package {}: only packages with the transport stdio can be started",
                self.identifier
            ));
        }
        let reference = self.reference()?;
        let (command, before) = match self.registry_type.as_str() {
            "npm" => ("npx", vec!["-y".to_owned()]),
            "pypi" => ("uvx", Vec::new()),
            "oci" => ("docker", vec!["run".to_owned(), "-i".to_owned(), "--rm".to_owned()]),
            kind => {
                return Err(format!(
                    "package {}: packages of {kind:?} cannot be started; use npm, pypi or oci",
                    self.identifier
                ));
            }
        };
        let mut args = before;
        args.extend(arguments(&self.runtime_arguments)?);
        let env = inputs(&self.environment_variables, is_variable)?;
        if command == "docker" {
            args.extend(env.keys().flat_map(|name| ["-e".to_owned(), name.clone()]));
        }
        args.push(reference);
        args.extend(arguments(&self.package_arguments)?);
        let mut entry = object(json!({ "command": command, "args": args }));
        if !env.is_empty() {
            entry.insert("env".to_owned(), Value::Object(env));
        }
        Ok(entry)
    }

    /// Returns the package with its version.
    fn reference(&self) -> Result<String, String> {
        let Self { registry_type, identifier, version, .. } = self;
        let is_oci = registry_type == "oci";
        let is_valid = match registry_type.as_str() {
            "oci" => is_image(identifier),
            // A scope, or none. A name with another slash would be a folder or a repository.
            "npm" => match identifier.strip_prefix('@').map(|scoped| scoped.split_once('/')) {
                Some(scoped) => scoped.is_some_and(|(scope, name)| is_name(scope) && is_name(name)),
                None => is_name(identifier),
            },
            _ => is_name(identifier),
        };
        if !is_valid || identifier.len() > 256 {
            return Err(format!("{identifier:?} is not the name of a package"));
        }
        // An image has its version in its name.
        let tagged = identifier.rsplit_once(':').filter(|_| is_oci);
        let version = tagged.map(|(_, tag)| tag).or(version.as_deref()).unwrap_or_default();
        let is_exact = match registry_type.as_str() {
            "npm" => is_pinned(version) && is_semantic(version),
            _ => is_pinned(version),
        };
        if !is_exact {
            return Err(format!(
                "package {identifier}: name a version, such as {registry_type}:{identifier}@1.2.3"
            ));
        }
        Ok(match registry_type.as_str() {
            "oci" if tagged.is_some() => identifier.clone(),
            "oci" => format!("{identifier}:{version}"),
            _ => format!("{identifier}@{version}"),
        })
    }
}

impl Endpoint {
    fn entry(&self) -> Result<Map<String, Value>, String> {
        let Self { kind, url, headers } = self;
        let kind = match kind.as_str() {
            "streamable-http" => "http",
            "sse" => "sse",
            kind => return Err(format!("remote server: the transport {kind:?} is not supported")),
        };
        if !url.starts_with("https://") {
            return Err("remote server: its URL does not begin with https://".to_owned());
        }
        let is_header = |name: &str| {
            let is_part = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_');
            !name.is_empty() && name.chars().all(is_part)
        };
        let headers = inputs(headers, is_header)?;
        let mut entry = object(json!({ "type": kind, "url": template(url)? }));
        if !headers.is_empty() {
            entry.insert("headers".to_owned(), Value::Object(headers));
        }
        Ok(entry)
    }
}

/// Returns variables or headers with their values. Optional ones without a value are left out.
fn inputs(inputs: &[Input], is_name: impl Fn(&str) -> bool) -> Result<Map<String, Value>, String> {
    let mut values = Map::new();
    for input in inputs.iter().take(MAX_INPUTS) {
        if !is_name(&input.name) || input.name.len() > 128 {
            return Err(format!("{:?} is not a valid name of a variable or header", input.name));
        }
        if let Some(value) = input.value_for(&input.name)? {
            values.insert(input.name.clone(), Value::String(value));
        }
    }
    Ok(values)
}

fn arguments(arguments: &[Argument]) -> Result<Vec<String>, String> {
    let mut words = Vec::new();
    for Argument { kind, value_hint, input } in arguments.iter().take(MAX_INPUTS) {
        let name = value_hint.as_deref().unwrap_or(&input.name);
        let value = input.value_for(name)?;
        let Some(value) = value else { continue };
        if kind == "named" {
            words.push(template(&input.name)?);
        }
        words.push(value);
    }
    Ok(words)
}

impl Input {
    /// Returns the fixed value, the default, or the variable `name` that the user must set.
    fn value_for(&self, name: &str) -> Result<Option<String>, String> {
        match self.value.as_ref().or(self.default_value.as_ref()) {
            Some(value) => template(value).map(Some),
            None if self.is_required => Ok(Some(format!("${{{}}}", variable(name)))),
            None => Ok(None),
        }
    }
}

/// Returns a text of a registry in which `{name}` is the variable `NAME` of the user, and anything else is
/// literal.
fn template(text: &str) -> Result<String, String> {
    if text.len() > MAX_TEXT_BYTES || text.chars().any(char::is_control) {
        return Err(format!("a value is longer than {MAX_TEXT_BYTES} bytes or not printable"));
    }
    let mut expanded = String::new();
    let mut rest = text;
    while let Some(open) = rest.find('{') {
        let (before, after) = rest.split_at(open);
        let name = after[1..].split_once('}').map(|(name, _)| name);
        match name.filter(|name| is_placeholder(name) && !before.ends_with('$')) {
            Some(name) => {
                expanded.push_str(before);
                expanded.push_str(&format!("${{{}}}", variable(name)));
                rest = &after[name.len() + 2..];
            }
            None => {
                expanded.push_str(before);
                // `$${` is a literal `${`.
                expanded.push_str(if before.ends_with('$') { "${" } else { "{" });
                rest = &after[1..];
            }
        }
    }
    expanded.push_str(rest);
    Ok(expanded)
}

/// Returns the name of the variable for a value that the user sets.
fn variable(name: &str) -> String {
    let name: String = name
        .trim_start_matches('-')
        .chars()
        .map(|c| if c.is_ascii_alphanumeric() { c.to_ascii_uppercase() } else { '_' })
        .take(64)
        .collect();
    if name.is_empty() { "VALUE".to_owned() } else { name }
}

/// Returns `true` for the name in a placeholder, so that other text in braces stays as it is.
fn is_placeholder(name: &str) -> bool {
    let is_part = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-');
    name.starts_with(|c: char| c.is_ascii_alphabetic()) && name.chars().all(is_part)
}

fn is_variable(name: &str) -> bool {
    let is_part = |c: char| c.is_ascii_alphanumeric() || c == '_';
    !name.is_empty() && !name.starts_with(|c: char| c.is_ascii_digit()) && name.chars().all(is_part)
}

/// Returns `true` for one version; ranges and moving tags are not pinned.
/// Returns whether a text is the name of a package without its scope: letters, digits, dots, hyphens and
/// underscores, with a letter or digit first.
fn is_name(text: &str) -> bool {
    let is_part = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-');
    text.starts_with(|c: char| c.is_ascii_alphanumeric()) && text.chars().all(is_part)
}

/// Returns whether a text is the name of a container image, perhaps with a host, a port and a tag.
fn is_image(text: &str) -> bool {
    let is_part = |c: char| c.is_ascii_alphanumeric() || matches!(c, '@' | ':' | '.' | '_' | '-');
    text.split('/').all(|part| {
        part.starts_with(|c: char| c.is_ascii_alphanumeric()) && part.chars().all(is_part)
    })
}

/// Returns whether a version has three numbers, so that it is no range.
fn is_semantic(version: &str) -> bool {
    let numbers = version.split(['-', '+']).next().unwrap_or_default();
    let is_number = |part: &str| !part.is_empty() && part.chars().all(|c| c.is_ascii_digit());
    numbers.split('.').count() == 3 && numbers.split('.').all(is_number)
}

fn is_pinned(version: &str) -> bool {
    let is_part = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | '_' | '+' | '!');
    version.len() <= 128
        && version.chars().all(is_part)
        && version.contains(|c: char| c.is_ascii_digit())
}

/// Returns the last part of a name, in characters that every servers file accepts.
fn short_name(name: &str) -> String {
    let last = name.rsplit('/').next().unwrap_or(name);
    let is_part = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
    let name: String = last.chars().map(|c| if is_part(c) { c } else { '-' }).take(64).collect();
    if name.is_empty() { "server".to_owned() } else { name }
}

fn object(value: Value) -> Map<String, Value> {
    match value {
        Value::Object(object) => object,
        _ => Map::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn server(value: Value) -> Result<NewEntry, String> {
        NewEntry::from_server(&serde_json::from_value(value).unwrap())
    }

    #[test]
    fn packages_need_a_pinned_version() {
        let npm = NewEntry::from_package("npm:@scope/server-x@1.2.3").unwrap();
        assert_eq!(npm.name, "server-x");
        assert_eq!(npm.command_line(), "npx -y @scope/server-x@1.2.3");
        let pypi = NewEntry::from_package("pypi:mcp-server-time@2026.1.1").unwrap();
        assert_eq!(pypi.command_line(), "uvx mcp-server-time@2026.1.1");
        for unpinned in [
            "npm:x",
            "npm:x@latest",
            "npm:x@^1.2",
            "npm:@scope/x",
            "npm:x@1",
            "npm:x@1.x",
            "npm:x@1.2",
            "pypi:x@>=1",
        ] {
            let problem = NewEntry::from_package(unpinned).unwrap_err();
            assert!(problem.contains("name a version"), "{unpinned}: {problem}");
        }
        for invalid in [
            "npm:-x@1.0.0",
            "npm:a b@1.0.0",
            "cargo:x@1",
            "npm:@1.0.0",
            "npm:owner/repository@1.0.0",
            "npm:../..@1.0.0",
            "npm:.@1.0.0",
            "npm:@a/b/c@1.0.0",
            "pypi:a/b@1.0",
        ] {
            assert!(NewEntry::from_package(invalid).is_err(), "{invalid}");
        }
    }

    #[test]
    fn urls_get_a_name() {
        let name = |url: &str| NewEntry::from_url(url).unwrap().name;
        assert_eq!(name("https://api.github.com/mcp"), "github");
        assert_eq!(name("http://localhost:3000/mcp"), "localhost");
        assert_eq!(name("http://127.0.0.1:3000/mcp"), "127.0.0.1");
        assert!(NewEntry::from_url("nothing").is_err());
    }

    #[test]
    fn user_values_become_variables_and_text_stays_literal() {
        let entry = server(json!({
            "name": "io.github.owner/notes", "version": "1.0.0",
            "packages": [{
                "registryType": "npm", "identifier": "notes", "version": "1.0.0",
                "transport": {"type": "stdio"},
                "runtimeArguments": [{"type": "named", "name": "--level", "isRequired": true}],
                "packageArguments": [
                    {"type": "positional", "valueHint": "folder-path", "isRequired": true},
                    {"type": "named", "name": "--url", "value": "https://{host}/${AWS_SECRET_ACCESS_KEY}"},
                    {"type": "named", "name": "--optional"},
                ],
                "environmentVariables": [
                    {"name": "NOTES_KEY", "isRequired": true, "isSecret": true},
                    {"name": "NOTES_MODE", "default": "safe"},
                    {"name": "NOTES_EXTRA"},
                ],
            }],
        }));
        let entry = entry.unwrap();
        assert_eq!(entry.name, "notes");
        assert_eq!(entry.entry["command"], "npx");
        assert_eq!(
            entry.entry["args"],
            json!([
                "-y",
                "--level",
                "${LEVEL}",
                "notes@1.0.0",
                "${FOLDER_PATH}",
                "--url",
                "https://${HOST}/$${AWS_SECRET_ACCESS_KEY}"
            ])
        );
        assert_eq!(entry.entry["env"], json!({"NOTES_KEY": "${NOTES_KEY}", "NOTES_MODE": "safe"}));
    }

    #[test]
    fn other_text_in_braces_is_literal() {
        for literal in ["{}", r#"{"a": {"b": 1}}"#, "{1}", "a{", "}{", "{a b}"] {
            assert_eq!(template(literal).unwrap(), literal);
        }
        assert_eq!(template("{a-b}/{}/{c}").unwrap(), "${A_B}/{}/${C}");
        assert!(template("a\nb").is_err());
    }

    #[test]
    fn unusable_packages_fall_back_to_remotes() {
        let remote = server(json!({
            "name": "com.example/docs",
            "packages": [{"registryType": "nuget", "identifier": "x", "version": "1.0.0"}],
            "remotes": [
                {"type": "streamable-http", "url": "http://plain.example.com"},
                {"type": "streamable-http", "url": "https://{tenant}.example.com/mcp",
                 "headers": [{"name": "Authorization", "value": "Bearer {token}"}]},
            ],
        }));
        let remote = remote.unwrap();
        assert_eq!(remote.entry["type"], "http");
        assert_eq!(remote.entry["url"], "https://${TENANT}.example.com/mcp");
        assert_eq!(remote.entry["headers"], json!({"Authorization": "Bearer ${TOKEN}"}));
        let none = server(json!({"name": "a/b", "packages": [
            {"registryType": "npm", "identifier": "x", "version": "latest"}]}));
        assert!(none.unwrap_err().contains("name a version"));
        let image = server(json!({"name": "a/b", "packages": [
            {"registryType": "oci", "identifier": "ghcr.io/a/b:1.2.0",
             "environmentVariables": [{"name": "KEY", "isRequired": true}]}]}));
        let image = image.unwrap();
        assert_eq!(image.command_line(), "docker run -i --rm -e KEY ghcr.io/a/b:1.2.0");
    }

    proptest::proptest! {
        #[test]
        fn text_with_variables_of_the_bridge_stays_literal(
            text in r"([a-z}]|\$|\$\{[A-Z]{0,3}\}?){0,8}"
        ) {
            let asked = std::cell::Cell::new(0);
            let lookup = |_: &str| {
                asked.set(asked.get() + 1);
                Some("value".to_owned())
            };
            let expanded = rockbot_service::expand::expand(&template(&text).unwrap(), &lookup);
            proptest::prop_assert_eq!(expanded.ok(), Some(text));
            proptest::prop_assert_eq!(asked.get(), 0);
        }
    }
}
