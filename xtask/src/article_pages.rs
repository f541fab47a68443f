//! Web pages with the text of their articles, from the source distribution of PyPI's `newspaper4k`.

use std::path::PathBuf;
use std::process::Command;

use anyhow::Result;

use crate::{console, install, process, python, workspace};

/// Variable with the folder of `html` and `txt`.
pub(crate) const VARIABLE: &str = "ROCKBOT_TEST_ARTICLE_PAGES";

/// The wheel has no pages.
const NAME: &str = "newspaper4k";
const VERSION: &str = "0.9.6";

/// Downloads the pages if needed, and returns their folder.
pub(crate) fn install(may_install: bool) -> Result<PathBuf> {
    let peers = workspace::peers_folder()?;
    let environment = peers.join("article-pages-pip");
    python::environment(&environment, &[], python::Dependencies::Skip, may_install)?;
    let folder = peers.join("article-pages");
    let package = format!("{NAME}=={VERSION}");
    install::once(&folder, &package, || {
        console::progress("article-pages", format_args!("downloading {package}"));
        let log = folder.with_extension("install.log");
        process::run_installer(
            Command::new(python::program(&environment, "python"))
                .args(["-m", "pip", "download", "--disable-pip-version-check", "--no-input"])
                .args(["--no-deps", "--no-binary", NAME, "--dest"])
                .arg(&folder)
                .arg(&package),
            &log,
        )?;
        let archive = folder.join(format!("{NAME}-{VERSION}.tar.gz"));
        process::run_quietly(
            Command::new("tar").arg("-xzf").arg(archive).arg("-C").arg(&folder),
            &log,
        )
    })?;
    Ok(folder.join(format!("{NAME}-{VERSION}")).join("tests").join("data"))
}
