//! Loading of definitions from files.

use std::{
    collections::BTreeMap,
    fs::{self, File},
    io::{self, Read},
    path::{Path, PathBuf},
};

use rockbot_contracts::AgentName;

use super::{AgentDefinition, DefinitionErrors, DefinitionProblem};

/// Largest definition, in bytes.
const MAX_FILE_BYTES: u64 = 128 * 1024;
/// Maximum number of definitions in a directory.
const MAX_FILES: usize = 256;

impl AgentDefinition {
    /// Loads a definition, a `.md` or `.toml` file of at most 128 KiB, and its documents of at most the
    /// same size each. Blocking; for startup.
    ///
    /// # Errors
    /// Returns all problems of the definition; if it is valid, those of its documents.
    pub fn load(path: &Path) -> Result<Self, DefinitionErrors> {
        let text = read_bounded(path).map_err(|error| {
            DefinitionErrors(vec![problem(path, format!("cannot be read: {error}"))])
        })?;
        let mut definition = Self::parse(path, &text)?;
        definition.read_documents(path)?;
        Ok(definition)
    }

    fn read_documents(&mut self, definition: &Path) -> Result<(), DefinitionErrors> {
        let folder = definition.parent().unwrap_or(Path::new(""));
        let mut problems = Vec::new();
        for document in &self.documents {
            match read_bounded(&folder.join(document)) {
                Ok(text) => {
                    self.system_prompt.push_str("\n\n");
                    self.system_prompt.push_str(text.trim());
                }
                Err(error) => {
                    let key = Some("documents".to_owned());
                    let text = format!("{} cannot be read: {error}", document.display());
                    problems.push(DefinitionProblem { key, ..problem(definition, text) });
                }
            }
        }
        if problems.is_empty() { Ok(()) } else { Err(DefinitionErrors(problems)) }
    }

    /// Loads the `.md` and `.toml` files of a directory in the order of their file names; at most 256
    /// files.
    /// Blocking; for startup.
    ///
    /// # Errors
    /// Returns the problems of all files, including duplicate agent names.
    pub fn load_dir(folder: &Path) -> Result<Vec<Self>, DefinitionErrors> {
        let files = definition_files(folder).map_err(|error| {
            DefinitionErrors(vec![problem(folder, format!("cannot be listed: {error}"))])
        })?;
        if files.len() > MAX_FILES {
            let text = format!("holds {} definitions, at most {MAX_FILES}", files.len());
            return Err(DefinitionErrors(vec![problem(folder, text)]));
        }
        let mut definitions = Vec::new();
        let mut problems = Vec::new();
        let mut names: BTreeMap<AgentName, PathBuf> = BTreeMap::new();
        for file in files {
            match Self::load(&file) {
                Ok(definition) => {
                    if let Some(other) = names.get(&definition.name) {
                        let text = format!(
                            "{:?} is also the name in {}; rename one",
                            definition.name.as_str(),
                            other.display()
                        );
                        problems.push(DefinitionProblem {
                            key: Some("name".to_owned()),
                            ..problem(&file, text)
                        });
                        continue;
                    }
                    names.insert(definition.name.clone(), file);
                    definitions.push(definition);
                }
                Err(errors) => problems.extend(errors.0),
            }
        }
        if problems.is_empty() { Ok(definitions) } else { Err(DefinitionErrors(problems)) }
    }
}

fn problem(file: &Path, problem: String) -> DefinitionProblem {
    DefinitionProblem { file: file.to_owned(), key: None, problem }
}

fn definition_files(folder: &Path) -> io::Result<Vec<PathBuf>> {
    let mut files = Vec::new();
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        let extension = path.extension().and_then(|extension| extension.to_str());
        if matches!(extension, Some("md" | "toml")) && path.is_file() {
            files.push(path);
        }
    }
    files.sort();
    Ok(files)
}

fn read_bounded(path: &Path) -> io::Result<String> {
    let mut text = String::new();
    File::open(path)?.take(MAX_FILE_BYTES + 1).read_to_string(&mut text)?;
    if text.len() as u64 > MAX_FILE_BYTES {
        let text = format!("it is larger than {MAX_FILE_BYTES} bytes");
        return Err(io::Error::new(io::ErrorKind::FileTooLarge, text));
    }
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn directory_is_loaded_in_order_without_other_files() {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("b.md"), "+++\n+++\nprompt").unwrap();
        fs::write(folder.path().join("a.toml"), "system_prompt = 'x'").unwrap();
        fs::write(folder.path().join("notes.txt"), "not an agent").unwrap();
        fs::create_dir(folder.path().join("c.md")).unwrap();
        let names: Vec<_> = AgentDefinition::load_dir(folder.path())
            .unwrap()
            .into_iter()
            .map(|definition| definition.name.to_string())
            .collect();
        assert_eq!(names, ["a", "b"]);
    }

    #[test]
    fn all_problems_of_a_directory_are_reported() {
        let folder = tempfile::tempdir().unwrap();
        let write = |name: &str, text: &str| fs::write(folder.path().join(name), text).unwrap();
        write("a.md", "+++\nmax_iterations = 0\ncolour = 'red'\n+++\nprompt");
        write("b.md", "+++\nname = 'same'\n+++\nprompt");
        write("c.md", "+++\nname = 'same'\n+++\nprompt");
        write("d.toml", &"#".repeat(200_000));
        let errors = AgentDefinition::load_dir(folder.path()).unwrap_err();
        let text = errors.to_string();
        for part in ["a.md: colour", "a.md: max_iterations", "c.md: name", "b.md", "d.toml"] {
            assert!(text.contains(part), "{part} is not in:\n{text}");
        }
        assert_eq!(errors.0.len(), 4, "{text}");
    }

    #[test]
    fn documents_are_appended_and_missing_ones_reported() {
        let folder = tempfile::tempdir().unwrap();
        let write = |name: &str, text: &str| fs::write(folder.path().join(name), text).unwrap();
        fs::create_dir(folder.path().join("documents")).unwrap();
        write("documents/style.md", "Write short sentences.\n");
        write("a.md", "+++\ndocuments = ['documents/style.md']\n+++\nYou write.");
        let read = AgentDefinition::load(&folder.path().join("a.md")).unwrap();
        assert_eq!(read.system_prompt, "You write.\n\nWrite short sentences.");
        write("b.md", "+++\ndocuments = ['gone.md']\n+++\nYou write.");
        let error = AgentDefinition::load(&folder.path().join("b.md")).unwrap_err().to_string();
        assert!(error.contains("b.md: documents: gone.md cannot be read"), "{error}");
    }

    #[test]
    fn missing_directory_is_named() {
        let error = AgentDefinition::load_dir(Path::new("no/such/folder")).unwrap_err();
        assert!(error.to_string().contains("no/such/folder"), "{error}");
    }
}
