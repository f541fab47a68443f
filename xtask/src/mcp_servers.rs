//! MCP servers from npm and PyPI behind `rockbot`, compared with the official Python client.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use clap::Args;
use serde::Deserialize;
use serde_json::{Value, json};

use crate::mcp_comparison::{ComparedServer, Comparison, Programs, compare};
use crate::node::Node;
use crate::{console, mcp_peers, process, python, rockbot, workspace};

const CATALOG: &str = include_str!("../mcp-servers.toml");

/// Time limit of a program that compares: the start of a server with its list and a call.
const COMPARE_LIMIT: Duration = Duration::from_secs(120);

#[derive(Debug, Args)]
pub(crate) struct Options {
    /// Names of servers in xtask/mcp-servers.toml; all of them by default
    names: Vec<String>,
    /// Program to compare; built by default
    #[arg(long, value_name = "FILE")]
    rockbot: Option<PathBuf>,
    /// Print JSON instead of a table
    #[arg(long)]
    json: bool,
    /// Number of servers that are installed and compared at a time
    #[arg(long, default_value_t = 2, value_parser = clap::value_parser!(u8).range(1..=8))]
    jobs: u8,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Catalog {
    server: Vec<Entry>,
}

/// A server of the catalog, see its comment.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Entry {
    name: String,
    package: String,
    #[serde(default)]
    with: Vec<String>,
    program: Option<String>,
    #[serde(default)]
    args: Vec<String>,
    #[serde(default)]
    env: BTreeMap<String, String>,
    tool: String,
    #[serde(default = "no_arguments")]
    arguments: Value,
    #[serde(default)]
    quick: bool,
}

fn no_arguments() -> Value {
    json!({})
}

fn catalog() -> Result<Vec<Entry>> {
    let catalog: Catalog = toml::from_str(CATALOG).context("xtask/mcp-servers.toml")?;
    Ok(catalog.server)
}

/// Installs and compares servers, and prints a table.
pub(crate) fn run(options: &Options) -> Result<()> {
    let mut entries = catalog()?;
    let unknown = |name: &&String| !entries.iter().any(|entry| entry.name == **name);
    if let Some(name) = options.names.iter().find(unknown) {
        bail!("xtask/mcp-servers.toml has no server {name}");
    }
    entries.retain(|entry| options.names.is_empty() || options.names.contains(&entry.name));
    let reference = mcp_peers::install_python_client(true)?;
    let rockbot = match &options.rockbot {
        Some(program) => std::path::absolute(program)?,
        None => rockbot::build()?,
    };
    let programs = Programs { rockbot: &rockbot, reference: &reference };
    let node = Node::find(true)?;
    let results = in_parallel(usize::from(options.jobs), &entries, |entry| {
        let server = install(entry, &node, true)?;
        console::progress(&entry.name, "comparing");
        compare(programs, &server, COMPARE_LIMIT)
    })?;
    let rows: Vec<_> = entries.iter().zip(results).collect();
    let shown = if options.json { to_json(&rows) } else { table(&rows) };
    console::result(&shown)?;
    let failed: Vec<_> = rows
        .iter()
        .filter(|(_, result)| result.as_ref().map_or(true, |one| !one.differences().is_empty()))
        .map(|(entry, _)| entry.name.as_str())
        .collect();
    if !failed.is_empty() {
        bail!("{} of {} servers differ: {}", failed.len(), rows.len(), failed.join(", "));
    }
    console::progress("mcp-servers", format_args!("{} servers are equal", rows.len()));
    Ok(())
}

/// Installs the quick servers, and writes them to `file` for the tests.
pub(crate) fn install_quick(file: &Path, node: &Node, may_install: bool) -> Result<()> {
    let mut entries = catalog()?;
    entries.retain(|entry| entry.quick);
    let servers = in_parallel(2, &entries, |entry| install(entry, node, may_install))?;
    let servers: Vec<_> = servers.into_iter().collect::<Result<_>>()?;
    // Replaced atomically, because a concurrent run may read it.
    let new = file.with_extension("new");
    fs::write(&new, serde_json::to_vec(&servers)?)
        .and_then(|()| fs::rename(&new, file))
        .with_context(|| format!("cannot write {}", file.display()))
}

/// Processes entries with `jobs` threads. Returns the results in the order of the entries, or the interrupt.
fn in_parallel<T: Send>(
    jobs: usize,
    entries: &[Entry],
    process: impl Fn(&Entry) -> Result<T> + Sync,
) -> Result<Vec<Result<T>>> {
    let next = AtomicUsize::new(0);
    let places: Vec<_> = entries.iter().map(|entry| (entry, Mutex::new(None))).collect();
    std::thread::scope(|scope| {
        for _ in 0..jobs {
            scope.spawn(|| {
                while let Some((entry, place)) = places.get(next.fetch_add(1, Ordering::Relaxed)) {
                    if process::check_interrupt().is_err() {
                        return;
                    }
                    let result = process(entry).with_context(|| entry.name.clone());
                    if let Err(error) = &result {
                        console::progress(&entry.name, format_args!("{error:#}"));
                    }
                    if let Ok(mut place) = place.lock() {
                        *place = Some(result);
                    }
                }
            });
        }
    });
    process::check_interrupt()?;
    let results = places.into_iter().map(|(_, place)| place.into_inner().ok().flatten());
    results.collect::<Option<_>>().context("a thread panicked")
}

/// Installs a server in a folder of its own, unless an earlier run did.
fn install(entry: &Entry, node: &Node, may_install: bool) -> Result<ComparedServer> {
    let servers = workspace::peers_folder()?.join("mcp-servers");
    fs::create_dir_all(&servers)?;
    let folder = servers.join(&entry.name);
    let (command, mut args) = match entry.package.split_once(':') {
        Some(("npm", package)) => {
            let packages = [&[package.to_owned()][..], &entry.with].concat();
            node.packages(&folder, &packages)?;
            let (name, _) = package.rsplit_once('@').context("the package has no version")?;
            let package = folder.join("node_modules").join(name);
            let script = script(&package, entry.program.as_deref())?;
            (node.executable()?, vec![script.display().to_string()])
        }
        Some(("pypi", package)) => {
            let packages: Vec<_> =
                std::iter::once(package).chain(entry.with.iter().map(String::as_str)).collect();
            python::environment(&folder, &packages, python::Dependencies::Install, may_install)?;
            let (name, _) = package.split_once("==").context("the package has no version")?;
            (python::program(&folder, entry.program.as_deref().unwrap_or(name)), Vec::new())
        }
        _ => bail!("{}: expected npm:NAME@VERSION or pypi:NAME==VERSION", entry.package),
    };
    args.extend(entry.args.iter().cloned());
    Ok(ComparedServer {
        name: entry.name.clone(),
        package: entry.package.clone(),
        command,
        args,
        env: entry.env.clone(),
        tool: entry.tool.clone(),
        arguments: entry.arguments.clone(),
    })
}

/// Returns the script of a program of an npm package.
fn script(package: &Path, program: Option<&str>) -> Result<PathBuf> {
    let manifest = package.join("package.json");
    let read =
        fs::read(&manifest).with_context(|| format!("cannot read {}", manifest.display()))?;
    let manifest: Value = serde_json::from_slice(&read)?;
    let script = match (&manifest["bin"], program) {
        (Value::String(script), None) => script.as_str(),
        (Value::Object(scripts), Some(program)) => {
            scripts.get(program).and_then(Value::as_str).unwrap_or_default()
        }
        (Value::Object(scripts), None) if scripts.len() == 1 => {
            scripts.values().next().and_then(Value::as_str).unwrap_or_default()
        }
        _ => "",
    };
    if script.is_empty() {
        bail!("the package has no such program; its programs: {}", manifest["bin"]);
    }
    Ok(package.join(script))
}

type Row<'a> = (&'a Entry, Result<Comparison>);

/// Formats the table of docs/mcp.md.
fn table(rows: &[Row<'_>]) -> String {
    let mut table =
        "| package | tools | left out | revision | result of | |\n|---|---|---|---|---|---|\n"
            .to_owned();
    for (Entry { package, tool, .. }, result) in rows {
        let row = match result {
            Ok(one) => {
                let structured =
                    if one.rockbot.is_structured { ", structured content" } else { "" };
                let differences = match one.differences() {
                    differences if differences.is_empty() => "equal".to_owned(),
                    differences => differences.join("; "),
                };
                format!(
                    "{} | {} | {} | `{tool}`: {}{structured} | {}",
                    one.reference.tools.len(),
                    one.left_out.len(),
                    one.revision,
                    one.rockbot.kinds.join(", "),
                    cell(&differences)
                )
            }
            Err(error) => format!("– | – | – | `{tool}` | {}", cell(&format!("{error:#}"))),
        };
        table.push_str(&format!("| `{package}` | {row} |\n"));
    }
    table
}

fn cell(text: &str) -> String {
    text.replace('|', "\\|").replace('\n', " ")
}

fn to_json(rows: &[Row<'_>]) -> String {
    let rows = rows.iter().map(|(entry, result)| {
        let mut row = json!({"name": entry.name, "package": entry.package, "tool": entry.tool});
        match result {
            Ok(one) => {
                row["comparison"] = json!(one);
                row["differences"] = json!(one.differences());
            }
            Err(error) => row["error"] = json!(format!("{error:#}")),
        }
        row
    });
    format!("{:#}\n", rows.collect::<Value>())
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn catalog_has_thirty_servers_with_versions() {
        let entries = catalog().unwrap();
        let names: BTreeSet<_> = entries.iter().map(|entry| &entry.name).collect();
        assert_eq!(names.len(), entries.len(), "a name occurs twice");
        assert!(entries.len() >= 30);
        assert_eq!(entries.iter().filter(|entry| entry.quick).count(), 10);
        for Entry { package, with, .. } in &entries {
            let is_pinned = |package: &str| {
                let version = package.rsplit_once(['@', '=']).map(|(_, version)| version);
                version.is_some_and(|version| version.starts_with(|c: char| c.is_ascii_digit()))
            };
            assert!(is_pinned(package) && with.iter().all(|one| is_pinned(one)), "{package}");
        }
    }

    #[test]
    fn documented_table_has_every_server_with_its_version() {
        let page = fs::read_to_string(workspace::root().join("docs/mcp.md")).unwrap();
        for Entry { package, tool, .. } in catalog().unwrap() {
            let row = page.lines().find(|line| line.starts_with(&format!("| `{package}` |")));
            let row = row.unwrap_or_else(|| panic!("docs/mcp.md has no row for {package}"));
            assert!(row.contains(&format!("`{tool}`")) && row.ends_with("| equal |"), "{row}");
        }
    }

    #[test]
    fn results_keep_the_order_of_the_entries() {
        let entries = catalog().unwrap();
        let names = in_parallel(4, &entries, |entry| Ok(entry.name.clone())).unwrap();
        let names: Vec<_> = names.into_iter().map(Result::unwrap).collect();
        assert_eq!(names, entries.iter().map(|entry| entry.name.clone()).collect::<Vec<_>>());
    }
}
