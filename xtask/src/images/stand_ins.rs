//! Images made of Debian that stand in for those of registries, under the same names.
//!
//! They are for machines that reach no registry of images: there the files of `docker` and
//! `deploy/compose` are built and run as they are, on older versions of the same programs.

use std::fs;
use std::process::Command;
use std::time::UNIX_EPOCH;

use anyhow::{Context, Result};

use super::engine::{Build, Engine};
use crate::{docker, process, say, workspace};

const DEBIAN: &str = "debian:bookworm-slim";
/// Says of which archive an image was made.
const LABEL: &str = "dev.rockbot.archive";

/// An image to stand in for.
pub(crate) struct StandIn {
    pub(crate) image: &'static str,
    /// Its file in `xtask/stand-ins`.
    file: &'static str,
    context: Source,
}

#[derive(Clone, Copy)]
enum Source {
    /// The folder of the files.
    Files,
    /// The toolchain that runs this chore.
    Toolchain,
}

/// Where docker/Dockerfile compiles the programs.
pub(crate) const FOR_SOURCES: [StandIn; 1] = [StandIn {
    image: "rust:1.95-slim-bookworm",
    file: "rust.Dockerfile",
    context: Source::Toolchain,
}];

/// What docker/Dockerfile puts the programs on, beside Debian itself.
pub(crate) const FOR_PROGRAMS: [StandIn; 1] = [StandIn {
    image: "gcr.io/distroless/cc-debian12:nonroot",
    file: "distroless-cc.Dockerfile",
    context: Source::Files,
}];

/// The broker and the database, which deploy/compose and a chart's trial run beside our own images.
pub(crate) const FOR_FLEETS: [StandIn; 2] = [
    StandIn { image: "rabbitmq:4-management", file: "rabbitmq.Dockerfile", context: Source::Files },
    StandIn { image: "postgres:17", file: "postgres.Dockerfile", context: Source::Files },
];

/// What deploy/compose runs in addition.
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

/// Makes them in `engine`, on Debian, which is made first.
pub(crate) fn make(engine: &Engine, stand_ins: &[StandIn]) -> Result<()> {
    make_debian(engine)?;
    let folder = workspace::root().join("xtask/stand-ins");
    for stand_in in stand_ins {
        let context = match stand_in.context {
            Source::Files => folder.clone(),
            Source::Toolchain => {
                let mut rustc = Command::new("rustc");
                rustc.args(["--print", "sysroot"]).current_dir(workspace::root());
                process::answer(&mut rustc).context("there is no rustc")?.into()
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

/// Brings Debian's archive into the engine, unless it is there: an image that is brought again is
/// another one to the builder, which would begin from the start.
fn make_debian(engine: &Engine) -> Result<()> {
    say::progress("docker", "making a small Debian, unless it is there; this takes a minute");
    let archive = docker::debian("docker-debian", "")?;
    let made = fs::metadata(&archive)?.modified()?.duration_since(UNIX_EPOCH)?.as_millis();
    let made = made.to_string();
    if engine.label_of(DEBIAN, LABEL).is_some_and(|label| label == made) {
        return Ok(());
    }
    let log = workspace::peers_folder()?.join("docker-import-debian.log");
    let label = format!("LABEL {LABEL}={made}");
    let mut import = engine.docker();
    import.args(["import", "--change", &label, "--change", "CMD [\"bash\"]"]);
    process::run_quietly(import.arg(archive).arg(DEBIAN), &log)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_stood_in_for_is_what_the_files_name() {
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
            let named = ["image: ", "FROM "].map(|before| format!("{before}{}\n", stand_in.image));
            assert!(named.iter().any(|line| compose.contains(line)), "{}", stand_in.image);
        }
    }
}
