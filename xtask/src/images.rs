//! `cargo xtask images`: the images of all programs and their sizes.

pub(crate) mod engine;
pub(crate) mod stand_ins;

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Instant;

use anyhow::{Context, Result, ensure};
use tempfile::TempDir;

use crate::{console, process, workspace};
use engine::{Build, Engine};

/// The programs. Each is a target of docker/Dockerfile and has an image of the same name.
pub(crate) const PROGRAMS: [&str; 7] = [
    "rockbot",
    "rockbot-agent",
    "rockbot-gateway",
    "rockbot-mcp-bridge",
    "rockbot-openrouter-mcp",
    "rockbot-scripts-manager",
    "rockbot-tool-handler",
];
/// The version of the workspace, which this package shares.
pub(crate) const VERSION: &str = env!("CARGO_PKG_VERSION");

#[derive(Debug, clap::Args)]
pub(crate) struct Options {
    /// The Cargo profile of the build
    #[arg(long, value_name = "NAME", default_value = "release")]
    profile: String,
    /// Use the programs of this folder instead of compiling them. They must run on Debian 12
    #[arg(long, value_name = "DIR", conflicts_with = "profile")]
    programs: Option<PathBuf>,
    /// Write each image as an archive into this folder instead of printing sizes; with --stand-ins also
    /// the images of broker and database, which the chart's trial needs
    #[arg(long, value_name = "DIR")]
    save: Option<PathBuf>,
    /// Build in a private Docker daemon on base images made from Debian packages, without an image
    /// registry; needs root and Linux. The daemon keeps images and caches for the next run
    #[arg(long)]
    stand_ins: bool,
}

pub(crate) fn run(options: &Options) -> Result<()> {
    let engine = if options.stand_ins {
        let engine = Engine::private()?;
        stand_ins::build(&engine, &stand_ins::FOR_SOURCES)?;
        stand_ins::build(&engine, &stand_ins::FOR_PROGRAMS)?;
        engine
    } else {
        Engine::system()?
    };
    let source = match &options.programs {
        Some(folder) => Source::Programs(folder),
        None => Source::Sources { profile: &options.profile },
    };
    build(&engine, &source)?;
    if let Some(folder) = &options.save {
        let mut images = PROGRAMS.map(|program| (program.to_owned(), image_name(program))).to_vec();
        if options.stand_ins {
            stand_ins::build(&engine, &stand_ins::FOR_FLEETS)?;
            let servers = stand_ins::FOR_FLEETS.map(|stand_in| stand_in.image.to_owned());
            images.extend(servers.map(|image| (image.replace(':', "-"), image)));
        }
        return save(&engine, folder, &images);
    }
    print_sizes(&engine)
}

/// Returns the image name of a program.
pub(crate) fn image_name(program: &str) -> String {
    format!("ghcr.io/rockbot/{program}:{VERSION}")
}

/// Origin of the programs in the images.
pub(crate) enum Source<'a> {
    /// Compiled in the builder stage of docker/Dockerfile with a Cargo profile.
    Sources { profile: &'a str },
    /// A folder of compiled programs, which must run on Debian 12, the base of the images.
    Programs(&'a Path),
}

/// Builds all images. The first image takes most of the time, because it compiles every program.
pub(crate) fn build(engine: &Engine, source: &Source<'_>) -> Result<()> {
    let revision = process::stdout(
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
            tag: image_name(program),
            arguments: arguments.clone(),
        })?;
        let seconds = start.elapsed().as_secs_f64();
        console::progress("images", format_args!("{} in {seconds:.0} s", image_name(program)));
    }
    Ok(())
}

/// Copies programs without debug information into the layout of the `prebuilt` stage of
/// docker/Dockerfile.
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

/// Writes archives of `images`, pairs of file name and image.
fn save(engine: &Engine, folder: &PathBuf, images: &[(String, String)]) -> Result<()> {
    fs::create_dir_all(folder).with_context(|| format!("cannot create {}", folder.display()))?;
    for (name, image) in images {
        let archive = folder.join(format!("{name}.tar"));
        process::run(engine.docker().arg("save").arg("--output").arg(&archive).arg(image))?;
        console::progress("images", format_args!("saved {}", archive.display()));
    }
    Ok(())
}

fn print_sizes(engine: &Engine) -> Result<()> {
    console::heading("sizes");
    console::progress("images", format_args!("{:<26} {:>9} {:>9}", "image", "size", "as .gz"));
    for program in PROGRAMS {
        let size = process::stdout(
            engine
                .docker()
                .args(["image", "inspect", "--format", "{{.Size}}"])
                .arg(image_name(program)),
        );
        let size: u64 = size.context("an image is missing")?.parse()?;
        let compressed = compressed_size(engine, &image_name(program))?;
        let (size, compressed) = (megabytes(size), megabytes(compressed));
        console::progress("images", format_args!("{program:<26} {size:>9} {compressed:>9}"));
    }
    Ok(())
}

/// Returns the approximate download size. Registries compress each layer separately.
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
    fn every_program_has_a_target_and_is_released() {
        let (dockerfile, bake) = (file("docker/Dockerfile"), file("docker/bake.hcl"));
        for program in PROGRAMS {
            let has_target =
                dockerfile.lines().any(|line| line.ends_with(&format!(" AS {program}")));
            assert!(has_target, "{program} has no target");
            assert!(bake.contains(&format!("\"{program}\",")), "bake.hcl lacks {program}");
            let entry = format!("ENTRYPOINT [\"/usr/local/bin/{program}\"]");
            assert!(dockerfile.contains(&entry), "{program} is not the entry point of its image");
        }
    }

    #[test]
    fn images_use_the_toolchain_of_the_workspace() {
        let toolchain = file("rust-toolchain.toml");
        let channel = toolchain.lines().find_map(|line| line.strip_prefix("channel = ")).unwrap();
        let minor = channel.trim_matches('"').rsplit_once('.').unwrap().0.to_owned();
        let builder = format!("FROM rust:{minor}-slim-bookworm AS builder\n");
        assert!(file("docker/Dockerfile").contains(&builder), "not built with Rust {minor}");
    }

    #[test]
    fn default_versions_match_the_workspace() {
        assert!(file("docker/bake.hcl").contains(&format!("default = \"{VERSION}\"")));
        assert!(file("docker/Dockerfile").contains(&format!("ARG VERSION={VERSION}\n")));
        assert!(file("deploy/compose/.env.example").contains(&format!("_VERSION={VERSION}\n")));
        let compose = file("deploy/compose/compose.yaml");
        let images = compose.matches("ghcr.io/rockbot/").count();
        let defaults = compose.matches(&format!("${{ROCKBOT_VERSION:-{VERSION}}}")).count();
        // The example MCP server and the package index have local images.
        assert_eq!(defaults, images + 2);
    }

    #[test]
    fn sizes_are_printed_in_megabytes() {
        assert_eq!(megabytes(39_990_000), "39.9 MB");
        assert_eq!(megabytes(50_000), "0.0 MB");
    }
}
