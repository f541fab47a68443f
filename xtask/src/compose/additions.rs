//! Additions of the checks to the fleet: settings in a file of `config`, a token of the gateway, and a package index with
//! one package.

use std::fs::{self, OpenOptions, Permissions};
use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};
use serde_json::json;

use super::folder;
use crate::rockbot::write_gateway_token;
use crate::{images, process, workspace};

/// The name that the file of the tool handler gives to it.
pub(super) const INSTANCE: &str = "named-by-its-file";
/// The largest result of the tool handler that is not stored: less than what `bash` prints at most.
const MAX_RESULT_BYTES: u32 = 65_536;
/// The package. Its module has the constant `VALUE`.
pub(super) const PACKAGE: &str = "rockbot-compose-check";
/// The URL of the index for the service `package-index`.
const INDEX_URL: &str = "http://package-upstream:8080";

/// The path of the gateway's tokens in its container.
pub(super) const TOKENS: &str = "/etc/rockbot/config/tokens.toml";

/// Writes the files and a token, which the program `rockbot` makes, into `target`, and returns the path of a Compose
/// file that adds them.
pub(super) fn write(target: &Path, rockbot: &Path) -> Result<PathBuf> {
    let config = target.join("config");
    fs::create_dir(&config)?;
    for entry in fs::read_dir(folder().join("config"))? {
        let entry = entry?;
        fs::copy(entry.path(), config.join(entry.file_name()))?;
    }
    let mut settings = OpenOptions::new().append(true).open(config.join("tool-handler.toml"))?;
    writeln!(settings, "[service]\ninstance = \"{INSTANCE}\"")?;
    writeln!(settings, "[handler]\nmax_result_bytes = {MAX_RESULT_BYTES}")?;
    let (tokens, _) = write_gateway_token(rockbot, target)?;
    let readable = config.join("tokens.toml");
    fs::copy(tokens, &readable)?;
    // Containers run as another user.
    fs::set_permissions(&readable, Permissions::from_mode(0o644))?;
    let index = target.join("index");
    fs::create_dir(&index)?;
    let mut python = Command::new("python3");
    python.arg(workspace::peer_file("wheel_index.py")).arg(&index).args([INDEX_URL, PACKAGE]);
    process::run(&mut python).context("cannot write the package index")?;
    let additions = json!({"services": {
        "tool-handler": {"volumes": [format!("{}:/etc/rockbot/config:ro", config.display())]},
        "gateway": {"volumes": [format!("{}:/etc/rockbot/config:ro", config.display())]},
        "package-upstream": {
            "image": format!("rockbot-package-index:{}", images::VERSION),
            "entrypoint": ["python", "-m", "http.server", "8080", "--directory", "/srv"],
            "volumes": [format!("{}:/srv:ro", index.display())],
            "networks": ["outside"],
        },
    }});
    let file = target.join("additions.yaml");
    fs::write(&file, additions.to_string())?;
    Ok(file)
}

/// Returns the lines of the environment file that select the index.
pub(super) fn environment() -> String {
    format!("PACKAGE_INDEX_URL={INDEX_URL}/simple\nPACKAGE_FILES_URL={INDEX_URL}/files/\n")
}
