//! Where MCP clients keep their configuration files.

use std::{
    env,
    path::{Path, PathBuf},
};

/// Files in the user's home folder.
const IN_HOME: [&str; 6] = [
    ".claude.json",
    ".cursor/mcp.json",
    ".codeium/windsurf/mcp_config.json",
    ".gemini/settings.json",
    ".codex/config.toml",
    ".copilot/mcp-config.json",
];
/// Files in the folder of applications' configuration.
const IN_CONFIG: [&str; 5] = [
    "Claude/claude_desktop_config.json",
    "Code/User/mcp.json",
    "zed/settings.json",
    "opencode/opencode.json",
    "opencode/opencode.jsonc",
];
/// Files in the folder of a project.
const IN_PROJECT: [&str; 8] = [
    ".mcp.json",
    ".vscode/mcp.json",
    ".cursor/mcp.json",
    ".gemini/settings.json",
    ".codex/config.toml",
    ".zed/settings.json",
    "opencode.json",
    "opencode.jsonc",
];

/// Returns the existing files of MCP clients: those of the working directory first, then the user's.
pub(super) fn known_files() -> Vec<PathBuf> {
    let mut files: Vec<PathBuf> = env::current_dir()
        .map(|folder| IN_PROJECT.iter().map(|file| folder.join(file)).collect())
        .unwrap_or_default();
    if let Some(home) = env::var_os("HOME").map(PathBuf::from) {
        files.extend(IN_HOME.iter().map(|file| home.join(file)));
        let folders = config_folders(&home);
        files.extend(folders.iter().flat_map(|folder| IN_CONFIG.map(|file| folder.join(file))));
    }
    files.retain(|file| file.is_file());
    // The working directory may be the home folder.
    let mut seen = std::collections::BTreeSet::new();
    files.retain(|file| seen.insert(file.clone()));
    files
}

fn config_folders(home: &Path) -> Vec<PathBuf> {
    let linux = env::var_os("XDG_CONFIG_HOME").map_or_else(|| home.join(".config"), PathBuf::from);
    if cfg!(target_os = "macos") {
        vec![home.join("Library/Application Support"), linux]
    } else {
        vec![linux]
    }
}
