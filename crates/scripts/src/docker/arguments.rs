//! Arguments of `docker run`. None of them comes from a model.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use rockbot_contracts::ToolCallId;
use sha2::{Digest, Sha256};

use super::options::{DockerOptions, Pull};

/// The label with the time after which a container may be removed, in Unix seconds.
pub(super) const EXPIRES_LABEL: &str = "rockbot.script.expires";
/// The label with the run that a container belongs to.
pub(super) const RUN_LABEL: &str = "rockbot.script.run";
/// The first process of a container.
const WRAPPER: &str = include_str!("run.py");
/// User and group of a script: the overflow ids, which own nothing.
const USER: &str = "65534:65534";

/// Returns the name of a call's container. A hash, because call ids have any length and characters.
pub(super) fn container_name(id: &ToolCallId) -> String {
    let digest = Sha256::digest(id.as_str().as_bytes());
    let hex: String = digest.iter().take(16).map(|byte| format!("{byte:02x}")).collect();
    format!("rockbot-script-{hex}")
}

/// Returns the current time in Unix seconds.
pub(super) fn unix_time() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or(Duration::ZERO).as_secs()
}

/// The properties that differ from container to container.
#[derive(Debug)]
pub(super) struct ContainerSpec<'a> {
    pub(super) name: &'a str,
    pub(super) run: &'a str,
    pub(super) expires: u64,
    pub(super) image: &'a str,
}

/// Returns the arguments of `docker run` for a container that waits for its script.
pub(super) fn run_arguments(options: &DockerOptions, spec: &ContainerSpec<'_>) -> Vec<String> {
    let disk = options.disk_bytes;
    let pull = match options.pull {
        Pull::Never => "never",
        Pull::Missing => "missing",
    };
    let mut arguments: Vec<String> = ["run", "--rm", "--interactive", "--init=false"]
        .into_iter()
        .chain(["--read-only", "--no-healthcheck"])
        .map(str::to_owned)
        .collect();
    let mut add =
        |option: &str, value: &str| arguments.extend([option.to_owned(), value.to_owned()]);
    add("--name", spec.name);
    add("--label", &format!("{RUN_LABEL}={}", spec.run));
    add("--label", &format!("{EXPIRES_LABEL}={}", spec.expires));
    add("--network", "none");
    add("--cap-drop", "ALL");
    add("--security-opt", "no-new-privileges");
    add("--user", USER);
    add("--pids-limit", &options.processes.to_string());
    add("--memory", &options.memory_bytes.to_string());
    // Equal to the memory limit: no swap.
    add("--memory-swap", &options.memory_bytes.to_string());
    add("--cpus", &options.cpus.to_string());
    add("--tmpfs", &format!("/tmp:rw,noexec,nosuid,nodev,size={disk}"));
    add("--shm-size", &disk.to_string());
    add("--workdir", "/tmp");
    add("--log-driver", "none");
    // The first process ignores other signals, which would delay a stopping daemon.
    add("--stop-signal", "KILL");
    add("--pull", pull);
    if let Some(runtime) = &options.runtime {
        add("--runtime", runtime);
    }
    add("--entrypoint", "python3");
    arguments.extend([spec.image, "-I", "-S", "-c", WRAPPER].map(str::to_owned));
    arguments
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn container_is_isolated_and_limited() {
        let options = DockerOptions { runtime: Some("runsc".to_owned()), ..Default::default() };
        let spec = ContainerSpec { name: "a-name", run: "a-run", expires: 7, image: "an-image" };
        let arguments = run_arguments(&options, &spec);
        let (wrapper, arguments) = arguments.split_last().unwrap();
        assert_eq!(wrapper, WRAPPER);
        assert_eq!(
            arguments.join(" "),
            "run --rm --interactive --init=false --read-only --no-healthcheck --name a-name \
              --label rockbot.script.run=a-run --label rockbot.script.expires=7 --network none \
             --cap-drop ALL --security-opt no-new-privileges --user 65534:65534 --pids-limit 64 \
             --memory 536870912 --memory-swap 536870912 --cpus 1 \
             --tmpfs /tmp:rw,noexec,nosuid,nodev,size=67108864 --shm-size 67108864 \
             --workdir /tmp --log-driver none --stop-signal KILL --pull never --runtime runsc \
             --entrypoint python3 an-image -I -S -c"
        );
    }

    #[test]
    fn call_ids_map_to_distinct_valid_names() {
        let name = |id: &str| container_name(&ToolCallId::new(id).unwrap());
        let long = "/🦀-".repeat(42);
        for id in [long.as_str(), "../../etc", "a b;c"] {
            let name = name(id);
            assert!(name.len() == 47 && name.is_ascii() && !name.contains('/'), "{name}");
        }
        assert_ne!(name("a"), name("b"));
    }
}
