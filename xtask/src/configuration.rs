//! `cargo xtask configuration`: generates the tables of `docs/configuration.md`.
//!
//! Each program has a `config.default.toml` with a comment above every key. The tables are generated
//! from these files; the text around them is written by hand.

mod defaults;
mod document;
mod keys;

use std::fs;
use std::path::PathBuf;

use anyhow::{Context, Result, ensure};

use self::defaults::Defaults;
use crate::{console, workspace};

/// The file of the defaults in the folder of a program's crate.
const DEFAULTS: &str = "config.default.toml";

/// Arguments of the task.
#[derive(Debug, clap::Args)]
pub(crate) struct Options {
    /// Update the tables of the document
    #[arg(long)]
    accept: bool,
}

pub(crate) fn run(options: &Options) -> Result<()> {
    let programs = programs()?;
    let sections = keys::sections(&programs);
    let file = workspace::root().join("docs/configuration.md");
    let current = fs::read_to_string(&file).context("cannot read docs/configuration.md")?;
    let updated = document::update(&current, &sections).context("docs/configuration.md")?;
    if options.accept {
        fs::write(&file, updated).context("cannot write docs/configuration.md")?;
    } else if let Some(line) = document::first_difference(&current, &updated) {
        anyhow::bail!(
            "docs/configuration.md is stale from line {line} on: run `cargo xtask configuration --accept`"
        );
    }
    let keys: usize = programs.iter().map(Defaults::keys).sum();
    console::progress(
        "configuration",
        format_args!("the document has {keys} keys of {} programs", programs.len()),
    );
    Ok(())
}

/// Returns the defaults of every program, sorted by name.
fn programs() -> Result<Vec<Defaults>> {
    let crates = workspace::root().join("crates");
    let folders = crates.read_dir().with_context(|| format!("cannot read {}", crates.display()))?;
    let mut files: Vec<(String, PathBuf)> = Vec::new();
    for folder in folders {
        let folder = folder?;
        let file = folder.path().join(DEFAULTS);
        if file.exists() {
            files.push((program_name(&folder.file_name().to_string_lossy()), file));
        }
    }
    ensure!(!files.is_empty(), "no crate has a {DEFAULTS}");
    files.sort();
    let read = |(program, file): (String, PathBuf)| {
        let text = fs::read_to_string(&file)?;
        Defaults::parse(program, &text)
            .with_context(|| file.strip_prefix(&crates).unwrap_or(&file).display().to_string())
    };
    files.into_iter().map(read).collect()
}

/// Returns the name of the program of a crate's folder.
fn program_name(folder: &str) -> String {
    if folder == "cli" { "rockbot".to_owned() } else { format!("rockbot-{folder}") }
}

#[cfg(test)]
mod tests {
    use super::{Options, run};

    #[test]
    fn document_has_the_current_defaults() {
        run(&Options { accept: false }).unwrap();
    }
}
