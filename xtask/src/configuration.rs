//! `cargo xtask configuration`: `docs/configuration.md` says what the commented defaults say.
//!
//! The programs are configured by the keys of their `config.default.toml`, each with a comment over
//! it. The tables of the document are made of these; what is between them is written by hand.

mod defaults;
mod document;
mod keys;

use std::fs;
use std::path::PathBuf;

use anyhow::{Context, Result, ensure};

use self::defaults::Defaults;
use crate::{say, workspace};

/// The defaults in the folder of a program's crate.
const DEFAULTS: &str = "config.default.toml";

/// What to do about a difference.
#[derive(Debug, clap::Args)]
pub(crate) struct Options {
    /// Write the tables of the document anew
    #[arg(long)]
    accept: bool,
}

pub(crate) fn run(options: &Options) -> Result<()> {
    let programs = programs()?;
    let sections = keys::sections(&programs);
    let file = workspace::root().join("docs/configuration.md");
    let there = fs::read_to_string(&file).context("cannot read docs/configuration.md")?;
    let renewed = document::renew(&there, &sections).context("docs/configuration.md")?;
    if options.accept {
        fs::write(&file, renewed).context("cannot write docs/configuration.md")?;
    } else if let Some(line) = document::first_difference(&there, &renewed) {
        anyhow::bail!(
            "docs/configuration.md is not what the defaults say, from line {line} on: run \
             `cargo xtask configuration --accept`"
        );
    }
    let keys: usize = programs.iter().map(Defaults::keys).sum();
    say::progress(
        "configuration",
        format_args!("{keys} keys of {} programs are in the document", programs.len()),
    );
    Ok(())
}

/// Fails when the document is not what would be written.
pub(crate) fn check() -> Result<()> {
    run(&Options { accept: false })
}

/// The defaults of every program, in the order of their names.
fn programs() -> Result<Vec<Defaults>> {
    let crates = workspace::root().join("crates");
    let folders = crates.read_dir().with_context(|| format!("cannot read {}", crates.display()))?;
    let mut files: Vec<(String, PathBuf)> = Vec::new();
    for folder in folders {
        let folder = folder?;
        let file = folder.path().join(DEFAULTS);
        if file.exists() {
            files.push((program(&folder.file_name().to_string_lossy()), file));
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

/// What the program of a crate's folder is called.
fn program(folder: &str) -> String {
    if folder == "cli" { "rockbot".to_owned() } else { format!("rockbot-{folder}") }
}
