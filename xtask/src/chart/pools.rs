//! Isolation of the pools of handlers in rendered objects.

use std::collections::BTreeMap;

use anyhow::{Context, Result, ensure};
use serde_json::Value;

use super::objects::documents;

/// Files that handlers may share: the store of call journals, and the broker's certificate authority.
const SHARED_FILES: [&str; 2] = ["store-url", "broker-ca.pem"];
/// Ports of an external broker, database and trace collector, whose addresses the chart does not know.
const EXTERNAL_PORTS: [u64; 4] = [4317, 4318, 5432, 5671];
const ANY_ADDRESS: &str = "0.0.0.0/0";
const PRIVATE_ADDRESSES: [&str; 4] =
    ["10.0.0.0/8", "169.254.0.0/16", "172.16.0.0/12", "192.168.0.0/16"];
const COMPONENT: &str = "app.kubernetes.io~1component";

/// Checks that no two deployments of handlers mount the same key, that no policy permits every private
/// address, and that handlers with `bash` reach no public address.
pub(super) fn check(stream: &str) -> Result<()> {
    let objects = objects(stream)?;
    let of_kind = |kind: &'static str| objects.iter().filter(move |object| object["kind"] == kind);
    let policies: Vec<&Value> = of_kind("NetworkPolicy").collect();
    for policy in &policies {
        check_private_addresses(policy)?;
    }
    let mut owners = BTreeMap::new();
    for deployment in of_kind("Deployment").filter(|object| is_handler(object)) {
        let name = text(deployment, "/metadata/name");
        for secret in secrets(deployment) {
            if let Some(other) = owners.insert(secret.clone(), name) {
                anyhow::bail!("{name} and {other} both mount {secret}");
            }
        }
        if offers_bash(deployment) {
            let component = text(deployment, &format!("/metadata/labels/{COMPONENT}"));
            let selector = format!("/spec/podSelector/matchLabels/{COMPONENT}");
            let own = policies.iter().filter(|policy| text(policy, &selector) == component);
            for policy in own {
                check_closed(policy)?;
            }
        }
    }
    Ok(())
}

fn objects(stream: &str) -> Result<Vec<Value>> {
    let parse = |document| {
        serde_saphyr::from_str::<Value>(document)
            .with_context(|| format!("a rendered object is not YAML:\n{document}"))
    };
    documents(stream).map(parse).collect()
}

fn text<'a>(object: &'a Value, pointer: &str) -> &'a str {
    object.pointer(pointer).and_then(Value::as_str).unwrap_or_default()
}

fn list<'a>(object: &'a Value, pointer: &str) -> impl Iterator<Item = &'a Value> {
    object.pointer(pointer).and_then(Value::as_array).into_iter().flatten()
}

fn is_handler(deployment: &Value) -> bool {
    text(deployment, "/spec/template/spec/containers/0/name") == "tool-handler"
}

fn offers_bash(deployment: &Value) -> bool {
    list(deployment, "/spec/template/spec/containers/0/env").any(|variable| {
        variable["name"] == "ROCKBOT_FILES__ALLOW_BASH" && variable["value"] == "true"
    })
}

/// Returns the secrets of a deployment that no other one may mount, as `SECRET/KEY` or `SECRET`.
fn secrets(deployment: &Value) -> Vec<String> {
    let mut found = Vec::new();
    for volume in list(deployment, "/spec/template/spec/volumes") {
        found.extend(volume.pointer("/secret/secretName").and_then(Value::as_str).map(Into::into));
        for source in list(volume, "/projected/sources") {
            let name = text(source, "/secret/name");
            let items = list(source, "/secret/items");
            let own = items.filter(|item| !SHARED_FILES.contains(&text(item, "/path")));
            found.extend(own.map(|item| format!("{name}/{}", text(item, "/key"))));
        }
    }
    let variables = list(deployment, "/spec/template/spec/containers/0/envFrom");
    let names = variables.map(|source| text(source, "/secretRef/name"));
    found.extend(names.filter(|name| !name.is_empty()).map(Into::into));
    found
}

fn check_private_addresses(policy: &Value) -> Result<()> {
    for block in list(policy, "/spec/egress").flat_map(|rule| list(rule, "/to")) {
        if text(block, "/ipBlock/cidr") == ANY_ADDRESS {
            let except: Vec<_> = list(block, "/ipBlock/except").collect();
            let permitted =
                PRIVATE_ADDRESSES.iter().find(|range| !except.contains(&&(**range).into()));
            ensure!(
                permitted.is_none(),
                "policy {} permits {}",
                text(policy, "/metadata/name"),
                permitted.unwrap_or(&"")
            );
        }
    }
    Ok(())
}

/// Checks that a policy permits no public address.
fn check_closed(policy: &Value) -> Result<()> {
    let name = text(policy, "/metadata/name");
    for rule in list(policy, "/spec/egress") {
        let is_open = match rule["to"].as_array() {
            Some(peers) => peers.iter().any(|peer| text(peer, "/ipBlock/cidr") == ANY_ADDRESS),
            None => list(rule, "/ports").any(|port| {
                port["port"].as_u64().is_none_or(|port| !EXTERNAL_PORTS.contains(&port))
            }),
        };
        ensure!(!is_open, "policy {name} of handlers with bash permits public addresses: {rule}");
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn handler(pool: &str, key: &str, environment: &str) -> String {
        format!(
            "---\nkind: Deployment\nmetadata:\n  name: {pool}\n  labels:\n    \
             app.kubernetes.io/component: {pool}\nspec:\n  template:\n    spec:\n      containers:\n      \
             - name: tool-handler\n        {environment}\n      volumes:\n      - name: secrets\n        \
             projected:\n          sources:\n          - secret:\n              name: keys\n              \
             items:\n              - {{key: {key}, path: broker-url}}\n              \
             - {{key: url, path: store-url}}\n"
        )
    }

    fn policy(component: &str, rule: &str) -> String {
        format!(
            "---\nkind: NetworkPolicy\nmetadata:\n  name: {component}\nspec:\n  podSelector:\n    \
             matchLabels:\n      app.kubernetes.io/component: {component}\n  egress:\n    - {rule}\n"
        )
    }

    const BASH: &str = "env: [{name: ROCKBOT_FILES__ALLOW_BASH, value: \"true\"}]";

    #[test]
    fn key_of_two_pools_is_refused() {
        let stream =
            |key| format!("{}{}", handler("files", "a", BASH), handler("web", key, "env: []"));
        check(&stream("b")).unwrap();
        let error = check(&stream("a")).unwrap_err().to_string();
        assert_eq!(error, "web and files both mount keys/a");
        let shared = "envFrom: [{secretRef: {name: all}}]";
        let stream = format!("{}{}", handler("a", "a", shared), handler("b", "b", shared));
        assert!(check(&stream).unwrap_err().to_string().contains("both mount all"));
    }

    #[test]
    fn public_addresses_are_refused_for_handlers_with_bash() {
        let all = "to: [{ipBlock: {cidr: 0.0.0.0/0, except: [10.0.0.0/8, 169.254.0.0/16, \
                   172.16.0.0/12, 192.168.0.0/16]}}]";
        let web = handler("web", "a", "env: []");
        check(&format!("{web}{}", policy("web", all))).unwrap();
        let files = handler("files", "a", BASH);
        for open in [all, "ports: [{port: 443}]", "ports: [{protocol: TCP}]"] {
            let error =
                check(&format!("{files}{}", policy("files", open))).unwrap_err().to_string();
            assert!(error.starts_with("policy files of handlers with bash"), "{error}");
        }
        for closed in ["ports: [{port: 5671}]", "to: [{podSelector: {}}]"] {
            check(&format!("{files}{}", policy("files", closed))).unwrap();
        }
    }

    #[test]
    fn private_addresses_are_refused() {
        let rule = "to: [{ipBlock: {cidr: 0.0.0.0/0, except: [10.0.0.0/8]}}]";
        let error = check(&policy("web", rule)).unwrap_err().to_string();
        assert_eq!(error, "policy web permits 169.254.0.0/16");
    }
}
