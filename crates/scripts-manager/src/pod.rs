//! The pod of a script, built by a pure function.

use std::{collections::BTreeMap, time::Duration};

use k8s_openapi::{
    api::core::v1::{
        Capabilities, Container, DownwardAPIVolumeFile, DownwardAPIVolumeSource,
        EmptyDirVolumeSource, EnvVar, LocalObjectReference, ObjectFieldSelector, Pod, PodDNSConfig,
        PodSecurityContext, PodSpec, ResourceRequirements, SeccompProfile, SecurityContext,
        Toleration, Volume, VolumeMount,
    },
    apimachinery::pkg::api::resource::Quantity,
};
use kube::api::ObjectMeta;
use rockbot_contracts::{AgentName, ToolCallId};
use rockbot_scripts::{Script, runner::MAX_ENVIRONMENT_INPUT_BYTES};
use sha2::{Digest, Sha256};

use crate::{
    quantity::thousandths,
    section::{PodsSection, TolerationSection},
};

/// The name of the script's container.
pub(crate) const CONTAINER: &str = "script";
/// The label selector of the pods of all managers.
pub(crate) const MANAGED_BY_SELECTOR: &str = "app.kubernetes.io/managed-by=rockbot-scripts-manager";
/// The largest script with its input, in bytes. Kubernetes limits the annotations of an object to
/// 256 KiB, and other components add some.
pub const MAX_TEXT_BYTES: usize = 240 * 1024;

const LABELS: [(&str, &str); 3] = [
    ("app.kubernetes.io/name", "rockbot-script"),
    ("app.kubernetes.io/part-of", "rockbot"),
    ("app.kubernetes.io/managed-by", "rockbot-scripts-manager"),
];
/// The label that differs from pod to pod.
pub(crate) const CALL: &str = "rockbot.dev/call";
const REQUEST: &str = "rockbot.dev/request";
const SCRIPT: &str = "rockbot.dev/script";
const INPUT: &str = "rockbot.dev/input";
/// The wrapper, which reads script and input from `/rockbot`.
const RUN: &str = include_str!("run.py");
/// The space on the node for a pod's log, beside its temporary folder.
const LOG_BYTES: u128 = 32 * 1024 * 1024;
/// The time that a pod may exist beyond its start and its script's timeout, in seconds.
const END_SECONDS: u64 = 15;

/// An error when a script does not fit into a pod; for the model.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "the script and its input have {bytes} bytes; at most {MAX_TEXT_BYTES} are allowed together"
)]
pub struct ScriptTooLarge {
    /// Their size in bytes.
    pub bytes: usize,
}

/// Builds the pod that runs a call's script.
///
/// The name of the pod is derived from the call, so a request that is sent again finds the running pod.
/// No part of the request is in a name, a label, an argument or a variable: script and input are
/// annotations, which the pod sees as files.
///
/// # Errors
/// When script and input are too large for Kubernetes.
pub fn build_pod(
    script: &Script,
    call: &ToolCallId,
    agent: &AgentName,
    image: &str,
    section: &PodsSection,
) -> Result<Pod, ScriptTooLarge> {
    let bytes = script.code().len() + script.input().map_or(0, str::len);
    if bytes > MAX_TEXT_BYTES {
        return Err(ScriptTooLarge { bytes });
    }
    let identity = Sha256::digest(format!("{}\0{}", agent.as_str(), call.as_str()));
    let call = hex(&identity[..16]);
    let mut annotations = BTreeMap::from([
        (REQUEST.to_owned(), fingerprint(script)),
        (SCRIPT.to_owned(), script.code().to_owned()),
    ]);
    if let Some(input) = script.input() {
        annotations.insert(INPUT.to_owned(), input.to_owned());
    }
    Ok(Pod {
        metadata: ObjectMeta {
            name: Some(format!("script-{call}")),
            namespace: Some(section.namespace.clone()),
            labels: Some(labels(&call)),
            annotations: Some(annotations),
            ..ObjectMeta::default()
        },
        spec: Some(spec(script, user(&identity), image, section)),
        status: None,
    })
}

/// Returns the labels of a call's pod.
pub(crate) fn labels(call: &str) -> BTreeMap<String, String> {
    let labels = LABELS.into_iter().chain([(CALL, call)]);
    labels.map(|(key, value)| (key.to_owned(), value.to_owned())).collect()
}

/// Returns whether two pods run the same request.
pub(crate) fn runs_same_script(one: &Pod, other: &Pod) -> bool {
    let request = |pod: &Pod| pod.metadata.annotations.as_ref()?.get(REQUEST).cloned();
    request(one).is_some_and(|one| Some(one) == request(other))
}

fn spec(script: &Script, user: i64, image: &str, section: &PodsSection) -> PodSpec {
    let seconds = seconds(script) + whole_seconds(section.start_timeout) + END_SECONDS;
    let secrets = section.image_pull_secrets.iter();
    let secrets: Vec<_> = secrets.map(|name| LocalObjectReference { name: name.clone() }).collect();
    PodSpec {
        active_deadline_seconds: i64::try_from(seconds).ok(),
        automount_service_account_token: Some(false),
        containers: vec![container(script, image, section)],
        // No name server: a script has no network.
        dns_policy: Some("None".to_owned()),
        dns_config: Some(PodDNSConfig {
            nameservers: Some(vec!["127.0.0.1".to_owned()]),
            ..PodDNSConfig::default()
        }),
        enable_service_links: Some(false),
        hostname: Some("script".to_owned()),
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
        volumes: Some(vec![script_volume(script), tmp_volume(section)]),
        ..PodSpec::default()
    }
}

fn container(script: &Script, image: &str, section: &PodsSection) -> Container {
    let command = ["python3", "-I", "-S", "-B", "-c", RUN];
    let limits = [
        seconds(script).to_string(),
        section.max_output_bytes.to_string(),
        section.processes.to_string(),
        MAX_ENVIRONMENT_INPUT_BYTES.to_string(),
    ];
    let variable = |name: &str| EnvVar {
        name: name.to_owned(),
        value: Some("/tmp".to_owned()),
        ..EnvVar::default()
    };
    let mount = |name: &str, path: &str, read_only| VolumeMount {
        name: name.to_owned(),
        mount_path: path.to_owned(),
        read_only: Some(read_only),
        ..VolumeMount::default()
    };
    Container {
        name: CONTAINER.to_owned(),
        image: Some(image.to_owned()),
        image_pull_policy: Some(section.image_pull_policy.clone()),
        command: Some(command.into_iter().map(ToOwned::to_owned).collect()),
        args: Some(limits.into()),
        env: Some(vec![variable("HOME"), variable("TMPDIR")]),
        working_dir: Some("/tmp".to_owned()),
        resources: Some(resources(section)),
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
        volume_mounts: Some(vec![mount("rockbot", "/rockbot", true), mount("tmp", "/tmp", false)]),
        ..Container::default()
    }
}

/// Requests equal limits, so that scripts do not compete for resources.
fn resources(section: &PodsSection) -> ResourceRequirements {
    let on_disk =
        if section.disk_in_memory { 0 } else { thousandths(&section.disk).unwrap_or(0) / 1000 };
    let amounts = BTreeMap::from([
        ("cpu".to_owned(), Quantity(section.cpu.clone())),
        ("memory".to_owned(), Quantity(section.memory.clone())),
        ("ephemeral-storage".to_owned(), Quantity((on_disk + LOG_BYTES).to_string())),
    ]);
    ResourceRequirements {
        requests: Some(amounts.clone()),
        limits: Some(amounts),
        ..ResourceRequirements::default()
    }
}

/// Returns the script's timeout in whole seconds, rounded up.
fn seconds(script: &Script) -> u64 {
    whole_seconds(script.timeout())
}

/// Rounds up to seconds.
fn whole_seconds(length: Duration) -> u64 {
    length.as_secs() + u64::from(length.subsec_nanos() > 0)
}

/// The volume with script and input as files.
fn script_volume(script: &Script) -> Volume {
    let file = |path: &str, annotation: &str| DownwardAPIVolumeFile {
        path: path.to_owned(),
        field_ref: Some(ObjectFieldSelector {
            field_path: format!("metadata.annotations['{annotation}']"),
            ..ObjectFieldSelector::default()
        }),
        ..DownwardAPIVolumeFile::default()
    };
    let mut items = vec![file("script.py", SCRIPT)];
    items.extend(script.input().map(|_| file("input", INPUT)));
    Volume {
        name: "rockbot".to_owned(),
        downward_api: Some(DownwardAPIVolumeSource {
            items: Some(items),
            ..DownwardAPIVolumeSource::default()
        }),
        ..Volume::default()
    }
}

fn tmp_volume(section: &PodsSection) -> Volume {
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

/// Returns a user id for this pod alone: the kernel counts processes per user and node.
fn user(identity: &[u8]) -> i64 {
    let number = identity[16..20].iter().fold(0_i64, |sum, byte| sum << 8 | i64::from(*byte));
    1_000_000_000 + number % 1_000_000_000
}

/// Returns a digest of the request.
fn fingerprint(script: &Script) -> String {
    let mut digest = Sha256::new();
    let packages = script.packages().to_string();
    let timeout = script.timeout().as_millis().to_string();
    for part in [Some(script.code()), script.input(), Some(&timeout), Some(&packages)] {
        digest.update(part.map_or(u64::MAX, |part| part.len() as u64).to_be_bytes());
        digest.update(part.unwrap_or_default());
    }
    hex(&digest.finalize())
}

fn hex(bytes: &[u8]) -> String {
    use std::fmt::Write;
    bytes.iter().fold(String::new(), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}

#[cfg(test)]
mod tests {
    use rockbot_scripts::Requirements;

    use super::*;
    use rockbot_scripts::PreparedImage;

    fn made(script: &Script, call: &str, section: &PodsSection) -> Pod {
        let call = ToolCallId::new(call).unwrap();
        let agent = AgentName::new("agent").unwrap();
        build_pod(script, &call, &agent, &section.image, section).unwrap()
    }

    /// Returns the pod as JSON without the text of `run.py`.
    fn manifest(pod: &Pod) -> String {
        let mut pod = pod.clone();
        let command = &mut pod.spec.as_mut().unwrap().containers[0].command;
        let text = command.as_mut().unwrap().last_mut().unwrap();
        assert_eq!(text, RUN);
        "<run.py>".clone_into(text);
        serde_json::to_string_pretty(&pod).unwrap()
    }

    #[test]
    fn minimal_pod_matches_snapshot() {
        let script = Script::new("print(1)").unwrap();
        insta::assert_snapshot!(manifest(&made(&script, "call-1", &PodsSection::default())));
    }

    #[test]
    fn full_pod_matches_snapshot() {
        let packages = Requirements::parse(&["numpy"]).unwrap();
        let script = Script::new("print(2)")
            .and_then(|script| script.with_input("{\"é\": 1}\n"))
            .and_then(|script| script.with_timeout(Duration::from_secs(300)))
            .unwrap()
            .with_packages(packages);
        let section = PodsSection {
            namespace: "elsewhere".to_owned(),
            image: "registry.example/science:1".to_owned(),
            images: vec![PreparedImage { image: "x".to_owned(), packages: Vec::new() }],
            image_pull_policy: "Always".to_owned(),
            image_pull_secrets: vec!["registry".to_owned()],
            cpu: "2".to_owned(),
            memory: "1Gi".to_owned(),
            disk: "100Mi".to_owned(),
            disk_in_memory: false,
            processes: 64,
            max_output_bytes: 2048,
            start_timeout: Duration::from_secs(10),
            runtime_class: Some("gvisor".to_owned()),
            priority_class: Some("scripts".to_owned()),
            node_selector: [("pool".to_owned(), "scripts".to_owned())].into(),
            tolerations: vec![
                TolerationSection { key: Some("a".to_owned()), ..TolerationSection::default() },
                TolerationSection {
                    key: Some("b".to_owned()),
                    value: Some("c".to_owned()),
                    effect: Some("NoSchedule".to_owned()),
                    ..TolerationSection::default()
                },
            ],
            probe_network: false,
        };
        insta::assert_snapshot!(manifest(&made(&script, "../é 😀 \"$(id)\"/", &section)));
    }

    #[test]
    fn wrapper_contains_no_kubernetes_variables() {
        assert!(!RUN.contains("$("));
    }

    #[test]
    fn pod_names_are_unique_per_call_and_agent() {
        let section = PodsSection::default();
        let script = Script::new("pass").unwrap();
        let name = |call: &str| made(&script, call, &section).metadata.name.unwrap();
        assert_eq!(name("a"), name("a"));
        assert_ne!(name("a"), name("b"));
        let call = ToolCallId::new("a").unwrap();
        let other = AgentName::new("other").unwrap();
        let others = build_pod(&script, &call, &other, "i", &section).unwrap();
        assert_ne!(Some(name("a")), others.metadata.name);
        assert!(name("a").len() <= 63);
    }

    #[test]
    fn changed_request_is_not_the_same_script() {
        let section = PodsSection::default();
        let script = |code: &str| Script::new(code).unwrap();
        let wanted = made(&script("a"), "id", &section);
        assert!(runs_same_script(&wanted, &made(&script("a"), "id", &section)));
        let packages = Requirements::parse(&["x"]).unwrap();
        for other in [
            script("b"),
            script("a").with_input("").unwrap(),
            script("a").with_timeout(Duration::from_secs(1)).unwrap(),
            script("a").with_packages(packages),
        ] {
            assert!(!runs_same_script(&wanted, &made(&other, "id", &section)), "{other:?}");
        }
        assert!(!runs_same_script(&Pod::default(), &Pod::default()));
    }

    #[test]
    fn oversized_script_is_rejected_before_any_request() {
        let script =
            |bytes: usize| Script::new("x").unwrap().with_input("x".repeat(bytes)).unwrap();
        let section = PodsSection::default();
        let call = ToolCallId::new("a").unwrap();
        let agent = AgentName::new("agent").unwrap();
        let build = |script: &Script| build_pod(script, &call, &agent, "i", &section);
        assert!(build(&script(MAX_TEXT_BYTES - 1)).is_ok());
        assert_eq!(
            build(&script(MAX_TEXT_BYTES)).unwrap_err(),
            ScriptTooLarge { bytes: MAX_TEXT_BYTES + 1 }
        );
    }
}
