//! The pod of a script, built by a pure function.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{Container, Pod, PodDNSConfig, PodSpec, Volume, VolumeMount};
use kube::api::ObjectMeta;
use rockbot_contracts::{AgentName, ToolCallId};
use rockbot_scripts::{Script, runner::MAX_ENVIRONMENT_INPUT_BYTES};
use sha2::{Digest, Sha256};

use crate::{
    pod_parts::{
        PACKAGES_VOLUME, annotation_volume, base_container, base_spec, claim_volume, hex, mount,
        resources, tmp_volume, whole_seconds,
    },
    section::PodsSection,
};

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
/// annotations, which the pod sees as files. `package_set` is the folder of its packages in the claim of the
/// configuration, named by a digest.
///
/// # Errors
/// When script and input are too large for Kubernetes.
pub fn build_pod(
    script: &Script,
    call: &ToolCallId,
    agent: &AgentName,
    image: &str,
    package_set: Option<&str>,
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
        spec: Some(spec(script, user(&identity), image, package_set, section)),
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

fn spec(
    script: &Script,
    user: i64,
    image: &str,
    package_set: Option<&str>,
    section: &PodsSection,
) -> PodSpec {
    let seconds = seconds(script) + whole_seconds(section.start_timeout) + END_SECONDS;
    let claim = section.packages.claim.as_deref().unwrap_or_default();
    let packages = package_set.map(|_| claim_volume(claim, true));
    PodSpec {
        active_deadline_seconds: i64::try_from(seconds).ok(),
        containers: vec![container(script, image, package_set, section)],
        // No name server: a script has no network.
        dns_policy: Some("None".to_owned()),
        dns_config: Some(PodDNSConfig {
            nameservers: Some(vec!["127.0.0.1".to_owned()]),
            ..PodDNSConfig::default()
        }),
        volumes: Some(
            [script_volume(script), tmp_volume(section)].into_iter().chain(packages).collect(),
        ),
        ..base_spec(user, "script", section)
    }
}

fn container(
    script: &Script,
    image: &str,
    package_set: Option<&str>,
    section: &PodsSection,
) -> Container {
    let limits = [
        seconds(script).to_string(),
        section.max_output_bytes.to_string(),
        section.processes.to_string(),
        MAX_ENVIRONMENT_INPUT_BYTES.to_string(),
    ];
    let packages = package_set.map(|set| VolumeMount {
        // Without the other sets, whose names are those of other requests.
        sub_path: Some(set.to_owned()),
        ..mount(PACKAGES_VOLUME, "/rockbot-packages", true)
    });
    let mounts = [mount("rockbot", "/rockbot", true), mount("tmp", "/tmp", false)];
    Container {
        args: Some(limits.into()),
        resources: Some(resources(&section.memory, section)),
        volume_mounts: Some(mounts.into_iter().chain(packages).collect()),
        ..base_container(image, RUN, section)
    }
}

/// Returns the script's timeout in whole seconds, rounded up.
fn seconds(script: &Script) -> u64 {
    whole_seconds(script.timeout())
}

/// The volume with script and input as files.
fn script_volume(script: &Script) -> Volume {
    let input = script.input().map(|_| ("input", INPUT));
    annotation_volume([("script.py", SCRIPT)].into_iter().chain(input))
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

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use rockbot_scripts::{PreparedImage, Requirements};

    use super::*;
    use crate::section::{PackagesSection, TolerationSection};

    fn made(script: &Script, call: &str, section: &PodsSection) -> Pod {
        let call = ToolCallId::new(call).unwrap();
        let agent = AgentName::new("agent").unwrap();
        build_pod(script, &call, &agent, &section.image, None, section).unwrap()
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
            packages: PackagesSection::default(),
        };
        insta::assert_snapshot!(manifest(&made(&script, "../é 😀 \"$(id)\"/", &section)));
    }

    #[test]
    fn package_set_is_mounted_read_only() {
        let claim = Some("set-volume".to_owned());
        let packages = PackagesSection { claim, ..PackagesSection::default() };
        let section = PodsSection { packages, ..PodsSection::default() };
        let (call, agent) = (ToolCallId::new("a").unwrap(), AgentName::new("agent").unwrap());
        let script = Script::new("pass").unwrap();
        let pod = build_pod(&script, &call, &agent, "i", Some("0a1b"), &section).unwrap();
        let spec = pod.spec.unwrap();
        let volume = spec.volumes.unwrap().pop().unwrap();
        let claim = volume.persistent_volume_claim.unwrap();
        assert_eq!((claim.claim_name.as_str(), claim.read_only), ("set-volume", Some(true)));
        let mount = spec.containers[0].volume_mounts.clone().unwrap().pop().unwrap();
        assert_eq!((mount.name, mount.read_only), (volume.name, Some(true)));
        assert_eq!(mount.sub_path.as_deref(), Some("0a1b"));
        assert!(RUN.contains(&format!("\"{}\"", mount.mount_path)), "{}", mount.mount_path);
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
        let others = build_pod(&script, &call, &other, "i", None, &section).unwrap();
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
        let build = |script: &Script| build_pod(script, &call, &agent, "i", None, &section);
        assert!(build(&script(MAX_TEXT_BYTES - 1)).is_ok());
        assert_eq!(
            build(&script(MAX_TEXT_BYTES)).unwrap_err(),
            ScriptTooLarge { bytes: MAX_TEXT_BYTES + 1 }
        );
    }
}
