//! Errors of Docker: in full for the log, short for the model.

use std::{io, time::Duration};

use rockbot_tools::{Executed, ToolFailure};
use tracing::warn;

/// An error of Docker, for the operator.
#[derive(Debug, thiserror::Error)]
pub enum DockerError {
    /// The command line client is missing.
    #[error(
        "`{program}` can't be started: {source}; install Docker or configure the path of its client"
    )]
    CliMissing {
        /// The program.
        program: String,
        /// The cause.
        source: io::Error,
    },
    /// The daemon is not running or not reachable.
    #[error("Docker daemon is unavailable: {message}; start it or set DOCKER_HOST")]
    DaemonUnavailable {
        /// The message of the client.
        message: String,
    },
    /// The image is missing.
    #[error("image {image} is missing; run `docker pull {image}` once")]
    ImageMissing {
        /// The image.
        image: String,
    },
    /// The call already has a container.
    #[error("the call already has a container; wait for its result")]
    NameInUse,
    /// A command took too long.
    #[error("Docker did not respond within {} s; check the daemon", .after.as_secs())]
    Timeout {
        /// The time limit.
        after: Duration,
    },
    /// Any other error.
    #[error("Docker failed: {message}")]
    Other {
        /// The message of the client.
        message: String,
    },
}

impl DockerError {
    /// Classifies the stderr of the command line client.
    pub(super) fn from_stderr(stderr: &[u8]) -> Self {
        let stderr = String::from_utf8_lossy(stderr);
        // Without the hint at `--help`, which is for people who typed the command.
        let is_relevant = |line: &&str| !line.trim().is_empty() && !line.contains("--help");
        let message = stderr.lines().filter(is_relevant).collect::<Vec<_>>().join("; ");
        if ["Cannot connect to the Docker daemon", "error during connect"]
            .iter()
            .any(|text| stderr.contains(text))
        {
            return Self::DaemonUnavailable { message };
        }
        for prefix in ["No such image: ", "Unable to find image '"] {
            if let Some((_, rest)) = stderr.split_once(prefix) {
                let image = rest.split(['\'', '\n']).next().unwrap_or_default().trim();
                return Self::ImageMissing { image: image.to_owned() };
            }
        }
        if stderr.contains("is already in use by container") {
            return Self::NameInUse;
        }
        Self::Other { message }
    }

    /// Logs the error for the operator and returns a failure without details for the model.
    pub(super) fn into_failure(self, executed: Executed) -> ToolFailure {
        let cause = std::error::Error::source(&self).map(ToString::to_string);
        warn!(error = %self, cause, "script could not run with Docker");
        let message = match self {
            Self::CliMissing { .. } => "Docker is not installed here",
            Self::DaemonUnavailable { .. } => "Docker is not running here",
            Self::ImageMissing { .. } => "the script image is missing here; run `docker pull`",
            Self::NameInUse => {
                return ToolFailure::OutcomeUnknown {
                    message: "the script of this call is already running".to_owned(),
                };
            }
            Self::Timeout { .. } => "Docker does not respond here",
            Self::Other { .. } => "Docker could not run the script",
        };
        ToolFailure::Unavailable { message: message.to_owned(), executed }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn classified(stderr: &str) -> String {
        DockerError::from_stderr(stderr.as_bytes()).to_string()
    }

    #[test]
    fn docker_errors_say_what_to_do() {
        let help = "\n\nRun 'docker run --help' for more information\n";
        for (stderr, advice) in [
            ("docker: Error response from daemon: No such image: x/y:1.", "`docker pull x/y:1.`"),
            ("Unable to find image 'x:1' locally\ndocker: …: denied.", "`docker pull x:1`"),
            ("docker: Cannot connect to the Docker daemon at unix:///x.", "set DOCKER_HOST"),
            ("error during connect: Get \"http://x\": EOF", "set DOCKER_HOST"),
            (
                "docker: Error response from daemon: Conflict. The container name \"/x\" is already \
                 in use by container \"y\".",
                "already has a container",
            ),
            ("docker: unknown or invalid runtime name: x", "failed: docker: unknown or invalid"),
        ] {
            let text = classified(&format!("{stderr}{help}"));
            assert!(text.contains(advice) && !text.contains("--help"), "{text}");
        }
    }

    #[test]
    fn failure_for_model_has_no_details() {
        let error = DockerError::DaemonUnavailable { message: "tcp://10.0.0.1:2375".to_owned() };
        let failure = error.into_failure(Executed::No);
        assert_eq!(failure.to_string(), "unavailable: Docker is not running here");
        assert!(failure.is_retryable());
        let duplicate = DockerError::NameInUse.into_failure(Executed::No);
        assert_eq!((duplicate.executed(), duplicate.is_retryable()), (Executed::Unknown, false));
    }
}
