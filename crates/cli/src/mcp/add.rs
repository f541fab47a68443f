//! `rockbot mcp add`: adds a server to the servers file.

use std::{
    io::IsTerminal,
    path::{Path, PathBuf},
};

use rockbot_mcp_bridge::registry::{NewEntry, Registry};
use rockbot_service::exit;
use serde_json::{Map, Value, json};

use super::servers_file::{
    self, is_readable_by_others, lock, read_target, servers_of, unset_variables, write,
};
use crate::{
    confirm::confirm,
    failure::{Failure, OrExit, Outcome},
    print::{note, outln},
    render,
    settings::Settings,
};

/// The server to add.
pub(super) struct Source {
    pub(super) server: String,
    pub(super) url: Option<String>,
    pub(super) command: Vec<String>,
    pub(super) name: Option<String>,
}

pub(super) struct Options {
    pub(super) into: Option<PathBuf>,
    pub(super) dry_run: bool,
    pub(super) yes: bool,
}

pub(super) async fn run(
    settings: &Settings,
    source: Source,
    options: Options,
    json: bool,
) -> Outcome {
    let Options { into, dry_run, yes } = options;
    let into = servers_file::target(settings, into);
    if !dry_run && !yes && !std::io::stdin().is_terminal() {
        return Err(Failure::usage(
            "the server file is written after confirmation, but standard input is no terminal; add \
             --yes, or --dry-run to see the entry",
        ));
    }
    read_target(&into)?;
    let new = new_entry(settings, source).await?;
    let NewEntry { name, entry } = &new;
    with_entry(&into, &new)?;
    let mut warnings = Vec::new();
    let unset = unset_variables(name, entry, &into, &mut warnings)
        .map_err(|problem| Failure::usage(render::clean(&problem)))?;
    if !json {
        show(&new)?;
    }
    let is_written = !dry_run && (yes || confirm(question(&into)).await?);
    if is_written {
        let _lock = lock(&into).or_exit(exit::IO)?;
        // Another command may have changed it since.
        write(&into, &with_entry(&into, &new)?).or_exit(exit::IO)?;
    }
    let unset: Vec<_> = unset.into_iter().collect();
    if json {
        let report = json!({"name": name, "entry": entry, "command": new.command_line(),
            "into": into, "written": is_written, "unsetVariables": unset});
        outln!("{}", render::json(&report))?;
        return Ok(exit::OK);
    }
    let into_text = render::path(&into);
    if !unset.is_empty() {
        outln!("set {} in the environment of the bridge", render::clean(&unset.join(", ")))?;
    }
    if !is_written {
        outln!("{into_text} is unchanged")?;
        return Ok(exit::OK);
    }
    if is_readable_by_others(&into) {
        note!("{} {into_text} can be read by other users", render::dim("!"));
    }
    outln!("wrote {into_text}; check it with: rockbot mcp check {into_text}")?;
    Ok(exit::OK)
}

/// Returns the content of the file with the new entry.
fn with_entry(into: &Path, new: &NewEntry) -> Result<Value, Failure> {
    let mut target = read_target(into)?;
    let servers = servers_of(&mut target)?;
    // Names that differ by case are one server.
    if servers.keys().any(|other| other.eq_ignore_ascii_case(&new.name)) {
        let (name, file) = (render::clean(&new.name), render::path(into));
        return Err(Failure::usage(format!(
            "{file} has a server {name} already; choose another name with --name"
        )));
    }
    servers.insert(new.name.clone(), Value::Object(new.entry.clone()));
    Ok(Value::Object(target))
}

fn question(into: &Path) -> String {
    format!("add it to {}? [y/N] ", render::path(into))
}

/// Prints the command or URL, and the entry as it is written.
fn show(new: &NewEntry) -> std::io::Result<()> {
    let entry = json!({ new.name.as_str(): new.entry });
    outln!("{}", render::clean(&new.command_line()))?;
    outln!("{}", render::dim(&render::clean(&render::json(&entry))))
}

/// Returns the entry for the server, from the registry if it is neither a URL nor a package.
async fn new_entry(settings: &Settings, source: Source) -> Result<NewEntry, Failure> {
    let Source { server, url, command, name } = source;
    let own_name = |entry: Map<String, Value>| NewEntry { name: server.clone(), entry };
    let mut new = match (url, command.as_slice()) {
        (Some(url), _) => NewEntry::from_url(&url).map(|new| own_name(new.entry)),
        (None, [program, arguments @ ..]) => {
            let mut entry = Map::new();
            entry.insert("command".to_owned(), json!(program));
            entry.insert("args".to_owned(), json!(arguments));
            Ok(own_name(entry))
        }
        (None, []) if server.contains("://") => NewEntry::from_url(&server),
        (None, []) if server.starts_with("npm:") || server.starts_with("pypi:") => {
            NewEntry::from_package(&server)
        }
        (None, []) => {
            let found = registry(settings)?.find(&server).await;
            NewEntry::from_server(&found.map_err(Failure::unavailable)?)
        }
    }
    .map_err(|problem| Failure::usage(render::clean(&problem)))?;
    if let Some(name) = name {
        new.name = name;
    }
    Ok(new)
}

/// Returns the configured registry.
pub(super) fn registry(settings: &Settings) -> Result<Registry, Failure> {
    let location = settings.mcp.registry.as_deref().ok_or_else(|| {
        Failure::usage("no registry is configured; set mcp.registry to a URL or a file")
    })?;
    Registry::new(location, settings.mcp.options().dial).map_err(Failure::usage)
}
