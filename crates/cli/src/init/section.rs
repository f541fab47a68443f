//! The configuration file that `rockbot init` writes.

use std::path::{Path, PathBuf};

use secrecy::{ExposeSecret, SecretString};
use serde::Serialize;

use crate::{config_folder::CONFIG_FILE, private_file};

/// Name of the file with the key.
pub(super) const KEY_FILE: &str = "model-key";

const COMMENT: &str = "\
# Written by `rockbot init`. All keys are in docs/configuration.md; the environment overrides them.

";

/// A key, and the file that it is stored in.
pub(super) struct StoredKey {
    pub(super) file: PathBuf,
    pub(super) key: SecretString,
}

#[derive(Serialize)]
struct File<'a> {
    llm: Llm<'a>,
}

#[derive(Serialize)]
struct Llm<'a> {
    base_url: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    model: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    api_key_file: Option<&'a Path>,
}

/// Writes the file, and that of the key first. Only their owner can read them.
///
/// # Errors
/// When they cannot be written.
pub(super) fn write(
    folder: &Path,
    base_url: &str,
    model: Option<&str>,
    key: Option<&StoredKey>,
) -> anyhow::Result<()> {
    private_file::create_folder(folder)?;
    if let Some(StoredKey { file, key }) = key {
        private_file::replace(file, key.expose_secret())?;
    }
    let api_key_file = key.map(|key| key.file.as_path());
    let text = toml::to_string(&File { llm: Llm { base_url, model, api_key_file } })?;
    private_file::replace(&folder.join(CONFIG_FILE), &format!("{COMMENT}{text}"))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn files_are_private_and_the_key_is_not_in_the_configuration() {
        let folder = tempfile::tempdir().unwrap();
        let key =
            StoredKey { file: folder.path().join(KEY_FILE), key: SecretString::from("sk-hunter2") };
        write(folder.path(), "http://127.0.0.1:1/v1", Some("a \"b\""), Some(&key)).unwrap();
        let text = std::fs::read_to_string(folder.path().join(CONFIG_FILE)).unwrap();
        assert!(!text.contains("hunter2"), "{text}");
        let read: toml::Table = toml::from_str(&text).unwrap();
        assert_eq!(read["llm"]["model"].as_str(), Some("a \"b\""));
        for name in [CONFIG_FILE, KEY_FILE] {
            let mode = folder.path().join(name).metadata().unwrap().permissions().mode();
            assert_eq!(mode & 0o777, 0o600, "{name}");
        }
    }
}
