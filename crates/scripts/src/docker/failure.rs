//! What can be wrong with Docker: whole for the log, short for the model.

use std::{io, time::Duration};

use rockbot_tools::{Executed, ToolFailure};
use tracing::warn;

/// Why Docker does not do what it is asked to.
#[derive(Debug, thiserror::Error)]
pub enum DockerError {
    /// Its command line is not here.
    #[error("`{program}` can't be started: install Docker, or say where its command line is")]
    NoProgram {
        /// What was to be started.
        program: String,
        /// Why not.
        source: io::Error,
    },
    /// Its daemon does not answer.
    #[error("Docker's daemon is not there; start it, or set DOCKER_HOST: {said}")]
    NoDaemon {
        /// What the command line said.
        said: String,
    },
    /// The image is missing.
    #[error("the image {image} is missing: run `docker pull {image}` once")]
    NoImage {
        /// Which.
        image: String,
    },
    /// There is a container of this call.
    #[error("the call has a container already")]
    NameTaken,
    /// No answer.
    #[error("Docker did not answer within {} s", .after.as_secs())]
    Silent {
        /// How long it had.
        after: Duration,
    },
    /// Anything else.
    #[error("Docker refused: {said}")]
    Refused {
        /// What it said.
        said: String,
    },
}

impl DockerError {
    /// What the command line complained about.
    pub(super) fn told(complaint: &[u8]) -> Self {
        let said = String::from_utf8_lossy(complaint);
        let told = |words: &str| said.contains(words);
        // Without the hint at `--help`, which is for people who typed the command.
        let of_interest = |line: &&str| !line.trim().is_empty() && !line.contains("--help");
        let text = said.lines().filter(of_interest).collect::<Vec<_>>().join("; ");
        if told("Cannot connect to the Docker daemon") || told("error during connect") {
            return Self::NoDaemon { said: text };
        }
        for before in ["No such image: ", "Unable to find image '"] {
            if let Some((_, rest)) = said.split_once(before) {
                let image = rest.split(['\'', '\n']).next().unwrap_or_default().trim();
                return Self::NoImage { image: image.to_owned() };
            }
        }
        if told("is already in use by container") {
            return Self::NameTaken;
        }
        Self::Refused { said: text }
    }

    /// Logs it for the operator, and tells the model what concerns it.
    pub(super) fn into_failure(self, executed: Executed) -> ToolFailure {
        let cause = std::error::Error::source(&self).map(ToString::to_string);
        warn!(error = %self, cause, "a script could not be run with Docker");
        let message = match self {
            Self::NoProgram { .. } => "Docker is not installed here",
            Self::NoDaemon { .. } => "Docker is not running here",
            Self::NoImage { .. } => "the image for scripts is missing here (see `docker pull`)",
            Self::NameTaken => {
                return ToolFailure::OutcomeUnknown {
                    message: "the script of this call runs already".to_owned(),
                };
            }
            Self::Silent { .. } => "Docker does not answer here",
            Self::Refused { .. } => "Docker refused to run scripts here",
        };
        ToolFailure::Unavailable { message: message.to_owned(), executed }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(complaint: &str) -> String {
        DockerError::told(complaint.as_bytes()).to_string()
    }

    #[test]
    fn what_docker_says_becomes_what_to_do() {
        let help = "\n\nRun 'docker run --help' for more information\n";
        for (said, words) in [
            ("docker: Error response from daemon: No such image: x/y:1.", "`docker pull x/y:1.`"),
            ("Unable to find image 'x:1' locally\ndocker: …: denied.", "`docker pull x:1`"),
            ("docker: Cannot connect to the Docker daemon at unix:///x.", "set DOCKER_HOST"),
            ("error during connect: Get \"http://x\": EOF", "set DOCKER_HOST"),
            (
                "docker: Error response from daemon: Conflict. The container name \"/x\" is already \
                 in use by container \"y\".",
                "has a container already",
            ),
            ("docker: unknown or invalid runtime name: x", "refused: docker: unknown or invalid"),
        ] {
            let text = told(&format!("{said}{help}"));
            assert!(text.contains(words) && !text.contains("--help"), "{text}");
        }
    }

    #[test]
    fn a_model_is_told_no_details() {
        let error = DockerError::NoDaemon { said: "tcp://10.0.0.1:2375".to_owned() };
        let failure = error.into_failure(Executed::No);
        assert_eq!(failure.to_string(), "unavailable: Docker is not running here");
        assert!(failure.is_retryable());
        let taken = DockerError::NameTaken.into_failure(Executed::No);
        assert_eq!((taken.executed(), taken.is_retryable()), (Executed::Unknown, false));
    }
}
