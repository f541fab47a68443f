//! What the daemon of this machine can keep scripts from.

use serde::Deserialize;

use super::{cli::Docker, failure::DockerError};
use crate::runner::Isolation;

/// What is read of `docker info`.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
struct Info {
    server_version: String,
    server_errors: Option<Vec<String>>,
    security_options: Option<Vec<String>>,
    default_runtime: String,
    memory_limit: bool,
    pids_limit: bool,
    cpu_cfs_quota: bool,
}

/// Asks the daemon what keeps containers from everything else, with `runtime` or its own default.
pub(super) async fn isolation(
    docker: &Docker,
    runtime: Option<&str>,
) -> Result<Isolation, DockerError> {
    let answer = docker.answer(&["info", "--format", "{{json .}}"]).await?;
    let info: Info = serde_json::from_str(&answer)
        .map_err(|error| DockerError::Refused { said: error.to_string() })?;
    info.isolation(runtime)
}

impl Info {
    fn isolation(self, runtime: Option<&str>) -> Result<Isolation, DockerError> {
        // Some versions of the command line succeed without a daemon.
        if self.server_version.is_empty() {
            let said = self.server_errors.unwrap_or_default().join("; ");
            return Err(DockerError::NoDaemon { said });
        }
        let has_seccomp = self.security_options.iter().flatten().any(|option| {
            option.starts_with("name=seccomp") && !option.contains("profile=unconfined")
        });
        let missing = [
            (has_seccomp, "rare system calls"),
            (self.memory_limit, "the machine's memory"),
            (self.pids_limit, "its number of processes"),
            (self.cpu_cfs_quota, "its processors"),
        ];
        let missing = missing.into_iter().filter(|(is_kept, _)| !is_kept);
        Ok(Isolation {
            by: format!("docker ({})", runtime.unwrap_or(&self.default_runtime)),
            missing: missing.map(|(_, what)| what.to_owned()).collect(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn isolation(info: &str, runtime: Option<&str>) -> Result<String, DockerError> {
        let info: Info = serde_json::from_str(info).unwrap();
        info.isolation(runtime).map(|isolation| isolation.to_string())
    }

    #[test]
    fn what_a_daemon_can_not_keep_scripts_from_is_told() {
        let whole = r#"{"ServerVersion": "28.2", "DefaultRuntime": "runc", "MemoryLimit": true,
            "SecurityOptions": ["name=seccomp,profile=builtin"], "PidsLimit": true,
            "CpuCfsQuota": true, "Unknown": {}}"#;
        assert_eq!(isolation(whole, None).unwrap(), "docker (runc)");
        assert_eq!(isolation(whole, Some("runsc")).unwrap(), "docker (runsc)");
        let rootless = r#"{"ServerVersion": "20.10", "DefaultRuntime": "runc",
            "SecurityOptions": ["name=seccomp,profile=unconfined", "name=rootless"]}"#;
        assert_eq!(
            isolation(rootless, None).unwrap(),
            "docker (runc) (not kept from: rare system calls, the machine's memory, its number of \
             processes, its processors)"
        );
    }

    #[test]
    fn an_answer_without_a_daemon_is_none() {
        let error = isolation(r#"{"ServerVersion": "", "ServerErrors": ["gone"]}"#, None);
        assert!(matches!(error, Err(DockerError::NoDaemon { said }) if said == "gone"));
    }
}
