//! `cargo xtask images`: the images of all programs, and how large they are.

pub(crate) mod engine;
pub(crate) mod stand_ins;

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Instant;

use anyhow::{Context, Result, ensure};
use tempfile::TempDir;

use crate::{process, say, workspace};
use engine::{Build, Engine};

/// The programs; each is a target of docker/Dockerfile and an image of the same name.
pub(crate) const PROGRAMS: [&str; 6] = [
    "rockbot",
    "rockbot-agent",
    "rockbot-mcp-bridge",
    "rockbot-openrouter-mcp",
    "rockbot-scripts-manager",
    "rockbot-tool-handler",
];
/// The version of the workspace, which this package shares.
pub(crate) const VERSION: &str = env!("CARGO_PKG_VERSION");

#[derive(Debug, clap::Args)]
pub(crate) struct Options {
    /// The profile of Cargo to build with
    #[arg(long, value_name = "NAME", default_value = "release")]
    profile: String,
    /// Write each image as an archive into this folder, and tell no sizes; with --stand-ins also those
    /// of the broker and the database, so that the chart can be tried
    #[arg(long, value_name = "DIR")]
    save: Option<PathBuf>,
    /// Build in a private daemon on base images that are made of Debian, where no registry of images
    /// can be reached; as root on Linux. What was built is kept for the next time, apart from the
    /// machine's own Docker
    #[arg(long)]
    stand_ins: bool,
}

pub(crate) fn run(options: &Options) -> Result<()> {
    let engine = if options.stand_ins {
        let engine = Engine::private()?;
        stand_ins::make(&engine, &stand_ins::FOR_SOURCES)?;
        stand_ins::make(&engine, &stand_ins::FOR_PROGRAMS)?;
        engine
    } else {
        Engine::of_machine()?
    };
    build(&engine, &Source::Sources { profile: &options.profile })?;
    if let Some(folder) = &options.save {
        let mut images = PROGRAMS.map(|program| (program.to_owned(), name_of(program))).to_vec();
        if options.stand_ins {
            stand_ins::make(&engine, &stand_ins::FOR_FLEETS)?;
            let beside = stand_ins::FOR_FLEETS.map(|stand_in| stand_in.image.to_owned());
            images.extend(beside.map(|image| (image.replace(':', "-"), image)));
        }
        return save(&engine, folder, &images);
    }
    tell_sizes(&engine)
}

/// The image of a program.
pub(crate) fn name_of(program: &str) -> String {
    format!("ghcr.io/rockbot/{program}:{VERSION}")
}

/// Where the programs of the images come from.
pub(crate) enum Source<'a> {
    /// Compiled in the builder of docker/Dockerfile, with a profile of Cargo.
    Sources { profile: &'a str },
    /// Compiled before, in this folder. They must run on Debian 12, on which the images are built.
    Programs(&'a Path),
}

/// Builds all of them. From sources, the first takes nearly all of the time: it compiles every program.
pub(crate) fn build(engine: &Engine, source: &Source<'_>) -> Result<()> {
    let revision = process::answer(
        Command::new("git").args(["rev-parse", "HEAD"]).current_dir(workspace::root()),
    );
    let revision = revision.unwrap_or_else(|| "unknown".to_owned());
    let mut arguments = vec![("VERSION", VERSION.to_owned()), ("REVISION", revision)];
    let prepared;
    let context = match source {
        Source::Sources { profile } => {
            arguments.push(("PROFILE", (*profile).to_owned()));
            workspace::root()
        }
        Source::Programs(folder) => {
            arguments.push(("BINARIES", "prebuilt".to_owned()));
            prepared = prebuilt(folder)?;
            prepared.path()
        }
    };
    for program in PROGRAMS {
        let start = Instant::now();
        engine.build(&Build {
            file: workspace::root().join("docker/Dockerfile"),
            context: context.to_owned(),
            target: Some(program),
            tag: name_of(program),
            arguments: arguments.clone(),
        })?;
        let seconds = start.elapsed().as_secs_f64();
        say::progress("images", format_args!("{} in {seconds:.0} s", name_of(program)));
    }
    Ok(())
}

/// Lays programs out as the stage `prebuilt` of docker/Dockerfile takes them, without debug information.
fn prebuilt(folder: &Path) -> Result<TempDir> {
    let prepared = tempfile::Builder::new().prefix("rockbot-programs-").tempdir()?;
    for name in ["bin", "state", "files"] {
        fs::create_dir(prepared.path().join(name))?;
    }
    let log = workspace::peers_folder()?.join("strip.log");
    for program in PROGRAMS {
        let mut strip = Command::new("strip");
        strip.arg("--strip-debug").arg("-o").arg(prepared.path().join("bin").join(program));
        process::run_quietly(strip.arg(folder.join(program)), &log)?;
    }
    Ok(prepared)
}

/// Writes `images`, each with the name of its file.
fn save(engine: &Engine, folder: &PathBuf, images: &[(String, String)]) -> Result<()> {
    fs::create_dir_all(folder).with_context(|| format!("cannot create {}", folder.display()))?;
    for (name, image) in images {
        let archive = folder.join(format!("{name}.tar"));
        process::run(engine.docker().arg("save").arg("--output").arg(&archive).arg(image))?;
        say::progress("images", format_args!("saved {}", archive.display()));
    }
    Ok(())
}

fn tell_sizes(engine: &Engine) -> Result<()> {
    say::heading("sizes");
    say::progress("images", format_args!("{:<26} {:>9} {:>9}", "image", "size", "as .gz"));
    for program in PROGRAMS {
        let size = process::answer(
            engine
                .docker()
                .args(["image", "inspect", "--format", "{{.Size}}"])
                .arg(name_of(program)),
        );
        let size: u64 = size.context("an image is missing")?.parse()?;
        let compressed = compressed_size(engine, &name_of(program))?;
        let (size, compressed) = (megabytes(size), megabytes(compressed));
        say::progress("images", format_args!("{program:<26} {size:>9} {compressed:>9}"));
    }
    Ok(())
}

/// What goes over the network, about: registries compress each layer by itself.
fn compressed_size(engine: &Engine, image: &str) -> Result<u64> {
    let mut saving = engine
        .docker()
        .args(["save", image])
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()
        .context("cannot start docker")?;
    let archive = saving.stdout.take().context("docker has no output")?;
    let mut gzip = Command::new("gzip")
        .arg("--stdout")
        .stdin(archive)
        .stdout(Stdio::piped())
        .spawn()
        .context("cannot start gzip")?;
    let mut compressed = gzip.stdout.take().context("gzip has no output")?;
    let bytes = io::copy(&mut compressed, &mut io::sink())?;
    ensure!(gzip.wait()?.success() && saving.wait()?.success(), "cannot save {image}");
    Ok(bytes)
}

fn megabytes(bytes: u64) -> String {
    let tenths = bytes / 100_000;
    format!("{}.{} MB", tenths / 10, tenths % 10)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(name: &str) -> String {
        fs::read_to_string(workspace::root().join(name)).unwrap()
    }

    #[test]
    fn every_program_has_a_target_and_is_in_the_list_of_releases() {
        let (dockerfile, bake) = (file("docker/Dockerfile"), file("docker/bake.hcl"));
        for program in PROGRAMS {
            let has_target =
                dockerfile.lines().any(|line| line.ends_with(&format!(" AS {program}")));
            assert!(has_target, "{program} has no target");
            assert!(bake.contains(&format!("\"{program}\",")), "bake.hcl lacks {program}");
            let entry = format!("ENTRYPOINT [\"/usr/local/bin/{program}\"]");
            assert!(dockerfile.contains(&entry), "{program} is not its image's entry point");
        }
    }

    #[test]
    fn images_are_built_with_the_toolchain_of_the_workspace() {
        let toolchain = file("rust-toolchain.toml");
        let channel = toolchain.lines().find_map(|line| line.strip_prefix("channel = ")).unwrap();
        let minor = channel.trim_matches('"').rsplit_once('.').unwrap().0.to_owned();
        let builder = format!("FROM rust:{minor}-slim-bookworm AS builder\n");
        assert!(file("docker/Dockerfile").contains(&builder), "not built with Rust {minor}");
    }

    #[test]
    fn defaults_name_the_version_of_the_workspace() {
        assert!(file("docker/bake.hcl").contains(&format!("default = \"{VERSION}\"")));
        assert!(file("docker/Dockerfile").contains(&format!("ARG VERSION={VERSION}\n")));
        assert!(file("deploy/compose/.env.example").contains(&format!("_VERSION={VERSION}\n")));
        let compose = file("deploy/compose/compose.yaml");
        let images = compose.matches("ghcr.io/rockbot/").count();
        let defaults = compose.matches(&format!("${{ROCKBOT_VERSION:-{VERSION}}}")).count();
        // And the example, which no registry has.
        assert_eq!(defaults, images + 1);
    }

    #[test]
    fn sizes_are_told_in_megabytes() {
        assert_eq!(megabytes(39_990_000), "39.9 MB");
        assert_eq!(megabytes(50_000), "0.0 MB");
    }
}
