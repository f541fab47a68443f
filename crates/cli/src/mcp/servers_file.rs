//! The servers file that commands add entries to.

use std::{
    collections::BTreeSet,
    env, fs, io,
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
};

use rockbot_mcp_bridge::ServersFile;
use rockbot_service::watch::{FileError, read_bounded};
use serde_json::{Map, Value, json};

use crate::{failure::Failure, render, settings::Settings};

/// The servers file of a user who configured none.
const DEFAULT_FILE: &str = "mcp.json";
/// The largest servers file, in bytes.
const MAX_FILE_BYTES: u64 = 1024 * 1024;
const SERVERS: &str = "mcpServers";
/// Keys with servers in other forms of the file.
const OTHER_KEYS: [&str; 5] = ["Mcp", "mcp", "servers", "context_servers", "mcp_servers"];

/// Returns the servers file to add to: that of the option, or of the configuration.
pub(super) fn target(settings: &Settings, into: Option<PathBuf>) -> PathBuf {
    into.or_else(|| settings.mcp.config.clone()).unwrap_or_else(|| DEFAULT_FILE.into())
}

/// Locks the folder of a servers file until the result is dropped, so that no other command changes the file
/// between its reading and its replacement. Waits for such a command.
pub(super) fn lock(path: &Path) -> io::Result<fs::File> {
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
    let folder = fs::File::open(folder.unwrap_or(Path::new(".")))?;
    folder.lock()?;
    Ok(folder)
}

/// Reads the servers file that is added to; it may be absent.
pub(super) fn read_target(path: &Path) -> Result<Map<String, Value>, Failure> {
    let shown = render::path(path);
    let text = match read_bounded(path, MAX_FILE_BYTES) {
        Ok(text) => text,
        Err(FileError::Io(error)) if error.kind() == io::ErrorKind::NotFound => {
            return Ok(Map::new());
        }
        Err(error) => return Err(Failure::usage(format!("{shown}: {error}"))),
    };
    match serde_json::from_slice(&text) {
        Ok(Value::Object(root))
            if !root.contains_key(SERVERS)
                && OTHER_KEYS.iter().any(|key| root.contains_key(*key)) =>
        {
            Err(Failure::usage(format!(
                "the servers of {shown} are in another key than \"{SERVERS}\"; choose another file with --into"
            )))
        }
        Ok(Value::Object(root)) => Ok(root),
        Ok(_) => Err(Failure::usage(format!(
            "{shown} is not a JSON object; choose another file with --into"
        ))),
        Err(error) => Err(Failure::usage(format!(
            "{shown} is not plain JSON, and comments in it would be lost; choose another file with --into: {error}"
        ))),
    }
}

/// Returns the servers of the file, creating the key if necessary.
pub(super) fn servers_of(
    target: &mut Map<String, Value>,
) -> Result<&mut Map<String, Value>, Failure> {
    match target.entry(SERVERS).or_insert_with(|| json!({})) {
        Value::Object(servers) => Ok(servers),
        _ => Err(Failure::usage(format!("\"{SERVERS}\" of the servers file is not an object"))),
    }
}

/// Validates an entry and returns the variables in it that are not set.
pub(super) fn unset_variables(
    name: &str,
    entry: &Map<String, Value>,
    from: &Path,
    warnings: &mut Vec<String>,
) -> Result<BTreeSet<String>, String> {
    let unset = std::cell::RefCell::new(BTreeSet::new());
    let lookup = |variable: &str| {
        Some(env::var(variable).unwrap_or_else(|_| {
            unset.borrow_mut().insert(variable.to_owned());
            String::from("unset")
        }))
    };
    let text = json!({ SERVERS: { name: entry } }).to_string();
    let folder = from.parent().unwrap_or(Path::new(""));
    let file = ServersFile::parse_in(folder, text.as_bytes(), lookup)
        .map_err(|error| error.to_string())?;
    warnings.extend(file.warnings.iter().map(|text| format!("{}: {text}", from.display())));
    match file.errors.into_iter().next() {
        Some(error) => Err(error),
        None => Ok(unset.into_inner()),
    }
}

/// Returns whether users besides the owner can read the file.
pub(super) fn is_readable_by_others(path: &Path) -> bool {
    fs::metadata(path).is_ok_and(|file| file.permissions().mode() & 0o077 != 0)
}

/// Replaces the servers file as a whole. A new file can only be read by its owner: entries may hold secrets.
pub(super) fn write(path: &Path, root: &Value) -> anyhow::Result<()> {
    let path = fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
    let mut file = tempfile::NamedTempFile::new_in(folder.unwrap_or(Path::new(".")))?;
    serde_json::to_writer_pretty(&mut file, root)?;
    io::Write::write_all(&mut file, b"\n")?;
    file.as_file().sync_all()?;
    if let Ok(existing) = fs::metadata(&path) {
        fs::set_permissions(file.path(), existing.permissions())?;
    }
    file.persist(&path)?;
    Ok(())
}
