//! From a script to the pod that runs it: a pure function.

use std::collections::BTreeMap;

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

/// The container of the script.
pub(crate) const CONTAINER: &str = "script";
/// Which pods are ours.
pub(crate) const OURS: &str = "app.kubernetes.io/managed-by=rockbot-scripts-manager";
/// The largest script with its input, in bytes. Kubernetes takes 256 KiB of annotations for one object,
/// and others write some too.
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
/// Reads script and input from `/rockbot`.
const RUN: &str = include_str!("run.py");
/// Room on the node for the log of a pod, beside its temporary folder.
const LOG_ROOM: u128 = 32 * 1024 * 1024;
/// What a pod may take on top of its script's time and of what its start may take, in seconds.
const END_SECONDS: u64 = 15;

/// The script does not fit into a pod; for the model.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("the script and its input have {bytes} bytes, at most {MAX_TEXT_BYTES} together")]
pub struct DoesNotFit {
    /// Their size.
    pub bytes: usize,
}

/// The pod that runs a script for a call.
///
/// Who asks under the same id gets a pod of the same name, so a script that is asked for again is
/// found where it runs. Nothing of what was asked for is in a name, a label, an argument or a
/// variable: script and input are annotations, which the pod sees as files.
///
/// # Errors
/// When script and input are more than Kubernetes takes.
pub fn pod_of(
    script: &Script,
    call: &ToolCallId,
    agent: &AgentName,
    image: &str,
    section: &PodsSection,
) -> Result<Pod, DoesNotFit> {
    let bytes = script.code().len() + script.input().map_or(0, str::len);
    if bytes > MAX_TEXT_BYTES {
        return Err(DoesNotFit { bytes });
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

/// The labels of the pod for a call.
pub(crate) fn labels(call: &str) -> BTreeMap<String, String> {
    let labels = LABELS.into_iter().chain([(CALL, call)]);
    labels.map(|(key, value)| (key.to_owned(), value.to_owned())).collect()
}

/// Whether a pod runs what another one would.
pub(crate) fn runs_the_same(one: &Pod, other: &Pod) -> bool {
    let request = |pod: &Pod| pod.metadata.annotations.as_ref()?.get(REQUEST).cloned();
    request(one).is_some_and(|one| Some(one) == request(other))
}

fn spec(script: &Script, user: i64, image: &str, section: &PodsSection) -> PodSpec {
    let seconds = seconds(script) + section.start_seconds + END_SECONDS;
    let secrets = section.image_pull_secrets.iter();
    let secrets: Vec<_> = secrets.map(|name| LocalObjectReference { name: name.clone() }).collect();
    PodSpec {
        active_deadline_seconds: i64::try_from(seconds).ok(),
        automount_service_account_token: Some(false),
        containers: vec![container(script, image, section)],
        // There is nobody to ask for names, and nobody is asked.
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
        // The first process ends at once when it is asked to.
        termination_grace_period_seconds: Some(1),
        tolerations: (!section.tolerations.is_empty())
            .then(|| section.tolerations.iter().map(toleration).collect()),
        volumes: Some(vec![texts(script), folder(section)]),
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

/// What is asked for is what is limited: a script disturbs no neighbour, and is disturbed by none.
fn resources(section: &PodsSection) -> ResourceRequirements {
    let on_disk = match section.disk_in_memory {
        true => 0,
        false => thousandths(&section.disk).unwrap_or(0) / 1000,
    };
    let amounts = BTreeMap::from([
        ("cpu".to_owned(), Quantity(section.cpu.clone())),
        ("memory".to_owned(), Quantity(section.memory.clone())),
        ("ephemeral-storage".to_owned(), Quantity((on_disk + LOG_ROOM).to_string())),
    ]);
    ResourceRequirements {
        requests: Some(amounts.clone()),
        limits: Some(amounts),
        ..ResourceRequirements::default()
    }
}

/// How long it may take, in whole seconds.
fn seconds(script: &Script) -> u64 {
    let timeout = script.timeout();
    timeout.as_secs() + u64::from(timeout.subsec_nanos() > 0)
}

/// Script and input, as files.
fn texts(script: &Script) -> Volume {
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

fn folder(section: &PodsSection) -> Volume {
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

/// A user for this pod alone: the kernel counts processes by user, for the whole node.
fn user(identity: &[u8]) -> i64 {
    let number = identity[16..20].iter().fold(0_i64, |sum, byte| sum << 8 | i64::from(*byte));
    1_000_000_000 + number % 1_000_000_000
}

/// The same for the same script.
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
    use std::time::Duration;

    use rockbot_scripts::Requirements;

    use super::*;
    use rockbot_scripts::PreparedImage;

    fn made(script: &Script, call: &str, section: &PodsSection) -> Pod {
        let call = ToolCallId::new(call).unwrap();
        let agent = AgentName::new("agent").unwrap();
        pod_of(script, &call, &agent, &section.image, section).unwrap()
    }

    /// As an operator would read it, without the text of `run.py`.
    fn yaml(pod: &Pod) -> String {
        let mut pod = pod.clone();
        let command = &mut pod.spec.as_mut().unwrap().containers[0].command;
        let text = command.as_mut().unwrap().last_mut().unwrap();
        assert_eq!(text, RUN);
        "<run.py>".clone_into(text);
        serde_json::to_string_pretty(&pod).unwrap()
    }

    #[test]
    fn a_plain_script_makes_this_pod() {
        let script = Script::new("print(1)").unwrap();
        insta::assert_snapshot!(yaml(&made(&script, "call-1", &PodsSection::default())));
    }

    #[test]
    fn a_script_with_everything_makes_this_pod() {
        let packages = Requirements::parse(&["numpy"]).unwrap();
        let script = Script::new("print(2)")
            .and_then(|script| script.with_input("{\"é\": 1}\n"))
            .and_then(|script| script.within(Duration::from_secs(300)))
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
            start_seconds: 10,
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
        insta::assert_snapshot!(yaml(&made(&script, "../é 😀 \"$(id)\"/", &section)));
    }

    #[test]
    fn kubernetes_puts_no_variables_into_the_text_that_runs_scripts() {
        assert!(!RUN.contains("$("));
    }

    #[test]
    fn a_call_has_one_pod_and_no_other_call_has_it() {
        let section = PodsSection::default();
        let script = Script::new("pass").unwrap();
        let name = |call: &str| made(&script, call, &section).metadata.name.unwrap();
        assert_eq!(name("a"), name("a"));
        assert_ne!(name("a"), name("b"));
        let call = ToolCallId::new("a").unwrap();
        let other = AgentName::new("other").unwrap();
        let others = pod_of(&script, &call, &other, "i", &section).unwrap();
        assert_ne!(Some(name("a")), others.metadata.name);
        assert!(name("a").len() <= 63);
    }

    #[test]
    fn only_the_same_script_is_taken_for_the_same() {
        let section = PodsSection::default();
        let script = |code: &str| Script::new(code).unwrap();
        let wanted = made(&script("a"), "id", &section);
        assert!(runs_the_same(&wanted, &made(&script("a"), "id", &section)));
        let packages = Requirements::parse(&["x"]).unwrap();
        for other in [
            script("b"),
            script("a").with_input("").unwrap(),
            script("a").within(Duration::from_secs(1)).unwrap(),
            script("a").with_packages(packages),
        ] {
            assert!(!runs_the_same(&wanted, &made(&other, "id", &section)), "{other:?}");
        }
        assert!(!runs_the_same(&Pod::default(), &Pod::default()));
    }

    #[test]
    fn what_kubernetes_does_not_take_is_told_before_it_is_asked() {
        let script =
            |bytes: usize| Script::new("x").unwrap().with_input("x".repeat(bytes)).unwrap();
        let section = PodsSection::default();
        let call = ToolCallId::new("a").unwrap();
        let agent = AgentName::new("agent").unwrap();
        let ask = |script: &Script| pod_of(script, &call, &agent, "i", &section);
        assert!(ask(&script(MAX_TEXT_BYTES - 1)).is_ok());
        assert_eq!(
            ask(&script(MAX_TEXT_BYTES)).unwrap_err(),
            DoesNotFit { bytes: MAX_TEXT_BYTES + 1 }
        );
    }
}
