//! A check whether the network policies of a namespace close the network to scripts.
//!
//! Policies are additive: one policy can allow traffic that others deny. The manager has no permission to
//! list them, so an operator runs the check with `rockbot-scripts-check`.

use k8s_openapi::{
    api::networking::v1::{NetworkPolicy, NetworkPolicySpec},
    apimachinery::pkg::apis::meta::v1::{LabelSelector, LabelSelectorRequirement},
};
use kube::{
    Client,
    api::{Api, ListParams},
};

use crate::{
    api::request,
    pod::{CALL, labels},
};

/// An error when the policies of a namespace can't be listed.
#[derive(Debug, thiserror::Error)]
#[error(
    "the network policies of the namespace {namespace:?} can't be listed: {reason}; use credentials \
     that may list networkpolicies there, which the manager's own may not"
)]
pub struct ListPoliciesError {
    namespace: String,
    reason: String,
}

/// Returns the [`find_openings`] of the policies of a namespace. Takes at most 10 s.
///
/// # Errors
/// When the cluster does not list them.
pub async fn check_namespace(
    client: Client,
    namespace: &str,
) -> Result<Vec<String>, ListPoliciesError> {
    let policies: Api<NetworkPolicy> = Api::namespaced(client, namespace);
    let listed = request(policies.list(&ListParams::default())).await;
    let listed = listed.map_err(|error| ListPoliciesError {
        namespace: namespace.to_owned(),
        reason: error.to_string(),
    })?;
    Ok(find_openings(&listed.items))
}

/// Returns what the policies of a namespace leave open to script pods, for the operator. Empty if nothing
/// is open.
#[must_use]
pub fn find_openings(policies: &[NetworkPolicy]) -> Vec<String> {
    let mut openings = Vec::new();
    let mut closed = [("Ingress", false), ("Egress", false)];
    for policy in policies {
        let spec = policy.spec.clone().unwrap_or_default();
        let selected = selected(spec.pod_selector.as_ref());
        let which = match selected {
            Selected::None => continue,
            Selected::Some => "some",
            Selected::All => "all",
        };
        for (direction, is_closed) in &mut closed {
            *is_closed |= selected == Selected::All && denies_by_default(&spec, direction);
        }
        let name = policy.metadata.name.as_deref().unwrap_or_default();
        for (direction, rules) in [
            ("Ingress", spec.ingress.as_ref().map_or(0, Vec::len)),
            ("Egress", spec.egress.as_ref().map_or(0, Vec::len)),
        ] {
            if rules > 0 {
                openings.push(format!(
                    "the policy {name:?} selects {which} script pods and its {rules} rules for \
                     {direction} open what others close; delete it, or exclude script pods from its \
                     podSelector"
                ));
            }
        }
    }
    for (direction, _) in closed.into_iter().filter(|(_, is_closed)| !is_closed) {
        openings.push(format!(
            "no policy denies {direction} to all script pods; apply \
             deploy/kubernetes/scripts/2-network-policy.yaml"
        ));
    }
    openings
}

/// Returns whether a policy denies by default in a direction.
fn denies_by_default(spec: &NetworkPolicySpec, direction: &str) -> bool {
    let has_egress = spec.egress.as_ref().is_some_and(|rules| !rules.is_empty());
    match spec.policy_types.as_deref() {
        // The defaults of Kubernetes.
        None | Some([]) => direction == "Ingress" || has_egress,
        Some(types) => types.iter().any(|one| one == direction),
    }
}

/// The script pods that a selector matches, in increasing order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Selected {
    None,
    /// Depends on the call, or is unknown.
    Some,
    All,
}

impl Selected {
    fn all_if(holds: bool) -> Self {
        if holds { Self::All } else { Self::None }
    }
}

fn selected(selector: Option<&LabelSelector>) -> Selected {
    let selector = selector.cloned().unwrap_or_default();
    let labels = selector.match_labels.unwrap_or_default().into_iter();
    let expressions = selector.match_expressions.unwrap_or_default();
    let expressions = expressions.iter().map(matches_requirement);
    let all = labels.map(|(key, value)| has_label_value(&key, &[value])).chain(expressions);
    all.min().unwrap_or(Selected::All)
}

fn matches_requirement(requirement: &LabelSelectorRequirement) -> Selected {
    let LabelSelectorRequirement { key, operator, values } = requirement;
    let values = values.as_deref().unwrap_or_default();
    match operator.as_str() {
        "In" => has_label_value(key, values),
        "NotIn" => match has_label_value(key, values) {
            Selected::All => Selected::None,
            Selected::Some => Selected::Some,
            Selected::None => Selected::All,
        },
        "Exists" => Selected::all_if(labels("").contains_key(key)),
        "DoesNotExist" => Selected::all_if(!labels("").contains_key(key)),
        _ => Selected::Some,
    }
}

fn has_label_value(key: &str, values: &[String]) -> Selected {
    match labels("").get(key) {
        Some(_) if key == CALL => Selected::Some,
        value => Selected::all_if(value.is_some_and(|value| values.contains(value))),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn policy(name: &str, spec: &Value) -> NetworkPolicy {
        serde_json::from_value(json!({"metadata": {"name": name}, "spec": spec})).unwrap()
    }

    fn deny_all() -> NetworkPolicy {
        policy("deny-all", &json!({"podSelector": {}, "policyTypes": ["Ingress", "Egress"]}))
    }

    fn is_selected(selector: &Value) -> Selected {
        selected(Some(&serde_json::from_value(selector.clone()).unwrap()))
    }

    #[test]
    fn policies_must_deny_both_directions_to_all_pods() {
        assert_eq!(find_openings(&[deny_all()]), Vec::<String>::new());
        let halves = ["Ingress", "Egress"]
            .map(|direction| policy("half", &json!({"policyTypes": [direction]})));
        assert_eq!(find_openings(&halves), Vec::<String>::new());
        for (lacking, policies) in [
            (vec!["Ingress", "Egress"], vec![]),
            (vec!["Egress"], vec![policy("x", &json!({"policyTypes": ["Ingress"]}))]),
            // The default type is Ingress.
            (vec!["Egress"], vec![policy("x", &json!({"podSelector": {}}))]),
            (
                vec!["Ingress", "Egress"],
                vec![policy(
                    "one call's",
                    &json!({"podSelector": {"matchLabels": {(CALL): "0"}},
                        "policyTypes": ["Ingress", "Egress"]}),
                )],
            ),
        ] {
            let found = find_openings(&policies);
            assert_eq!(found.len(), lacking.len(), "{found:?}");
            for (problem, direction) in found.iter().zip(lacking) {
                assert!(problem.starts_with(&format!("no policy denies {direction}")), "{problem}");
            }
        }
    }

    #[test]
    fn opening_policies_are_named_and_others_ignored() {
        let other = json!({"matchLabels": {"app": "web"}});
        let harmless = [
            deny_all(),
            policy("web", &json!({"podSelector": other, "egress": [{}]})),
            policy("twice", &json!({"podSelector": {}, "policyTypes": ["Egress"]})),
        ];
        assert_eq!(find_openings(&harmless), Vec::<String>::new());
        let scripts = json!({"matchLabels": {"app.kubernetes.io/name": "rockbot-script"}});
        for (selector, rules, which, direction) in [
            (json!({}), json!({"egress": [{}]}), "all", "Egress"),
            (json!(null), json!({"egress": [{"to": []}]}), "all", "Egress"),
            (scripts, json!({"ingress": [{}], "policyTypes": ["Ingress"]}), "all", "Ingress"),
            (json!({"matchLabels": {(CALL): "0"}}), json!({"egress": [{}]}), "some", "Egress"),
        ] {
            let mut spec = rules;
            spec["podSelector"] = selector;
            let found = find_openings(&[deny_all(), policy("dns", &spec)]);
            assert_eq!(found.len(), 1, "{found:?}");
            let start = format!("the policy \"dns\" selects {which} script pods");
            assert!(found[0].starts_with(&start) && found[0].contains(direction), "{found:?}");
        }
    }

    #[test]
    fn selectors_match_like_kubernetes() {
        let (name, own) = ("app.kubernetes.io/name", "rockbot-script");
        let expression = |key: &str, operator: &str, values: &[&str]| json!({"matchExpressions": [{"key": key, "operator": operator, "values": values}]});
        for (selector, expected) in [
            (json!({}), Selected::All),
            (json!({"matchLabels": {name: own}}), Selected::All),
            (json!({"matchLabels": {name: own, "app": "x"}}), Selected::None),
            (json!({"matchLabels": {name: "other"}}), Selected::None),
            (expression(name, "In", &["other", own]), Selected::All),
            (expression(name, "In", &["other"]), Selected::None),
            (expression("app", "In", &["x"]), Selected::None),
            (expression(name, "NotIn", &[own]), Selected::None),
            (expression(name, "NotIn", &["other"]), Selected::All),
            // A missing label has none of the values.
            (expression("app", "NotIn", &["x"]), Selected::All),
            (expression(name, "Exists", &[]), Selected::All),
            (expression(CALL, "Exists", &[]), Selected::All),
            (expression("app", "Exists", &[]), Selected::None),
            (expression("app", "DoesNotExist", &[]), Selected::All),
            (expression(CALL, "DoesNotExist", &[]), Selected::None),
            (expression(CALL, "In", &["0"]), Selected::Some),
            (expression(CALL, "NotIn", &["0"]), Selected::Some),
            (expression(name, "Like", &["r*"]), Selected::Some),
        ] {
            assert_eq!(is_selected(&selector), expected, "{selector}");
        }
        let both = json!({"matchLabels": {name: own},
            "matchExpressions": [{"key": "app", "operator": "Exists"}]});
        assert_eq!(is_selected(&both), Selected::None, "all requirements must match");
    }
}
