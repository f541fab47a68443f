//! The pod that installs a package set, built by a pure function.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{Container, Pod, PodSpec};
use kube::api::ObjectMeta;
use rockbot_scripts::Requirements;
use sha2::{Digest, Sha256};

use crate::{
    pod_parts::{
        PACKAGES_VOLUME, annotation_volume, base_container, base_spec, claim_volume, hex, mount,
        resources, tmp_volume, whole_seconds,
    },
    section::PodsSection,
};

/// The labels of installations. Their network policy selects the first, which scripts have with another
/// value.
const LABELS: [(&str, &str); 3] = [
    ("app.kubernetes.io/name", "rockbot-script-packages"),
    ("app.kubernetes.io/part-of", "rockbot"),
    ("app.kubernetes.io/managed-by", "rockbot-scripts-manager"),
];
const REQUIREMENTS: &str = "rockbot.dev/requirements";
const INSTALL: &str = include_str!("install.py");
/// The user of all installations, who owns the sets. Scripts have users below it.
const USER: i64 = 2_000_000_000;
/// The time that a pod may exist beyond its start and the installation, in seconds.
const END_SECONDS: u64 = 15;

/// Returns the name of a package set: a digest of the packages, of the image that they are for, and of the
/// index.
pub(crate) fn set_name(packages: &Requirements, section: &PodsSection) -> String {
    let mut digest = Sha256::new();
    let fixed = [section.image.as_str(), section.packages.index_url.as_str()];
    for part in fixed.into_iter().chain(packages.iter()) {
        digest.update(part);
        digest.update([0]);
    }
    hex(&digest.finalize()[..16])
}

/// Builds the pod that installs a set. No part of the request is in a name, a label, an argument or a
/// variable: the requirements are an annotation, which the pod sees as a file.
pub(crate) fn build_install_pod(packages: &Requirements, section: &PodsSection) -> Pod {
    let set = set_name(packages, section);
    let labels = LABELS.into_iter().map(|(key, value)| (key.to_owned(), value.to_owned()));
    let lines: String = packages.iter().flat_map(|package| [package, "\n"]).collect();
    Pod {
        metadata: ObjectMeta {
            name: Some(format!("packages-{set}")),
            namespace: Some(section.namespace.clone()),
            labels: Some(labels.collect()),
            annotations: Some(BTreeMap::from([(REQUIREMENTS.to_owned(), lines)])),
            ..ObjectMeta::default()
        },
        spec: Some(spec(&set, section)),
        status: None,
    }
}

fn spec(set: &str, section: &PodsSection) -> PodSpec {
    let packages = &section.packages;
    let install_seconds = whole_seconds(packages.timeout);
    let seconds = install_seconds + whole_seconds(section.start_timeout) + END_SECONDS;
    let arguments = [
        set.to_owned(),
        packages.max_sets.to_string(),
        packages.index_url.clone(),
        install_seconds.to_string(),
    ];
    let claim = packages.claim.as_deref().unwrap_or_default();
    PodSpec {
        active_deadline_seconds: i64::try_from(seconds).ok(),
        containers: vec![Container {
            args: Some(arguments.into()),
            resources: Some(resources(&packages.memory, section)),
            volume_mounts: Some(vec![
                mount("rockbot", "/rockbot", true),
                mount("tmp", "/tmp", false),
                mount(PACKAGES_VOLUME, "/packages", false),
            ]),
            ..base_container(&section.image, INSTALL, section)
        }],
        volumes: Some(vec![
            annotation_volume([("requirements.txt", REQUIREMENTS)]),
            tmp_volume(section),
            claim_volume(claim, false),
        ]),
        ..base_spec(USER, "packages", section)
    }
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::networking::v1::NetworkPolicy;
    use serde_json::Value;

    use super::*;
    use crate::{policies::find_openings, section::PackagesSection};

    fn section() -> PodsSection {
        let packages =
            PackagesSection { claim: Some("set-volume".to_owned()), ..PackagesSection::default() };
        PodsSection { packages, ..PodsSection::default() }
    }

    #[test]
    fn install_pod_matches_snapshot() {
        let packages = Requirements::parse(&["numpy==2.1.3", "httpx[http2]<1"]).unwrap();
        let mut pod = build_install_pod(&packages, &section());
        let command = &mut pod.spec.as_mut().unwrap().containers[0].command;
        let text = command.as_mut().unwrap().last_mut().unwrap();
        assert_eq!(text, INSTALL);
        "<install.py>".clone_into(text);
        insta::assert_snapshot!(serde_json::to_string_pretty(&pod).unwrap());
    }

    #[test]
    fn set_depends_on_packages_image_and_index() {
        let requirements = |names: &[&str]| Requirements::parse(names).unwrap();
        let name = |names: &[&str], section: &PodsSection| set_name(&requirements(names), section);
        let usual = section();
        assert_eq!(name(&["b", "A"], &usual), name(&["a", "b"], &usual));
        assert_ne!(name(&["a"], &usual), name(&["a", "b"], &usual));
        let other_image = PodsSection { image: "python:3.13".to_owned(), ..section() };
        assert_ne!(name(&["a"], &usual), name(&["a"], &other_image));
        let mut other_index = section();
        other_index.packages.index_url = "https://index.test/simple".to_owned();
        assert_ne!(name(&["a"], &usual), name(&["a"], &other_index));
    }

    #[test]
    fn network_policy_opens_installations_only() {
        let policies = |text: &str| -> Vec<NetworkPolicy> {
            let objects: Vec<Value> = serde_saphyr::from_multiple(text).unwrap();
            let policies = objects.into_iter().filter(|one| one["kind"] == "NetworkPolicy");
            policies.map(|one| serde_json::from_value(one).unwrap()).collect()
        };
        let scripts = include_str!("../../../deploy/kubernetes/scripts/2-network-policy.yaml");
        let packages = include_str!("../../../deploy/kubernetes/packages/1-packages.yaml");
        let (scripts, packages) = (policies(scripts), policies(packages));
        let spec = packages[0].spec.clone().unwrap();
        let selected = spec.pod_selector.unwrap().match_labels.unwrap();
        let pod = build_install_pod(&Requirements::parse(&["numpy"]).unwrap(), &section());
        let labels = pod.metadata.labels.unwrap();
        assert!(selected.iter().all(|(key, value)| labels.get(key) == Some(value)), "{labels:?}");
        assert_eq!(find_openings(&[scripts, packages].concat()), Vec::<String>::new());
    }

    #[test]
    fn program_contains_no_kubernetes_variables() {
        assert!(!INSTALL.contains("$("));
    }
}
