//! Where scripts are tested: two namespaces of a cluster that nobody else uses, with the manifests of
//! `deploy/kubernetes/scripts` in them.

use std::{future::Future, io::Write, panic::resume_unwind, path::Path, time::Duration};

use futures_util::{StreamExt, TryStreamExt, stream};
use k8s_openapi::{
    api::{
        authentication::v1::{TokenRequest, TokenRequestSpec},
        core::v1::{Namespace, Node, Pod, ResourceQuota, ServiceAccount},
        networking::v1::NetworkPolicy,
    },
    jiff::Timestamp,
};
use kube::{
    Client, Config,
    api::{
        Api, ApiResource, DeleteParams, DynamicObject, GroupVersionKind, ListParams, Patch,
        PatchParams, PostParams,
    },
    config::{KubeConfigOptions, Kubeconfig},
};
use rockbot_contracts::{AgentName, SessionId, ToolCallId};
use rockbot_scripts::{Script, ScriptOutcome, ScriptRunner};
use rockbot_scripts_manager::{KubernetesRunner, PodsSection, policies::check_namespace};
use rockbot_tools::{ToolContext, ToolFailure};
use tempfile::NamedTempFile;
use tokio::time::{Instant, interval, timeout};

const TESTS: &str = "rockbot.dev/test";
/// No pod takes longer to start, to end or to go, even on a busy machine.
pub(crate) const PATIENCE: Duration = Duration::from_secs(100);

/// A test's part of the cluster.
#[derive(Clone)]
pub(crate) struct ClusterFixture {
    /// May do anything.
    pub(crate) admin: Client,
    /// May do what the manager may.
    pub(crate) manager: Client,
    /// The token of the manager's service account.
    pub(crate) token: String,
    /// The address of the API server.
    pub(crate) api_server: String,
    /// The namespace of the scripts.
    pub(crate) scripts: String,
    /// The namespace of the manager.
    pub(crate) home: String,
}

/// Runs a test in namespaces of its own, and removes them whatever comes of it.
#[expect(clippy::print_stderr, reason = "it goes with what the failed test prints")]
pub(crate) async fn in_cluster<F: Future<Output = ()> + Send + 'static>(
    test: impl FnOnce(ClusterFixture) -> F,
) {
    let cluster = ClusterFixture::make().await;
    let ended = tokio::spawn(test(cluster.clone())).await;
    if ended.is_err() {
        eprintln!("{}", cluster.seen().await);
    }
    for namespace in [&cluster.scripts, &cluster.home] {
        cluster.remove(namespace).await;
    }
    if let Err(failed) = ended {
        resume_unwind(failed.into_panic());
    }
}

/// The manifests, in the order in which they are applied.
pub(crate) fn manifests() -> Vec<DynamicObject> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../deploy/kubernetes/scripts");
    let mut files: Vec<_> = folder.read_dir().unwrap().map(|entry| entry.unwrap().path()).collect();
    files.sort();
    let read = |path: &std::path::PathBuf| -> Vec<DynamicObject> {
        let text = std::fs::read_to_string(path).unwrap();
        serde_saphyr::from_multiple(&text).unwrap_or_else(|error| panic!("{path:?}: {error}"))
    };
    files
        .iter()
        .filter(|path| path.extension().is_some_and(|end| end == "yaml"))
        .flat_map(read)
        .collect()
}

impl ClusterFixture {
    async fn make() -> Self {
        let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
        let config = config().await;
        let admin = Client::try_from(config.clone()).expect("a client of the cluster");
        remove_leftovers(&admin).await;
        let unique = ToolCallId::generate().as_str().replace(|c: char| !c.is_alphanumeric(), "");
        let unique = unique[unique.len() - 12..].to_lowercase();
        let (scripts, home) = (format!("rockbot-scripts-{unique}"), format!("rockbot-{unique}"));
        for manifest in manifests() {
            apply(&admin, manifest, &scripts, &home).await;
        }
        let api_server = config.cluster_url.to_string();
        let (manager, token) = as_manager(&admin, &home, config).await;
        Self { admin, manager, token, api_server, scripts, home }
    }

    /// The defaults, with scripts small enough for a small machine.
    pub(crate) fn section(&self) -> PodsSection {
        PodsSection {
            namespace: self.scripts.clone(),
            cpu: "50m".to_owned(),
            ..PodsSection::default()
        }
    }

    /// A runner with the manager's rights.
    pub(crate) fn runner(&self) -> KubernetesRunner {
        self.runner_with(self.section())
    }

    /// The same, otherwise configured.
    pub(crate) fn runner_with(&self, section: PodsSection) -> KubernetesRunner {
        KubernetesRunner::start(self.manager.clone(), section).unwrap()
    }

    /// A file by which a process reaches the cluster as the manager.
    pub(crate) fn kubeconfig(&self) -> NamedTempFile {
        let text = std::fs::read_to_string(kubeconfig()).expect("a kubeconfig");
        let mut config: serde_json::Value = serde_saphyr::from_str(&text).expect("YAML");
        for user in config["users"].as_array_mut().into_iter().flatten() {
            user["user"] = serde_json::json!({"token": self.token});
        }
        let mut file = NamedTempFile::new().expect("a file");
        file.write_all(config.to_string().as_bytes()).expect("written");
        file
    }

    /// The pods of scripts.
    pub(crate) fn pods(&self) -> Api<Pod> {
        Api::namespaced(self.admin.clone(), &self.scripts)
    }

    /// The names of the pods that there are now.
    pub(crate) async fn names(&self) -> Vec<String> {
        let pods = self.pods().list(&ListParams::default()).await.unwrap();
        pods.items.into_iter().filter_map(|pod| pod.metadata.name).collect()
    }

    /// Has all pods deleted.
    pub(crate) async fn delete_pods(&self) {
        let at_once = DeleteParams::default().grace_period(0);
        let all = self.pods().delete_collection(&at_once, &ListParams::default()).await;
        all.expect("an administrator may do that");
    }

    /// Waits until there are `count` pods that satisfy `holds`.
    pub(crate) async fn wait_for(&self, what: &str, count: usize, holds: impl Fn(&Pod) -> bool) {
        let mut look = interval(Duration::from_millis(100));
        let seen = async {
            loop {
                look.tick().await;
                let pods = self.pods().list(&ListParams::default()).await.unwrap();
                if pods.items.iter().filter(|pod| holds(pod)).count() == count {
                    return;
                }
            }
        };
        assert!(timeout(PATIENCE, seen).await.is_ok(), "did not happen: {what}");
    }

    /// Waits until no pod is left.
    pub(crate) async fn wait_for_none(&self) {
        let mut look = interval(Duration::from_millis(100));
        let gone = async {
            while !self.names().await.is_empty() {
                look.tick().await;
            }
        };
        assert!(timeout(PATIENCE, gone).await.is_ok(), "left over: {:?}", self.names().await);
    }

    /// Changes how many pods there may be, and waits until that is taken up: the quota controller
    /// counts by itself, and late.
    pub(crate) async fn quota_of_pods(&self, most: &str) {
        let quotas: Api<ResourceQuota> = Api::namespaced(self.admin.clone(), &self.scripts);
        let patch = serde_json::json!({"spec": {"hard": {"pods": most}}});
        quotas.patch("scripts", &PatchParams::default(), &Patch::Merge(patch)).await.unwrap();
        let mut look = interval(Duration::from_millis(100));
        let counted = async {
            loop {
                look.tick().await;
                let quota = quotas.get("scripts").await.unwrap();
                let hard = quota.status.and_then(|status| status.hard).unwrap_or_default();
                if hard.get("pods").is_some_and(|pods| pods.0 == most) {
                    return;
                }
            }
        };
        assert!(timeout(PATIENCE, counted).await.is_ok(), "the quota is not taken up");
    }

    /// Takes the fence away.
    pub(crate) async fn without_policy(&self) {
        let deleted = self.policies().delete("deny-all", &DeleteParams::default()).await;
        deleted.expect("there was a policy");
    }

    /// Puts the fence up again.
    pub(crate) async fn with_policy(&self) {
        for manifest in manifests() {
            if manifest.types.as_ref().is_some_and(|types| types.kind == "NetworkPolicy") {
                apply(&self.admin, manifest, &self.scripts, &self.home).await;
            }
        }
    }

    /// Adds a policy that opens the network to whoever is in the namespace.
    pub(crate) async fn allow_all_to_go_out(&self, name: &str) {
        let spec =
            serde_json::json!({"podSelector": {}, "policyTypes": ["Egress"], "egress": [{}]});
        let policy = serde_json::json!({"metadata": {"name": name}, "spec": spec});
        let policy = serde_json::from_value(policy).expect("a policy");
        self.policies().create(&PostParams::default(), &policy).await.expect("it is taken");
    }

    /// Nothing in the namespace opens the network to scripts.
    pub(crate) async fn assert_policy_is_there(&self) {
        let problems = check_namespace(self.admin.clone(), &self.scripts).await.unwrap();
        assert_eq!(problems, Vec::<String>::new());
    }

    /// Whether whoever runs the tests swears that the cluster has a network plugin that enforces
    /// policies. Nobody else can tell one that does not from a policy that is wrong.
    pub(crate) fn enforces_policies(&self) -> bool {
        std::env::var_os("ROCKBOT_TEST_NETWORK_POLICY").is_some_and(|value| value == "enforced")
    }

    fn policies(&self) -> Api<NetworkPolicy> {
        Api::namespaced(self.admin.clone(), &self.scripts)
    }

    /// What the cluster says of its nodes and of the test's pods: without it, a node that takes no pods
    /// looks like a script that does not run.
    async fn seen(&self) -> String {
        let (nodes, pods) = (Api::<Node>::all(self.admin.clone()), self.pods());
        let all = ListParams::default();
        let lists = async { tokio::try_join!(nodes.list(&all), pods.list(&all)) };
        let (nodes, pods) = match timeout(Duration::from_secs(10), lists).await {
            Ok(Ok(lists)) => lists,
            Ok(Err(error)) => return format!("the cluster answers {error}"),
            Err(_) => return "the cluster does not answer".to_owned(),
        };
        let mut seen = String::new();
        for node in nodes {
            let taints = node.spec.and_then(|spec| spec.taints).unwrap_or_default();
            let conditions = node.status.and_then(|status| status.conditions).unwrap_or_default();
            let name = node.metadata.name.unwrap_or_default();
            seen += &format!("node {name}, taints {taints:?}, conditions {conditions:?}\n");
        }
        for pod in pods {
            let name = pod.metadata.name.unwrap_or_default();
            seen += &format!("pod {name}: {:?}\n", pod.status.unwrap_or_default());
        }
        seen
    }

    async fn remove(&self, namespace: &str) {
        let all = (DeleteParams::default().grace_period(0), ListParams::default());
        let pods: Api<Pod> = Api::namespaced(self.admin.clone(), namespace);
        let _ = pods.delete_collection(&all.0, &all.1).await;
        let namespaces: Api<Namespace> = Api::all(self.admin.clone());
        let _ = namespaces.delete(namespace, &DeleteParams::default()).await;
    }
}

/// A script.
pub(crate) fn script(code: &str) -> Script {
    Script::new(code).unwrap()
}

/// A fresh call, with time enough.
pub(crate) fn call() -> ToolContext {
    let session = SessionId::new("session").unwrap();
    let mut context = ToolContext::new("run_script", session, AgentName::new("agent").unwrap());
    context.deadline = Instant::now() + PATIENCE;
    context
}

/// Runs a script for a fresh call.
pub(crate) async fn run(
    runner: &KubernetesRunner,
    code: &str,
) -> Result<ScriptOutcome, ToolFailure> {
    runner.run(&script(code), &call()).await
}

/// Whether a script of a pod runs.
pub(crate) fn is_running(pod: &Pod) -> bool {
    let status = pod.status.as_ref();
    let container = status.and_then(|status| status.container_statuses.iter().flatten().next());
    container.and_then(|one| one.state.as_ref()).is_some_and(|state| state.running.is_some())
}

/// The file by which the tests reach the cluster.
pub(crate) fn kubeconfig() -> std::ffi::OsString {
    let path = ["ROCKBOT_TEST_KUBECONFIG", "KUBECONFIG"].into_iter().find_map(std::env::var_os);
    path.expect(
        "these tests need a Kubernetes cluster: `kind create cluster`, then \
         `kind get kubeconfig > kind.yaml` and set ROCKBOT_TEST_KUBECONFIG to that file; they make \
         namespaces of their own and remove them",
    )
}

async fn config() -> Config {
    let kubeconfig = Kubeconfig::read_from(kubeconfig()).expect("the kubeconfig can be read");
    Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default())
        .await
        .expect("the kubeconfig names a cluster")
}

/// Applies a manifest to namespaces of another name.
async fn apply(admin: &Client, mut manifest: DynamicObject, scripts: &str, home: &str) {
    let rename = |name: &mut String| match name.as_str() {
        "rockbot-scripts" => scripts.clone_into(name),
        "rockbot" => home.clone_into(name),
        _ => {}
    };
    let types = manifest.types.clone().expect("a kind");
    let kind = GroupVersionKind::try_from(&types).expect("a version and a kind");
    let resource = ApiResource::from_gvk(&kind);
    if types.kind == "Namespace" {
        rename(manifest.metadata.name.as_mut().expect("a name"));
        let labels = manifest.metadata.labels.get_or_insert_default();
        labels.insert(TESTS.to_owned(), "true".to_owned());
    }
    let subjects = manifest.data.get_mut("subjects").and_then(serde_json::Value::as_array_mut);
    for subject in subjects.into_iter().flatten() {
        subject["namespace"] = home.into();
    }
    let api: Api<DynamicObject> = match &mut manifest.metadata.namespace {
        Some(namespace) => {
            rename(namespace);
            Api::namespaced_with(admin.clone(), namespace, &resource)
        }
        None => Api::all_with(admin.clone(), &resource),
    };
    let name = manifest.metadata.name.clone().expect("a name");
    api.patch(&name, &PatchParams::apply("tests"), &Patch::Apply(&manifest))
        .await
        .unwrap_or_else(|error| panic!("{} {name}: {error}", types.kind));
}

/// A client with the rights of the manager's service account.
async fn as_manager(admin: &Client, home: &str, mut config: Config) -> (Client, String) {
    let accounts: Api<ServiceAccount> = Api::namespaced(admin.clone(), home);
    let spec = TokenRequestSpec { expiration_seconds: Some(3600), ..TokenRequestSpec::default() };
    let request = TokenRequest { spec, ..TokenRequest::default() };
    let (name, now) = ("rockbot-scripts-manager", PostParams::default());
    let asked = accounts.create_token_request(name, &now, &request).await;
    let token = asked.expect("a token of the manager").status.expect("a token").token;
    config.auth_info = serde_json::from_value(serde_json::json!({"token": token})).unwrap();
    (Client::try_from(config).expect("a client with the token"), token)
}

/// Removes the namespaces of tests that were killed.
async fn remove_leftovers(admin: &Client) {
    let namespaces: Api<Namespace> = Api::all(admin.clone());
    let found = namespaces.list(&ListParams::default().labels(TESTS)).await;
    let found = found.expect("the cluster of the kubeconfig answers");
    let is_old = |namespace: &Namespace| {
        let made = namespace.metadata.creation_timestamp.as_ref();
        made.is_some_and(|made| Timestamp::now().as_second() - made.0.as_second() > 900)
    };
    let old = found.items.into_iter().filter(is_old).filter_map(|one| one.metadata.name);
    let removed = stream::iter(old).map(Ok::<_, ()>).try_for_each(|name| {
        let namespaces = namespaces.clone();
        async move {
            let _ = namespaces.delete(&name, &DeleteParams::default()).await;
            Ok(())
        }
    });
    let _ = removed.await;
}
