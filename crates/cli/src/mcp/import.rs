//! `rockbot mcp import`: copies servers from the configuration files of MCP clients into a servers file.

use std::{
    collections::BTreeSet,
    env, fs, io,
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
};

use rockbot_mcp_bridge::{ClientFile, ClientServer, ServersFile, ServersFileError};
use rockbot_service::exit;
use serde_json::{Map, Value, json};

use super::client_locations::known_files;
use crate::{
    failure::{Failure, OrExit, Outcome},
    print::{note, outln},
    render,
    settings::Settings,
};

/// The servers file of a user who configured none.
const DEFAULT_FILE: &str = "mcp.json";
const SERVERS: &str = "mcpServers";
/// Keys with servers in other forms of the file.
const OTHER_KEYS: [&str; 5] = ["Mcp", "mcp", "servers", "context_servers", "mcp_servers"];

/// The outcome for one server of a client.
struct Imported {
    name: String,
    from: PathBuf,
    state: State,
}

enum State {
    /// Added; these environment variables are not set here.
    Added(BTreeSet<String>),
    /// The servers file has the same entry already.
    Present,
    /// The servers file has another server of that name.
    NameTaken,
    Unusable(String),
}

impl State {
    fn name(&self) -> &'static str {
        match self {
            Self::Added(_) => "added",
            Self::Present => "present",
            Self::NameTaken => "nameTaken",
            Self::Unusable(_) => "unusable",
        }
    }

    fn description(&self) -> String {
        match self {
            Self::Added(unset) if unset.is_empty() => render::good("added"),
            Self::Added(unset) => {
                let unset: Vec<_> = unset.iter().map(|name| render::clean(name)).collect();
                format!("{}; set {}", render::good("added"), unset.join(", "))
            }
            Self::Present => render::dim("already there"),
            Self::NameTaken => "not added: the file has another server of that name".to_owned(),
            Self::Unusable(reason) => {
                format!("{}: {}", render::bad("not added"), render::clean(reason))
            }
        }
    }
}

pub(super) fn run(
    settings: &Settings,
    files: Vec<PathBuf>,
    into: Option<PathBuf>,
    dry_run: bool,
    json: bool,
) -> Outcome {
    let into = into.or_else(|| settings.mcp.config.clone()).unwrap_or_else(|| DEFAULT_FILE.into());
    let mut target = read_target(&into)?;
    let is_named = !files.is_empty();
    let files = if is_named { files } else { known_files() };
    let mut imported = Vec::new();
    let mut warnings = Vec::new();
    for file in files.iter().filter(|file| !is_same_file(file, &into)) {
        let shown = file.display();
        match ClientFile::read(file) {
            Ok(client) => {
                warnings.extend(client.warnings.iter().map(|text| format!("{shown}: {text}")));
                let servers = servers_of(&mut target)?;
                for ClientServer { name, entry } in client.servers {
                    let state = add(servers, &name, entry, file, &mut warnings);
                    imported.push(Imported { name, from: file.clone(), state });
                }
            }
            Err(error) if is_named => {
                return Err(Failure::usage(format!(
                    "{}: {error}",
                    render::clean(&shown.to_string())
                )));
            }
            // Settings of an editor need not have servers.
            Err(ServersFileError::UnknownForm) => {}
            Err(error) => warnings.push(format!("{shown}: {error}")),
        }
    }
    if imported.is_empty() {
        for warning in &warnings {
            note!("{} {}", render::bad("!"), render::clean(warning));
        }
        return Err(Failure::unavailable(
            "no MCP client with servers was found; name its configuration file: rockbot mcp import FILE",
        ));
    }
    let added = imported.iter().filter(|server| matches!(server.state, State::Added(_))).count();
    let is_written = added > 0 && !dry_run;
    if is_written {
        write(&into, &Value::Object(target)).or_exit(exit::IO)?;
    }
    if is_written && is_readable_by_others(&into) {
        warnings.push(format!(
            "{} can be read by other users, and keys and tokens may have been copied into it",
            into.display()
        ));
    }
    print_report(&imported, &warnings, &into, is_written, json).or_exit(exit::IO)?;
    Ok(exit::OK)
}

/// Reads the servers file that is added to; it may be absent.
fn read_target(path: &Path) -> Result<Map<String, Value>, Failure> {
    let shown = render::clean(&path.display().to_string());
    let text = match fs::read(path) {
        Ok(text) => text,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Map::new()),
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

fn servers_of(target: &mut Map<String, Value>) -> Result<&mut Map<String, Value>, Failure> {
    match target.entry(SERVERS).or_insert_with(|| json!({})) {
        Value::Object(servers) => Ok(servers),
        _ => Err(Failure::usage(format!("\"{SERVERS}\" of the servers file is not an object"))),
    }
}

/// Adds an entry to the servers, unless one has its name.
fn add(
    servers: &mut Map<String, Value>,
    name: &str,
    entry: Result<Map<String, Value>, String>,
    from: &Path,
    warnings: &mut Vec<String>,
) -> State {
    let entry = match entry {
        Ok(entry) => entry,
        Err(reason) => return State::Unusable(reason),
    };
    // Names that differ by case are one server.
    let existing = servers.iter().find(|(other, _)| other.eq_ignore_ascii_case(name));
    if let Some((_, existing)) = existing {
        let is_equal = existing.as_object() == Some(&entry);
        return if is_equal { State::Present } else { State::NameTaken };
    }
    match unset_variables(name, &entry, from, warnings) {
        Ok(unset) => {
            servers.insert(name.to_owned(), Value::Object(entry));
            State::Added(unset)
        }
        Err(reason) => State::Unusable(reason),
    }
}

/// Validates an entry and returns the variables in it that are not set.
fn unset_variables(
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

/// Returns whether both paths are one existing file.
fn is_same_file(left: &Path, right: &Path) -> bool {
    fs::canonicalize(left)
        .is_ok_and(|left| fs::canonicalize(right).is_ok_and(|right| left == right))
}

/// Returns whether users besides the owner can read the file.
fn is_readable_by_others(path: &Path) -> bool {
    fs::metadata(path).is_ok_and(|file| file.permissions().mode() & 0o077 != 0)
}

/// Replaces the servers file as a whole. A new file can only be read by its owner: entries may hold secrets.
fn write(path: &Path, root: &Value) -> anyhow::Result<()> {
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

fn print_report(
    imported: &[Imported],
    warnings: &[String],
    into: &Path,
    is_written: bool,
    json: bool,
) -> io::Result<()> {
    if json {
        let servers = imported.iter().map(|server| {
            let (reason, unset) = match &server.state {
                State::Unusable(reason) => (Some(reason), None),
                State::Added(unset) => (None, Some(unset)),
                State::Present | State::NameTaken => (None, None),
            };
            json!({
                "name": server.name, "from": server.from, "state": server.state.name(),
                "reason": reason, "unsetVariables": unset,
            })
        });
        let servers: Vec<_> = servers.collect();
        let report =
            json!({"into": into, "written": is_written, "servers": servers, "warnings": warnings});
        return outln!("{}", render::json(&report));
    }
    let rows = imported.iter().map(|server| {
        let from = render::clean(&server.from.display().to_string());
        vec![render::clean(&server.name), from, server.state.description()]
    });
    outln!("{}", render::table(&["server", "from", "result"], rows))?;
    for warning in warnings {
        note!("{} {}", render::dim("!"), render::clean(warning));
    }
    let into = render::clean(&into.display().to_string());
    if is_written {
        outln!("wrote {into}; check it with: rockbot mcp check {into}")
    } else {
        outln!("{into} is unchanged")
    }
}
