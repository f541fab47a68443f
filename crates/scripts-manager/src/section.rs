//! `[scripts]`: the properties of script pods.

use std::{collections::BTreeMap, time::Duration};

use rockbot_contracts::period::duration;
use rockbot_scripts::{PreparedImage, PreparedImages};
use serde::Deserialize;

use crate::{
    labels::{is_object_name, key_error, value_error},
    quantity::thousandths,
};

/// `[scripts]`.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct PodsSection {
    /// The namespace of the pods. Default `rockbot-scripts`.
    pub namespace: String,
    /// The image of scripts without packages. Default `docker.io/library/python:3.12-slim`.
    pub image: String,
    /// Images with packages. Default none. Packages that no image has are rejected, unless
    /// [`PackagesSection::claim`] is set.
    pub images: Vec<PreparedImage>,
    /// The pull policy: `Always`, `IfNotPresent` or `Never`. Default `IfNotPresent`.
    pub image_pull_policy: String,
    /// Names of image pull secrets in the namespace. Default none.
    pub image_pull_secrets: Vec<String>,
    /// The CPU request and limit of a script. Default `500m`.
    pub cpu: String,
    /// The memory request and limit of a script and its temporary folder. Default `256Mi`.
    pub memory: String,
    /// The size of its temporary folder, in memory unless `disk_in_memory` is false. Default `64Mi`.
    pub disk: String,
    /// Keeps the temporary folder in memory: then a full folder is an error that the script gets, and its
    /// content counts as memory. Otherwise it is on the node's disk, and a full folder stops the script
    /// some seconds later. Default true.
    pub disk_in_memory: bool,
    /// The most processes and threads of a script. Default 128.
    pub processes: u32,
    /// The most output of a script, in bytes. Default 3 MiB.
    pub max_output_bytes: usize,
    /// Time limit for a pod to start, including scheduling and pulling its image. Default 60 s.
    #[serde(deserialize_with = "duration")]
    pub start_timeout: Duration,
    /// The runtime class, such as gVisor or Kata. Default: the nodes' own runtime.
    pub runtime_class: Option<String>,
    /// The priority class of the pods. Default none.
    pub priority_class: Option<String>,
    /// The node selector. Default none.
    pub node_selector: BTreeMap<String, String>,
    /// The tolerations of the pods. Default none.
    pub tolerations: Vec<TolerationSection>,
    /// Enables a script at startup that tries to reach the cluster's API. If it succeeds, if the probe
    /// fails, or if this is false, every result reports the network as a gap. Default true.
    pub probe_network: bool,
    /// Packages that are installed on request.
    pub packages: PackagesSection,
}

/// `[scripts.packages]`.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct PackagesSection {
    /// The persistent volume claim in the namespace that keeps installed packages. Default none: nothing is
    /// installed, and scripts have only the packages of images.
    pub claim: Option<String>,
    /// The package index, as for pip. Default PyPI.
    pub index_url: String,
    /// Time limit of an installation, beside that for the start of its pod. Default 120 s.
    #[serde(deserialize_with = "duration")]
    pub timeout: Duration,
    /// The memory of an installation, request and limit. Default `512Mi`.
    pub memory: String,
    /// The most package sets to keep; the least recently installed or requested are removed, except those
    /// of the last day. Default 50.
    pub max_sets: u32,
}

impl Default for PackagesSection {
    fn default() -> Self {
        Self {
            claim: None,
            index_url: "https://pypi.org/simple".to_owned(),
            timeout: Duration::from_secs(120),
            memory: "512Mi".to_owned(),
            max_sets: 50,
        }
    }
}

impl PackagesSection {
    /// Returns the errors, each with its key.
    fn validate(&self) -> Vec<(&'static str, String)> {
        let mut errors = Vec::new();
        let mut check = |valid: bool, key, error: String| {
            if !valid {
                errors.push((key, error));
            }
        };
        if let Some(claim) = &self.claim {
            let error = format!("{claim:?} is not a Kubernetes object name");
            check(is_object_name(claim), "packages.claim", error);
        }
        let url = &self.index_url;
        let is_url = url.starts_with("https://") || url.starts_with("http://");
        // Kubernetes would replace `$(…)` in an argument.
        let is_plain = !url.contains(|c: char| c.is_whitespace() || c.is_control() || c == '$');
        check(is_url && is_plain, "packages.index_url", format!("{url:?} is not an http(s) URL"));
        let range = Duration::from_secs(10)..=Duration::from_secs(600);
        check(range.contains(&self.timeout), "packages.timeout", "must be 10s to 10m".to_owned());
        let memory = thousandths(&self.memory) >= thousandths("64Mi");
        let error = format!("{:?}: must be an amount of at least 64Mi, such as 512Mi", self.memory);
        check(memory, "packages.memory", error);
        let sets = (1..=10_000).contains(&self.max_sets);
        check(sets, "packages.max_sets", "must be 1 to 10000".to_owned());
        errors
    }
}

/// `[[scripts.tolerations]]`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct TolerationSection {
    /// The key of the taint; all taints if absent.
    pub key: Option<String>,
    /// `Equal` or `Exists`. Default `Exists` without a value, else `Equal`.
    pub operator: Option<String>,
    /// The value of the taint.
    pub value: Option<String>,
    /// The effect of the taint; all effects if absent.
    pub effect: Option<String>,
}

impl TolerationSection {
    /// Returns the operator, by default `Exists` without a value and `Equal` with one.
    pub(crate) fn operator(&self) -> &str {
        let default = if self.value.is_some() { "Equal" } else { "Exists" };
        self.operator.as_deref().unwrap_or(default)
    }

    fn validate(&self) -> Vec<String> {
        let mut errors = Vec::new();
        errors.extend(self.key.as_deref().and_then(key_error));
        errors.extend(self.value.as_deref().and_then(value_error));
        let has_value = self.value.as_deref().is_some_and(|value| !value.is_empty());
        match self.operator() {
            "Equal" if self.key.is_none() => {
                errors
                    .push("a toleration without a key must be Exists, without a value".to_owned());
            }
            "Exists" if has_value => errors.push("Exists takes no value".to_owned()),
            "Equal" | "Exists" => {}
            other => errors.push(format!("{other:?}: an operator must be Equal or Exists")),
        }
        if let Some(effect) = &self.effect
            && !["NoSchedule", "PreferNoSchedule", "NoExecute"].contains(&effect.as_str())
        {
            errors.push(format!(
                "{effect:?}: an effect must be NoSchedule, PreferNoSchedule or NoExecute"
            ));
        }
        errors
    }
}

impl Default for PodsSection {
    fn default() -> Self {
        Self {
            namespace: "rockbot-scripts".to_owned(),
            image: "docker.io/library/python:3.12-slim".to_owned(),
            images: Vec::new(),
            image_pull_policy: "IfNotPresent".to_owned(),
            image_pull_secrets: Vec::new(),
            cpu: "500m".to_owned(),
            memory: "256Mi".to_owned(),
            disk: "64Mi".to_owned(),
            disk_in_memory: true,
            processes: 128,
            max_output_bytes: 3 * 1024 * 1024,
            start_timeout: Duration::from_secs(60),
            runtime_class: None,
            priority_class: None,
            node_selector: BTreeMap::new(),
            tolerations: Vec::new(),
            probe_network: true,
            packages: PackagesSection::default(),
        }
    }
}

impl PodsSection {
    /// Returns the time limit for a pod to start.
    #[must_use]
    pub fn start_timeout(&self) -> Duration {
        self.start_timeout
    }

    /// Validates the section and returns all errors, for the operator.
    #[must_use]
    pub fn validate(&self) -> Vec<String> {
        let mut errors = Vec::new();
        let mut add = |key: &str, error: &str| errors.push(format!("scripts.{key}: {error}"));
        let mut names = vec![("namespace", &self.namespace)];
        names.extend(self.image_pull_secrets.iter().map(|name| ("image_pull_secrets", name)));
        names.extend(self.runtime_class.iter().map(|name| ("runtime_class", name)));
        names.extend(self.priority_class.iter().map(|name| ("priority_class", name)));
        for (key, name) in names {
            if !is_object_name(name) {
                add(key, &format!("{name:?} is not a Kubernetes object name"));
            }
        }
        if !["Always", "IfNotPresent", "Never"].contains(&self.image_pull_policy.as_str()) {
            add("image_pull_policy", "must be Always, IfNotPresent or Never");
        }
        let images = std::iter::once(&self.image);
        for image in images.chain(self.images.iter().map(|prepared| &prepared.image)) {
            if image.is_empty() || image.contains(char::is_whitespace) {
                add("image", &format!("{image:?} is not the name of an image"));
            }
        }
        let mebibyte = thousandths("1Mi");
        let amounts = [
            ("cpu", &self.cpu, thousandths("10m"), "10m, such as 500m"),
            ("memory", &self.memory, thousandths("32Mi"), "32Mi, such as 256Mi"),
            ("disk", &self.disk, mebibyte, "1Mi, such as 64Mi"),
        ];
        for (key, text, least, expected) in amounts {
            if thousandths(text) < least {
                add(key, &format!("{text:?}: must be an amount of at least {expected}"));
            }
        }
        let fits = thousandths(&self.disk) < thousandths(&self.memory);
        if self.disk_in_memory && !fits {
            add("disk", "is in memory, so it must be smaller than scripts.memory");
        }
        if !(8..=32_768).contains(&self.processes) {
            add("processes", "must be 8 to 32768");
        }
        if !(1024..=MAX_OUTPUT_BYTES).contains(&self.max_output_bytes) {
            add("max_output_bytes", &format!("must be 1024 to {MAX_OUTPUT_BYTES}"));
        }
        if !(Duration::from_secs(1)..=Duration::from_secs(600)).contains(&self.start_timeout) {
            add("start_timeout", "must be 1s to 10m");
        }
        for (key, value) in &self.node_selector {
            for error in [key_error(key), value_error(value)].into_iter().flatten() {
                add("node_selector", &error);
            }
        }
        for error in self.tolerations.iter().flat_map(TolerationSection::validate) {
            add("tolerations", &error);
        }
        for (key, error) in self.packages.validate() {
            add(key, &error);
        }
        if let Err(error) = PreparedImages::try_new(&self.images) {
            add("images", &error.to_string());
        }
        errors
    }
}

/// The log of a pod has the output in base64, and nodes rotate it at 10 MiB.
const MAX_OUTPUT_BYTES: usize = 6 * 1024 * 1024;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn defaults_are_valid() {
        assert_eq!(PodsSection::default().validate(), Vec::<String>::new());
    }

    #[test]
    fn all_errors_are_reported_together() {
        let section = PodsSection {
            namespace: "Scripts/".to_owned(),
            image: String::new(),
            image_pull_policy: "sometimes".to_owned(),
            packages: PackagesSection {
                claim: Some("A claim".to_owned()),
                index_url: "https://index.test/$(TOKEN)".to_owned(),
                timeout: Duration::ZERO,
                memory: "1Mi".to_owned(),
                max_sets: 0,
            },
            cpu: "fast".to_owned(),
            memory: "64Mi".to_owned(),
            disk: "64Mi".to_owned(),
            processes: 1,
            max_output_bytes: 0,
            start_timeout: Duration::ZERO,
            runtime_class: Some("g Visor".to_owned()),
            images: vec![PreparedImage {
                image: "science:1".to_owned(),
                packages: vec!["numpy; curl".to_owned()],
            }],
            ..PodsSection::default()
        };
        let errors = section.validate();
        let keys = [
            "namespace",
            "runtime_class",
            "image_pull_policy",
            "image",
            "cpu",
            "disk",
            "processes",
            "max_output_bytes",
            "start_timeout",
            "packages.claim",
            "packages.index_url",
            "packages.timeout",
            "packages.memory",
            "packages.max_sets",
            "images",
        ];
        assert_eq!(errors.len(), keys.len(), "{errors:#?}");
        for (error, key) in errors.iter().zip(keys) {
            assert!(error.starts_with(&format!("scripts.{key}: ")), "{error}");
        }
    }
    #[test]
    fn invalid_tolerations_and_selectors_are_rejected() {
        let toleration = |key: Option<&str>, operator: Option<&str>, value: Option<&str>| {
            let [key, operator, value] = [key, operator, value].map(|one| one.map(str::to_owned));
            TolerationSection { key, operator, value, effect: None }
        };
        let with_effect = |effect: &str| TolerationSection {
            effect: Some(effect.to_owned()),
            ..TolerationSection::default()
        };
        let errors = |tolerations: Vec<TolerationSection>| {
            PodsSection { tolerations, ..PodsSection::default() }.validate()
        };
        let good = [
            toleration(None, None, None),
            toleration(None, Some("Exists"), None),
            toleration(Some("a.example/b"), None, None),
            toleration(Some("a"), None, Some("c")),
            toleration(Some("a"), Some("Equal"), None),
            toleration(Some("a"), Some("Exists"), Some("")),
            with_effect("NoSchedule"),
            with_effect("PreferNoSchedule"),
            with_effect("NoExecute"),
        ];
        assert_eq!(errors(good.into()), Vec::<String>::new());
        for (bad, expected) in [
            (toleration(None, Some("Equal"), None), "without a key"),
            (toleration(None, None, Some("c")), "without a key"),
            (toleration(Some(""), None, None), "\"\" is not a key"),
            (toleration(Some("a b"), None, None), "\"a b\" is not a key"),
            (toleration(Some("a"), None, Some("-")), "\"-\" is not a value"),
            (toleration(Some("a"), Some("Exists"), Some("c")), "takes no value"),
            (toleration(Some("a"), Some("Gt"), Some("1")), "must be Equal or Exists"),
            (with_effect("noschedule"), "an effect must be"),
            (with_effect(""), "an effect must be"),
        ] {
            let found = errors(vec![bad.clone()]);
            let is_reported = found.len() == 1
                && found[0].starts_with("scripts.tolerations: ")
                && found[0].contains(expected);
            assert!(is_reported, "{bad:?}: {found:?}");
        }
        for (key, value) in [("a/b/c", "d"), ("a", "d e"), ("", "d"), ("A.example/b", "d")] {
            let node_selector = [(key.to_owned(), value.to_owned())].into();
            let found = PodsSection { node_selector, ..PodsSection::default() }.validate();
            let is_reported = found.len() == 1 && found[0].starts_with("scripts.node_selector: ");
            assert!(is_reported, "{key:?} {value:?}: {found:?}");
        }
    }
}
