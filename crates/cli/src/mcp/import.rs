//! `rockbot mcp import`: copies servers from the configuration files of MCP clients into a servers file.

use std::{
    collections::BTreeSet,
    fs, io,
    path::{Path, PathBuf},
};

use rockbot_mcp_bridge::{ClientFile, ClientServer, ServersFileError};
use rockbot_service::exit;
use serde_json::{Map, Value, json};

use super::{
    client_locations::known_files,
    servers_file::{
        self, is_readable_by_others, lock, read_target, servers_of, unset_variables, write,
    },
};
use crate::{
    failure::{Failure, OrExit, Outcome},
    print::{note, outln},
    render,
    settings::Settings,
};

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
    let into = servers_file::target(settings, into);
    let _lock = if dry_run { None } else { Some(lock(&into).or_exit(exit::IO)?) };
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

/// Returns whether both paths are one existing file.
fn is_same_file(left: &Path, right: &Path) -> bool {
    fs::canonicalize(left)
        .is_ok_and(|left| fs::canonicalize(right).is_ok_and(|right| left == right))
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
        let from = render::path(&server.from);
        vec![render::clean(&server.name), from, server.state.description()]
    });
    outln!("{}", render::table(&["server", "from", "result"], rows))?;
    for warning in warnings {
        note!("{} {}", render::dim("!"), render::clean(warning));
    }
    let into = render::path(into);
    if is_written {
        outln!("wrote {into}; check it with: rockbot mcp check {into}")
    } else {
        outln!("{into} is unchanged")
    }
}
