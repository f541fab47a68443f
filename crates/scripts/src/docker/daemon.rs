//! The isolation that this machine's Docker daemon provides.

use serde::Deserialize;

use super::{command::DockerCli, error::DockerError};
use crate::runner::Isolation;

/// The relevant fields of `docker info`.
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

/// Requests the isolation of containers from the daemon, with `runtime` or its default runtime.
pub(super) async fn isolation(
    docker: &DockerCli,
    runtime: Option<&str>,
) -> Result<Isolation, DockerError> {
    let output = docker.output(&["info", "--format", "{{json .}}"]).await?;
    let info: Info = serde_json::from_str(&output)
        .map_err(|error| DockerError::Other { message: error.to_string() })?;
    info.isolation(runtime)
}

impl Info {
    fn isolation(self, runtime: Option<&str>) -> Result<Isolation, DockerError> {
        // Some versions of the command line succeed without a daemon.
        if self.server_version.is_empty() {
            let message = self.server_errors.unwrap_or_default().join("; ");
            return Err(DockerError::DaemonUnavailable { message });
        }
        let has_seccomp = self.security_options.iter().flatten().any(|option| {
            option.starts_with("name=seccomp") && !option.contains("profile=unconfined")
        });
        let resources = [
            (has_seccomp, "rare system calls"),
            (self.memory_limit, "the machine's memory"),
            (self.pids_limit, "the machine's process limit"),
            (self.cpu_cfs_quota, "the machine's processors"),
        ];
        let gaps = resources.into_iter().filter(|(is_isolated, _)| !is_isolated);
        Ok(Isolation {
            mechanism: format!("docker ({})", runtime.unwrap_or(&self.default_runtime)),
            gaps: gaps.map(|(_, resource)| resource.to_owned()).collect(),
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
    fn missing_daemon_features_are_gaps() {
        let full = r#"{"ServerVersion": "28.2", "DefaultRuntime": "runc", "MemoryLimit": true,
            "SecurityOptions": ["name=seccomp,profile=builtin"], "PidsLimit": true,
            "CpuCfsQuota": true, "Unknown": {}}"#;
        assert_eq!(isolation(full, None).unwrap(), "docker (runc)");
        assert_eq!(isolation(full, Some("runsc")).unwrap(), "docker (runsc)");
        let rootless = r#"{"ServerVersion": "20.10", "DefaultRuntime": "runc",
            "SecurityOptions": ["name=seccomp,profile=unconfined", "name=rootless"]}"#;
        assert_eq!(
            isolation(rootless, None).unwrap(),
            "docker (runc) (not isolated from: rare system calls, the machine's memory, the \
             machine's process limit, the machine's processors)"
        );
    }

    #[test]
    fn output_without_server_version_means_no_daemon() {
        let error = isolation(r#"{"ServerVersion": "", "ServerErrors": ["gone"]}"#, None);
        assert!(
            matches!(error, Err(DockerError::DaemonUnavailable { message }) if message == "gone")
        );
    }
}
