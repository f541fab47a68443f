//! The manifests, and the manager's permissions in a cluster.

use k8s_openapi::api::{
    authorization::v1::{ResourceAttributes, SelfSubjectAccessReview, SelfSubjectAccessReviewSpec},
    core::v1::{Namespace, Node, Pod, Secret},
    networking::v1::NetworkPolicy,
    rbac::v1::{Role, RoleBinding},
};
use kube::{
    Api, Error,
    api::{DeleteParams, DynamicObject, ListParams, PostParams},
};
use serde::de::DeserializeOwned;

use crate::fixture::{in_cluster, manifests};

/// Returns the only manifest of a kind.
fn only_manifest<T: DeserializeOwned>(kind: &str) -> T {
    let has_kind = |one: &DynamicObject| one.types.as_ref().is_some_and(|types| types.kind == kind);
    let mut found: Vec<_> = manifests().into_iter().filter(has_kind).collect();
    assert_eq!(found.len(), 1, "{kind}");
    serde_json::from_value(serde_json::to_value(found.remove(0)).unwrap()).unwrap()
}

#[test]
fn manager_has_least_privileges() {
    let role: Role = only_manifest("Role");
    assert_eq!(role.metadata.namespace.as_deref(), Some("rockbot-scripts"));
    let rules: Vec<_> = role
        .rules
        .unwrap()
        .into_iter()
        .map(|rule| {
            assert_eq!(rule.api_groups, Some(vec![String::new()]));
            (rule.resources.unwrap(), rule.verbs)
        })
        .collect();
    let strings = |texts: &[&str]| texts.iter().map(ToString::to_string).collect::<Vec<_>>();
    let expected = [
        (strings(&["pods"]), strings(&["create", "get", "list", "watch", "delete"])),
        (strings(&["pods/log"]), strings(&["get"])),
    ];
    assert_eq!(rules, expected);
    let binding: RoleBinding = only_manifest("RoleBinding");
    assert_eq!(binding.metadata.namespace.as_deref(), Some("rockbot-scripts"));
    assert_eq!((binding.role_ref.kind.as_str(), binding.subjects.unwrap().len()), ("Role", 1));
}

#[test]
fn policy_covers_every_pod_of_namespace() {
    let policy: NetworkPolicy = only_manifest("NetworkPolicy");
    assert_eq!(policy.metadata.namespace.as_deref(), Some("rockbot-scripts"));
    let spec = policy.spec.unwrap();
    assert_eq!(spec.pod_selector, Some(Default::default()));
    assert_eq!(spec.policy_types, Some(vec!["Ingress".to_owned(), "Egress".to_owned()]));
    assert_eq!((spec.ingress, spec.egress), (None, None));
}

#[tokio::test]
async fn cluster_denies_manager_everything_else() {
    in_cluster(async |cluster| {
        let may = async |namespace: &str, group: &str, resource: &str, verb: &str| {
            let (resource, subresource) = match resource.split_once('/') {
                Some((resource, sub)) => (resource, Some(sub.to_owned())),
                None => (resource, None),
            };
            let attributes = ResourceAttributes {
                namespace: Some(namespace.to_owned()),
                group: Some(group.to_owned()),
                resource: Some(resource.to_owned()),
                subresource,
                verb: Some(verb.to_owned()),
                ..ResourceAttributes::default()
            };
            let spec = SelfSubjectAccessReviewSpec {
                resource_attributes: Some(attributes),
                ..SelfSubjectAccessReviewSpec::default()
            };
            let review = SelfSubjectAccessReview { spec, ..SelfSubjectAccessReview::default() };
            let reviews: Api<SelfSubjectAccessReview> = Api::all(cluster.manager.clone());
            let review = reviews.create(&PostParams::default(), &review).await.unwrap();
            review.status.unwrap().allowed
        };
        let here = cluster.scripts.as_str();
        let verbs =
            ["create", "get", "list", "watch", "delete", "deletecollection", "patch", "update"];
        for verb in verbs {
            let granted = verbs[..5].contains(&verb);
            assert_eq!(may(here, "", "pods", verb).await, granted, "{verb} pods");
            assert_eq!(may(here, "", "pods/log", verb).await, verb == "get", "{verb} pods/log");
            for namespace in ["default", "kube-system", cluster.home.as_str(), ""] {
                assert!(!may(namespace, "", "pods", verb).await, "{verb} pods in {namespace:?}");
            }
            for (group, resource) in [
                ("", "pods/exec"),
                ("", "pods/attach"),
                ("", "pods/portforward"),
                ("", "pods/ephemeralcontainers"),
                ("", "secrets"),
                ("", "configmaps"),
                ("", "events"),
                ("", "nodes"),
                ("", "namespaces"),
                ("", "serviceaccounts"),
                ("", "serviceaccounts/token"),
                ("", "resourcequotas"),
                ("apps", "deployments"),
                ("batch", "jobs"),
                ("networking.k8s.io", "networkpolicies"),
                ("rbac.authorization.k8s.io", "roles"),
                ("rbac.authorization.k8s.io", "rolebindings"),
                ("rbac.authorization.k8s.io", "clusterrolebindings"),
            ] {
                assert!(!may(here, group, resource, verb).await, "{verb} {resource}");
            }
        }
        for verb in ["escalate", "bind", "impersonate", "*"] {
            assert!(!may(here, "rbac.authorization.k8s.io", "roles", verb).await, "{verb}");
        }

        // Requests are denied as well, not only by the access review.
        let client = cluster.manager.clone();
        let list = ListParams::default();
        assert_denied(Api::<Secret>::namespaced(client.clone(), here).list(&list).await);
        assert_denied(Api::<Pod>::namespaced(client.clone(), "kube-system").list(&list).await);
        assert_denied(Api::<Node>::all(client.clone()).list(&list).await);
        let secret = Secret::default();
        let mut named = secret.clone();
        named.metadata.name = Some("x".to_owned());
        let secrets = Api::<Secret>::namespaced(client.clone(), here);
        assert_denied(secrets.create(&PostParams::default(), &named).await);
        let namespaces = Api::<Namespace>::all(client);
        assert_denied(namespaces.delete(here, &DeleteParams::default()).await);
    })
    .await;
}

fn assert_denied<T: std::fmt::Debug>(result: Result<T, Error>) {
    match result {
        Err(Error::Api(status)) if status.code == 403 => {}
        other => panic!("not denied: {other:?}"),
    }
}
