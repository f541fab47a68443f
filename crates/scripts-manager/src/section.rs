//! `[scripts]`: what the pods of scripts are like.

use std::{collections::BTreeMap, time::Duration};

use rockbot_scripts::{PreparedImage, PreparedImages};
use serde::Deserialize;

use crate::{
    labels::{is_object_name, key_problem, value_problem},
    quantity::thousandths,
};

/// `[scripts]`.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct PodsSection {
    /// Where the pods are made. Default `rockbot-scripts`.
    pub namespace: String,
    /// The image of scripts that ask for no packages. Default `docker.io/library/python:3.12-slim`.
    pub image: String,
    /// Images with packages in them, for scripts that ask for those. Default none.
    pub images: Vec<PreparedImage>,
    /// When images are fetched: `Always`, `IfNotPresent` or `Never`. Default `IfNotPresent`.
    pub image_pull_policy: String,
    /// Names of secrets in the namespace with which images are fetched. Default none.
    pub image_pull_secrets: Vec<String>,
    /// Processor of a script, asked for and limited. Default `500m`.
    pub cpu: String,
    /// Memory of a script with its temporary folder, asked for and limited. Default `256Mi`.
    pub memory: String,
    /// Its temporary folder, in memory unless `disk_in_memory` is false. Default `64Mi`.
    pub disk: String,
    /// Whether the temporary folder is in memory: then a full one is an error that the script sees,
    /// and what is in it counts as memory. Else it is on the node's disk, and one that is full ends
    /// the script, some seconds later. Default true.
    pub disk_in_memory: bool,
    /// Processes and threads of a script, at most. Default 128.
    pub processes: u32,
    /// Most bytes that a script may print. Default 1 MiB.
    pub max_output_bytes: usize,
    /// How long a pod may take until it runs, in seconds: for room in the cluster and for its image.
    /// Default 60.
    pub start_seconds: u64,
    /// Another runtime than the nodes' own, such as gVisor's or Kata's.
    pub runtime_class: Option<String>,
    /// Priority class of the pods.
    pub priority_class: Option<String>,
    /// Labels that a node must have. Default none.
    pub node_selector: BTreeMap<String, String>,
    /// Taints of nodes that the pods bear. Default none.
    pub tolerations: Vec<TolerationSection>,
    /// Whether to run a script at the start that looks for the cluster's API. When it gets there, does
    /// not run, or is not wanted, the network is told to be open in every result. Default true.
    pub probe_network: bool,
}

/// `[[scripts.tolerations]]`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct TolerationSection {
    /// The taint; all of them when absent.
    pub key: Option<String>,
    /// `Equal` or `Exists`. Default `Exists` without a value, else `Equal`.
    pub operator: Option<String>,
    /// Its value.
    pub value: Option<String>,
    /// Its effect; all of them when absent.
    pub effect: Option<String>,
}

impl TolerationSection {
    /// `Exists` without a value, else `Equal`, when none is said.
    pub(crate) fn operator(&self) -> &str {
        let default = if self.value.is_some() { "Equal" } else { "Exists" };
        self.operator.as_deref().unwrap_or(default)
    }

    fn problems(&self) -> Vec<String> {
        let mut problems = Vec::new();
        problems.extend(self.key.as_deref().and_then(key_problem));
        problems.extend(self.value.as_deref().and_then(value_problem));
        let has_value = self.value.as_deref().is_some_and(|value| !value.is_empty());
        match self.operator() {
            "Equal" if self.key.is_none() => {
                problems.push("one without a key must be Exists, without a value".to_owned());
            }
            "Exists" if has_value => problems.push("Exists takes no value".to_owned()),
            "Equal" | "Exists" => {}
            other => problems.push(format!("{other:?}: an operator must be Equal or Exists")),
        }
        if let Some(effect) = &self.effect
            && !["NoSchedule", "PreferNoSchedule", "NoExecute"].contains(&effect.as_str())
        {
            problems.push(format!(
                "{effect:?}: an effect must be NoSchedule, PreferNoSchedule or NoExecute"
            ));
        }
        problems
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
            max_output_bytes: 1024 * 1024,
            start_seconds: 60,
            runtime_class: None,
            priority_class: None,
            node_selector: BTreeMap::new(),
            tolerations: Vec::new(),
            probe_network: true,
        }
    }
}

impl PodsSection {
    /// How long a pod may take until it runs.
    #[must_use]
    pub fn start(&self) -> Duration {
        Duration::from_secs(self.start_seconds)
    }

    /// What is wrong with it, in words for an operator.
    #[must_use]
    pub fn problems(&self) -> Vec<String> {
        let mut problems = Vec::new();
        let mut say = |key: &str, problem: &str| problems.push(format!("scripts.{key}: {problem}"));
        let mut names = vec![("namespace", &self.namespace)];
        names.extend(self.image_pull_secrets.iter().map(|name| ("image_pull_secrets", name)));
        names.extend(self.runtime_class.iter().map(|name| ("runtime_class", name)));
        names.extend(self.priority_class.iter().map(|name| ("priority_class", name)));
        for (key, name) in names {
            if !is_object_name(name) {
                say(key, &format!("{name:?} is not a name of an object in Kubernetes"));
            }
        }
        if !["Always", "IfNotPresent", "Never"].contains(&self.image_pull_policy.as_str()) {
            say("image_pull_policy", "must be Always, IfNotPresent or Never");
        }
        let images = std::iter::once(&self.image);
        for image in images.chain(self.images.iter().map(|prepared| &prepared.image)) {
            if image.is_empty() || image.contains(char::is_whitespace) {
                say("image", &format!("{image:?} is not the name of an image"));
            }
        }
        let mebibyte = thousandths("1Mi");
        let amounts = [
            ("cpu", &self.cpu, thousandths("10m"), "10m, such as 500m"),
            ("memory", &self.memory, thousandths("32Mi"), "32Mi, such as 256Mi"),
            ("disk", &self.disk, mebibyte, "1Mi, such as 64Mi"),
        ];
        for (key, text, least, words) in amounts {
            if thousandths(text) < least {
                say(key, &format!("{text:?}: must be an amount of at least {words}"));
            }
        }
        let fits = thousandths(&self.disk) < thousandths(&self.memory);
        if self.disk_in_memory && !fits {
            say("disk", "is in memory, so it must be smaller than scripts.memory");
        }
        if !(8..=32_768).contains(&self.processes) {
            say("processes", "must be 8 to 32768");
        }
        if !(1024..=MAX_OUTPUT_BYTES).contains(&self.max_output_bytes) {
            say("max_output_bytes", &format!("must be 1024 to {MAX_OUTPUT_BYTES}"));
        }
        if !(1..=600).contains(&self.start_seconds) {
            say("start_seconds", "must be 1 to 600");
        }
        for (key, value) in &self.node_selector {
            for problem in [key_problem(key), value_problem(value)].into_iter().flatten() {
                say("node_selector", &problem);
            }
        }
        for problem in self.tolerations.iter().flat_map(TolerationSection::problems) {
            say("tolerations", &problem);
        }
        if let Err(error) = PreparedImages::of(&self.images) {
            say("images", &error.to_string());
        }
        problems
    }
}

/// An answer with more does not fit into a message on the bus.
const MAX_OUTPUT_BYTES: usize = 3 * 1024 * 1024;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_defaults_can_be_used() {
        assert_eq!(PodsSection::default().problems(), Vec::<String>::new());
    }

    #[test]
    fn an_operator_is_told_all_that_is_wrong_at_once() {
        let section = PodsSection {
            namespace: "Scripts/".to_owned(),
            image: String::new(),
            image_pull_policy: "sometimes".to_owned(),
            cpu: "fast".to_owned(),
            memory: "64Mi".to_owned(),
            disk: "64Mi".to_owned(),
            processes: 1,
            max_output_bytes: 0,
            start_seconds: 0,
            runtime_class: Some("g Visor".to_owned()),
            images: vec![PreparedImage {
                image: "science:1".to_owned(),
                packages: vec!["numpy; curl".to_owned()],
            }],
            ..PodsSection::default()
        };
        let problems = section.problems();
        let keys = [
            "namespace",
            "runtime_class",
            "image_pull_policy",
            "image",
            "cpu",
            "disk",
            "processes",
            "max_output_bytes",
            "start_seconds",
            "images",
        ];
        assert_eq!(problems.len(), keys.len(), "{problems:#?}");
        for (problem, key) in problems.iter().zip(keys) {
            assert!(problem.starts_with(&format!("scripts.{key}: ")), "{problem}");
        }
    }
    #[test]
    fn what_the_cluster_would_refuse_of_each_pod_is_refused_at_the_start() {
        let toleration = |key: Option<&str>, operator: Option<&str>, value: Option<&str>| {
            let [key, operator, value] = [key, operator, value].map(|one| one.map(str::to_owned));
            TolerationSection { key, operator, value, effect: None }
        };
        let with_effect = |effect: &str| TolerationSection {
            effect: Some(effect.to_owned()),
            ..TolerationSection::default()
        };
        let problems = |tolerations: Vec<TolerationSection>| {
            PodsSection { tolerations, ..PodsSection::default() }.problems()
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
        assert_eq!(problems(good.into()), Vec::<String>::new());
        for (bad, words) in [
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
            let found = problems(vec![bad.clone()]);
            let is_told = found.len() == 1
                && found[0].starts_with("scripts.tolerations: ")
                && found[0].contains(words);
            assert!(is_told, "{bad:?}: {found:?}");
        }
        for (key, value) in [("a/b/c", "d"), ("a", "d e"), ("", "d"), ("A.example/b", "d")] {
            let node_selector = [(key.to_owned(), value.to_owned())].into();
            let found = PodsSection { node_selector, ..PodsSection::default() }.problems();
            let is_told = found.len() == 1 && found[0].starts_with("scripts.node_selector: ");
            assert!(is_told, "{key:?} {value:?}: {found:?}");
        }
    }
}
