//! Substitutes for images of registries, made from Debian packages under the same names.
//!
//! With them, the files of `docker` and `deploy/compose` work unchanged on machines without access to an
//! image registry, with older versions of the same programs.

use std::fs;
use std::process::Command;
use std::time::UNIX_EPOCH;

use anyhow::{Context, Result};

use super::engine::{Build, Engine};
use crate::{console, docker, process, workspace};

const DEBIAN: &str = "debian:bookworm-slim";
/// Label with the modification time of the archive of an image.
const LABEL: &str = "dev.rockbot.archive";

/// A substitute for an image.
pub(crate) struct StandIn {
    pub(crate) image: &'static str,
    /// Its file in `xtask/stand-ins`.
    file: &'static str,
    context: Source,
}

#[derive(Clone, Copy)]
enum Source {
    /// The folder `xtask/stand-ins`.
    Files,
    /// The Rust toolchain of the workspace.
    Toolchain,
}

/// Base image of the builder stage of docker/Dockerfile.
pub(crate) const FOR_SOURCES: [StandIn; 1] = [StandIn {
    image: "rust:1.95-slim-bookworm",
    file: "rust.Dockerfile",
    context: Source::Toolchain,
}];

/// Base image of the programs, in addition to Debian.
pub(crate) const FOR_PROGRAMS: [StandIn; 1] = [StandIn {
    image: "gcr.io/distroless/cc-debian12:nonroot",
    file: "distroless-cc.Dockerfile",
    context: Source::Files,
}];

/// Broker and database of deploy/compose and of the chart's trial.
pub(crate) const FOR_FLEETS: [StandIn; 2] = [
    StandIn { image: "rabbitmq:4-management", file: "rabbitmq.Dockerfile", context: Source::Files },
    StandIn { image: "postgres:17", file: "postgres.Dockerfile", context: Source::Files },
];

/// Further images of deploy/compose.
pub(crate) const FOR_COMPOSE: [StandIn; 3] = [
    StandIn { image: "python:3.12-slim", file: "python.Dockerfile", context: Source::Files },
    StandIn {
        image: "prom/prometheus:v3.5.0",
        file: "prometheus.Dockerfile",
        context: Source::Files,
    },
    StandIn {
        image: "jaegertracing/jaeger:2.21.0",
        file: "jaeger.Dockerfile",
        context: Source::Files,
    },
];

/// Builds substitutes in `engine`, after their Debian base image.
pub(crate) fn build(engine: &Engine, stand_ins: &[StandIn]) -> Result<()> {
    import_debian(engine)?;
    let folder = workspace::root().join("xtask/stand-ins");
    for stand_in in stand_ins {
        let context = match stand_in.context {
            Source::Files => folder.clone(),
            Source::Toolchain => {
                let mut rustc = Command::new("rustc");
                rustc.args(["--print", "sysroot"]).current_dir(workspace::root());
                process::stdout(&mut rustc).context("rustc is not installed")?.into()
            }
        };
        engine.build(&Build {
            file: folder.join(stand_in.file),
            context,
            target: None,
            tag: stand_in.image.to_owned(),
            arguments: Vec::new(),
        })?;
    }
    Ok(())
}

/// Imports the Debian archive, unless the engine has it: a second import is a different image, which
/// invalidates the build cache.
fn import_debian(engine: &Engine) -> Result<()> {
    console::progress("docker", "building a minimal Debian, unless it exists; this takes a minute");
    let archive = docker::debian_archive("docker-debian", "")?;
    let modified = fs::metadata(&archive)?.modified()?.duration_since(UNIX_EPOCH)?.as_millis();
    let modified = modified.to_string();
    if engine.label(DEBIAN, LABEL).is_some_and(|label| label == modified) {
        return Ok(());
    }
    let log = workspace::peers_folder()?.join("docker-import-debian.log");
    let label = format!("LABEL {LABEL}={modified}");
    let mut import = engine.docker();
    import.args(["import", "--change", &label, "--change", "CMD [\"bash\"]"]);
    process::run_quietly(import.arg(archive).arg(DEBIAN), &log)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn substitutes_match_the_images_of_the_files() {
        let file = |name: &str| fs::read_to_string(workspace::root().join(name)).unwrap();
        let dockerfile = file("docker/Dockerfile");
        for stand_in in FOR_SOURCES.into_iter().chain(FOR_PROGRAMS) {
            assert!(
                dockerfile.contains(&format!("FROM {} AS", stand_in.image)),
                "{}",
                stand_in.image
            );
        }
        assert!(dockerfile.contains(&format!("FROM {DEBIAN} AS")));
        let compose =
            file("deploy/compose/compose.yaml") + &file("deploy/compose/example-mcp/Dockerfile");
        for stand_in in FOR_FLEETS.into_iter().chain(FOR_COMPOSE) {
            let lines = ["image: ", "FROM "].map(|key| format!("{key}{}\n", stand_in.image));
            assert!(lines.iter().any(|line| compose.contains(line)), "{}", stand_in.image);
        }
    }
}
