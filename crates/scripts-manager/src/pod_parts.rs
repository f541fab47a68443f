//! Parts that the pods of scripts and of package installations have in common.

use std::{collections::BTreeMap, time::Duration};

use k8s_openapi::{
    api::core::v1::{
        Capabilities, Container, DownwardAPIVolumeFile, DownwardAPIVolumeSource,
        EmptyDirVolumeSource, EnvVar, LocalObjectReference, ObjectFieldSelector,
        PersistentVolumeClaimVolumeSource, PodSecurityContext, PodSpec, ResourceRequirements,
        SeccompProfile, SecurityContext, Toleration, Volume, VolumeMount,
    },
    apimachinery::pkg::api::resource::Quantity,
};

use crate::{
    quantity::thousandths,
    section::{PodsSection, TolerationSection},
};

/// The name of the only container of a pod.
pub(crate) const CONTAINER: &str = "script";
/// The name of the volume with package sets.
pub(crate) const PACKAGES_VOLUME: &str = "packages";
/// The space on the node for a pod's log, beside its temporary folder.
const LOG_BYTES: u128 = 32 * 1024 * 1024;

/// Returns a pod's properties without containers, volumes and time limit: an unprivileged user, no service
/// account token, and the node that the configuration selects.
pub(crate) fn base_spec(user: i64, hostname: &str, section: &PodsSection) -> PodSpec {
    let secrets = section.image_pull_secrets.iter();
    let secrets: Vec<_> = secrets.map(|name| LocalObjectReference { name: name.clone() }).collect();
    PodSpec {
        automount_service_account_token: Some(false),
        enable_service_links: Some(false),
        hostname: Some(hostname.to_owned()),
        image_pull_secrets: (!secrets.is_empty()).then_some(secrets),
        node_selector: (!section.node_selector.is_empty()).then(|| section.node_selector.clone()),
        priority_class_name: section.priority_class.clone(),
        restart_policy: Some("Never".to_owned()),
        runtime_class_name: section.runtime_class.clone(),
        security_context: Some(PodSecurityContext {
            run_as_non_root: Some(true),
            run_as_user: Some(user),
            run_as_group: Some(user),
            fs_group: Some(user),
            seccomp_profile: Some(SeccompProfile {
                type_: "RuntimeDefault".to_owned(),
                ..SeccompProfile::default()
            }),
            ..PodSecurityContext::default()
        }),
        // The first process exits at once on SIGTERM.
        termination_grace_period_seconds: Some(1),
        tolerations: (!section.tolerations.is_empty())
            .then(|| section.tolerations.iter().map(toleration).collect()),
        ..PodSpec::default()
    }
}

/// Returns an unprivileged container that runs a Python program, without arguments, resources and mounts.
pub(crate) fn base_container(image: &str, program: &str, section: &PodsSection) -> Container {
    let command = ["python3", "-I", "-S", "-B", "-c", program];
    let variable = |name: &str| EnvVar {
        name: name.to_owned(),
        value: Some("/tmp".to_owned()),
        ..EnvVar::default()
    };
    Container {
        name: CONTAINER.to_owned(),
        image: Some(image.to_owned()),
        image_pull_policy: Some(section.image_pull_policy.clone()),
        command: Some(command.into_iter().map(ToOwned::to_owned).collect()),
        env: Some(vec![variable("HOME"), variable("TMPDIR")]),
        working_dir: Some("/tmp".to_owned()),
        security_context: Some(SecurityContext {
            allow_privilege_escalation: Some(false),
            capabilities: Some(Capabilities {
                drop: Some(vec!["ALL".to_owned()]),
                ..Capabilities::default()
            }),
            privileged: Some(false),
            read_only_root_filesystem: Some(true),
            run_as_non_root: Some(true),
            ..SecurityContext::default()
        }),
        ..Container::default()
    }
}

/// Requests equal limits, so that scripts do not compete for resources.
pub(crate) fn resources(memory: &str, section: &PodsSection) -> ResourceRequirements {
    let on_disk =
        if section.disk_in_memory { 0 } else { thousandths(&section.disk).unwrap_or(0) / 1000 };
    let amounts = BTreeMap::from([
        ("cpu".to_owned(), Quantity(section.cpu.clone())),
        ("memory".to_owned(), Quantity(memory.to_owned())),
        ("ephemeral-storage".to_owned(), Quantity((on_disk + LOG_BYTES).to_string())),
    ]);
    ResourceRequirements {
        requests: Some(amounts.clone()),
        limits: Some(amounts),
        ..ResourceRequirements::default()
    }
}

/// Returns the mount of a volume.
pub(crate) fn mount(name: &str, path: &str, read_only: bool) -> VolumeMount {
    VolumeMount {
        name: name.to_owned(),
        mount_path: path.to_owned(),
        read_only: Some(read_only),
        ..VolumeMount::default()
    }
}

/// Returns the volume `rockbot`, whose files have the content of annotations.
pub(crate) fn annotation_volume<'a>(files: impl IntoIterator<Item = (&'a str, &'a str)>) -> Volume {
    let file = |(path, annotation): (&str, &str)| DownwardAPIVolumeFile {
        path: path.to_owned(),
        field_ref: Some(ObjectFieldSelector {
            field_path: format!("metadata.annotations['{annotation}']"),
            ..ObjectFieldSelector::default()
        }),
        ..DownwardAPIVolumeFile::default()
    };
    Volume {
        name: "rockbot".to_owned(),
        downward_api: Some(DownwardAPIVolumeSource {
            items: Some(files.into_iter().map(file).collect()),
            ..DownwardAPIVolumeSource::default()
        }),
        ..Volume::default()
    }
}

/// Returns the volume of a claim with package sets.
pub(crate) fn claim_volume(claim: &str, read_only: bool) -> Volume {
    Volume {
        name: PACKAGES_VOLUME.to_owned(),
        persistent_volume_claim: Some(PersistentVolumeClaimVolumeSource {
            claim_name: claim.to_owned(),
            // A volume that is mounted read-only keeps its owner.
            read_only: Some(read_only),
        }),
        ..Volume::default()
    }
}

/// Returns the volume `tmp`.
pub(crate) fn tmp_volume(section: &PodsSection) -> Volume {
    Volume {
        name: "tmp".to_owned(),
        empty_dir: Some(EmptyDirVolumeSource {
            medium: section.disk_in_memory.then(|| "Memory".to_owned()),
            size_limit: Some(Quantity(section.disk.clone())),
        }),
        ..Volume::default()
    }
}

fn toleration(section: &TolerationSection) -> Toleration {
    let operator = Some(section.operator().to_owned());
    let TolerationSection { key, value, effect, .. } = section.clone();
    Toleration { key, operator, value, effect, ..Toleration::default() }
}

/// Rounds up to seconds.
pub(crate) fn whole_seconds(length: Duration) -> u64 {
    length.as_secs() + u64::from(length.subsec_nanos() > 0)
}

/// Returns bytes in hexadecimal digits.
pub(crate) fn hex(bytes: &[u8]) -> String {
    use std::fmt::Write;
    bytes.iter().fold(String::new(), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}
