//! The command line of a container. Nothing that a model wrote is on it.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use rockbot_contracts::ToolCallId;
use sha2::{Digest, Sha256};

use super::options::{DockerOptions, Pull};

/// The label with the time at which a container has no right to exist any more, in seconds of Unix.
pub(super) const ENDS: &str = "rockbot.script.ends";
/// The label with the run that a container belongs to.
pub(super) const RUN: &str = "rockbot.script.run";
/// The first process of a container.
const WRAPPER: &str = include_str!("run.py");
/// User and group of a script: nobody.
const USER: &str = "65534:65534";

/// The name of the container of a call. The call's id has any length and any characters.
pub(super) fn name_of(id: &ToolCallId) -> String {
    let digest = Sha256::digest(id.as_str().as_bytes());
    let hex: String = digest.iter().take(16).map(|byte| format!("{byte:02x}")).collect();
    format!("rockbot-script-{hex}")
}

/// Seconds of Unix.
pub(super) fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or(Duration::ZERO).as_secs()
}

/// What is different from container to container.
#[derive(Debug)]
pub(super) struct Particulars<'a> {
    pub(super) name: &'a str,
    pub(super) run: &'a str,
    pub(super) ends: u64,
    pub(super) image: &'a str,
}

/// `docker run …` for a container that does nothing until it is told what.
pub(super) fn arguments(options: &DockerOptions, of: &Particulars<'_>) -> Vec<String> {
    let disk = options.disk_bytes;
    let pull = match options.pull {
        Pull::Never => "never",
        Pull::Missing => "missing",
    };
    let mut words: Vec<String> = ["run", "--rm", "--interactive", "--init=false"]
        .into_iter()
        .chain(["--read-only", "--no-healthcheck"])
        .map(str::to_owned)
        .collect();
    let mut give = |option: &str, value: &str| words.extend([option.to_owned(), value.to_owned()]);
    give("--name", of.name);
    give("--label", &format!("{RUN}={}", of.run));
    give("--label", &format!("{ENDS}={}", of.ends));
    give("--network", "none");
    give("--cap-drop", "ALL");
    give("--security-opt", "no-new-privileges");
    give("--user", USER);
    give("--pids-limit", &options.processes.to_string());
    give("--memory", &options.memory_bytes.to_string());
    // The same number: no swap.
    give("--memory-swap", &options.memory_bytes.to_string());
    give("--cpus", &options.cpus.to_string());
    give("--tmpfs", &format!("/tmp:rw,noexec,nosuid,nodev,size={disk}"));
    give("--shm-size", &disk.to_string());
    give("--workdir", "/tmp");
    give("--log-driver", "none");
    // The first process of a container ignores any other: a daemon that stops need not wait for it.
    give("--stop-signal", "KILL");
    give("--pull", pull);
    if let Some(runtime) = &options.runtime {
        give("--runtime", runtime);
    }
    give("--entrypoint", "python3");
    words.extend([of.image, "-I", "-S", "-c", WRAPPER].map(str::to_owned));
    words
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_container_is_closed_and_bounded() {
        let options = DockerOptions { runtime: Some("runsc".to_owned()), ..Default::default() };
        let of = Particulars { name: "a-name", run: "a-run", ends: 7, image: "an-image" };
        let words = arguments(&options, &of);
        let (wrapper, words) = words.split_last().unwrap();
        assert_eq!(wrapper, WRAPPER);
        assert_eq!(
            words.join(" "),
            "run --rm --interactive --init=false --read-only --no-healthcheck --name a-name \
             --label rockbot.script.run=a-run --label rockbot.script.ends=7 --network none \
             --cap-drop ALL --security-opt no-new-privileges --user 65534:65534 --pids-limit 64 \
             --memory 536870912 --memory-swap 536870912 --cpus 1 \
             --tmpfs /tmp:rw,noexec,nosuid,nodev,size=67108864 --shm-size 67108864 \
             --workdir /tmp --log-driver none --stop-signal KILL --pull never --runtime runsc \
             --entrypoint python3 an-image -I -S -c"
        );
    }

    #[test]
    fn any_id_is_a_name_and_another_id_another_name() {
        let name = |id: &str| name_of(&ToolCallId::new(id).unwrap());
        let long = "/🦀-".repeat(42);
        for id in [long.as_str(), "../../etc", "a b;c"] {
            let name = name(id);
            assert!(name.len() == 47 && name.is_ascii() && !name.contains('/'), "{name}");
        }
        assert_ne!(name("a"), name("b"));
    }
}
