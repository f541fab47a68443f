//! Placeholders of MCP clients, rewritten to those of the servers file.

use std::path::{Path, PathBuf};

use serde_json::{Map, Value};

use super::paths::absolute;

/// The placeholders of a client's file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Syntax {
    /// `${NAME}`, `${env:NAME}`, `${input:ID}` and names of folders.
    Common,
    /// Also `$NAME`.
    Gemini,
    /// `{env:NAME}`.
    Opencode,
}

/// Folders of projects that clients keep their files in.
const CLIENT_FOLDERS: [&str; 6] = [".vscode", ".cursor", ".gemini", ".codex", ".zed", ".windsurf"];

/// Rewrites the placeholders of one file.
#[derive(Debug)]
pub(super) struct Placeholders {
    syntax: Syntax,
    /// The folder of the project: that of the file, or its parent if a client's folder contains it.
    pub(super) workspace: PathBuf,
}

impl Placeholders {
    pub(super) fn new(syntax: Syntax, folder: &Path) -> Self {
        let folder = absolute(folder);
        let is_client_folder = folder
            .file_name()
            .is_some_and(|name| CLIENT_FOLDERS.iter().any(|client| name == *client));
        let workspace = match folder.parent() {
            Some(parent) if is_client_folder => parent,
            _ => &folder,
        };
        Self { syntax, workspace: workspace.to_owned() }
    }

    /// Rewrites every string of an entry.
    pub(super) fn rewrite(&self, entry: &mut Map<String, Value>) {
        entry.values_mut().for_each(|value| self.rewrite_value(value));
    }

    fn rewrite_value(&self, value: &mut Value) {
        match value {
            Value::String(text) => *text = self.rewritten(text),
            Value::Array(values) => values.iter_mut().for_each(|value| self.rewrite_value(value)),
            Value::Object(map) => self.rewrite(map),
            _ => {}
        }
    }

    fn rewritten(&self, text: &str) -> String {
        match self.syntax {
            Syntax::Common => self.replaced(text, "${"),
            Syntax::Gemini => self.replaced(&with_braces(text), "${"),
            Syntax::Opencode => self.replaced(text, "{"),
        }
    }

    /// Replaces the placeholders that begin with `open`, except unknown ones.
    fn replaced(&self, text: &str, open: &str) -> String {
        let mut replaced = String::with_capacity(text.len());
        let mut rest = text;
        while let Some(at) = rest.find(open) {
            let inside = rest[at + open.len()..].split_once('}');
            let is_escaped = rest[..at].ends_with('$');
            let value = inside.filter(|_| !is_escaped).and_then(|(inside, _)| self.value(inside));
            if let (Some(value), Some((_, after))) = (value, inside) {
                replaced.push_str(&rest[..at]);
                replaced.push_str(&value);
                rest = after;
            } else {
                replaced.push_str(&rest[..at + open.len()]);
                rest = &rest[at + open.len()..];
            }
        }
        replaced.push_str(rest);
        replaced
    }

    /// Returns what the inside of a placeholder becomes, or `None` for a name of the servers file.
    fn value(&self, inside: &str) -> Option<String> {
        if let Some(name) = inside.strip_prefix("env:") {
            return Some(format!("${{{name}}}"));
        }
        if let Some(id) = inside.strip_prefix("input:") {
            return Some(format!("${{{}}}", variable_of_input(id)));
        }
        let workspace = || self.workspace.to_string_lossy().replace("${", "$${");
        match inside {
            "workspaceFolder" => Some(workspace()),
            "workspaceFolderBasename" => {
                let name = self.workspace.file_name().unwrap_or_default();
                Some(name.to_string_lossy().into_owned())
            }
            "userHome" => Some("${HOME}".to_owned()),
            "pathSeparator" | "/" => Some(std::path::MAIN_SEPARATOR_STR.to_owned()),
            _ => None,
        }
    }
}

/// Returns the environment variable with the value of an input, which a client asks its user for:
/// `API_KEY` for `api-key`.
fn variable_of_input(id: &str) -> String {
    let letter = |c: char| if c.is_ascii_alphanumeric() { c.to_ascii_uppercase() } else { '_' };
    id.chars().map(letter).collect()
}

/// Rewrites `$NAME` to `${NAME}`.
fn with_braces(text: &str) -> String {
    let mut rewritten = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find('$') {
        rewritten.push_str(&rest[..at]);
        let after = &rest[at + 1..];
        let end = after.find(|c: char| !(c.is_ascii_alphanumeric() || c == '_'));
        let name = &after[..end.unwrap_or(after.len())];
        if name.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_') {
            rewritten.push_str(&format!("${{{name}}}"));
        } else {
            rewritten.push('$');
            rewritten.push_str(name);
        }
        rest = &after[name.len()..];
    }
    rewritten.push_str(rest);
    rewritten
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(syntax: Syntax, text: &str, expected: &str) {
        let placeholders = Placeholders::new(syntax, Path::new("/home/me/shop/.vscode"));
        assert_eq!(placeholders.rewritten(text), expected, "{text}");
    }

    #[test]
    fn placeholders_of_editors_become_variables_and_folders() {
        check(Syntax::Common, "${env:TOKEN}/${TOKEN:-x}", "${TOKEN}/${TOKEN:-x}");
        check(Syntax::Common, "Bearer ${input:api-key}", "Bearer ${API_KEY}");
        check(Syntax::Common, "${workspaceFolder}${/}a", "/home/me/shop/a");
        check(Syntax::Common, "${workspaceFolderBasename} ${userHome}", "shop ${HOME}");
        check(
            Syntax::Common,
            "$${env:TOKEN} $TOKEN {env:TOKEN} ${",
            "$${env:TOKEN} $TOKEN {env:TOKEN} ${",
        );
    }

    #[test]
    fn placeholders_of_gemini_need_no_braces() {
        check(Syntax::Gemini, "$TOKEN-${TOKEN} $ $1 $", "${TOKEN}-${TOKEN} $ $1 $");
    }

    #[test]
    fn placeholders_of_opencode_have_no_dollar() {
        check(Syntax::Opencode, "Bearer {env:TOKEN} {x} {", "Bearer ${TOKEN} {x} {");
    }
}
