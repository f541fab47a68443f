//! `rockbot man`: the manual pages.

use std::{fs, path::Path};

use anyhow::Context;
use clap::CommandFactory;
use rockbot_service::exit;

use crate::{
    arguments::Arguments,
    failure::{OrExit, Outcome},
    print::note,
    render,
};

/// Writes a page for the command and for each of its subcommands.
pub(crate) fn write(folder: &Path) -> Outcome {
    let shown = folder.display().to_string();
    fs::create_dir_all(folder)
        .with_context(|| format!("cannot create {shown}"))
        .or_exit(exit::IO)?;
    let written = clap_mangen::generate_to(Arguments::command(), folder);
    written.with_context(|| format!("cannot write to {shown}")).or_exit(exit::IO)?;
    note!("the manual pages are in {}; read the first with `man -l`", render::clean(&shown));
    Ok(exit::OK)
}
