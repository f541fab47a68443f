//! Cluster fixture: two namespaces per test, with the manifests of `deploy/kubernetes/scripts`.

use std::{future::Future, io::Write, panic::resume_unwind, path::Path, sync::Arc, time::Duration};

use axum::{
    Router,
    extract::{Request, State},
    http::StatusCode,
    response::{IntoResponse, Response},
};
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
use tokio::{
    sync::Notify,
    time::{Instant, interval, timeout},
};

const TESTS: &str = "rockbot.dev/test";
/// Time limit for a pod to start, exit or be deleted on a busy machine.
pub(crate) const PATIENCE: Duration = Duration::from_secs(100);

/// Prints a line that is unique to its run, and `done` after its release.
const HELD: &str = "
import os, time
print(open('/proc/sys/kernel/random/uuid').read().strip(), flush=True)
while open(os.environ['ROCKBOT_INPUT_FILE']).read() == 'held':
    time.sleep(0.1)
print('done')
";

/// The namespaces of a test.
#[derive(Clone)]
pub(crate) struct ClusterFixture {
    /// Client with all permissions.
    pub(crate) admin: Client,
    /// Client with the manager's permissions.
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

/// Runs a test in new namespaces, and removes them afterwards.
#[expect(clippy::print_stderr, reason = "part of the output of the failed test")]
pub(crate) async fn in_cluster<F: Future<Output = ()> + Send + 'static>(
    test: impl FnOnce(ClusterFixture) -> F,
) {
    let cluster = ClusterFixture::create().await;
    let result = tokio::spawn(test(cluster.clone())).await;
    if result.is_err() {
        eprintln!("{}", cluster.describe().await);
    }
    for namespace in [&cluster.scripts, &cluster.home] {
        cluster.remove(namespace).await;
    }
    if let Err(error) = result {
        resume_unwind(error.into_panic());
    }
}

/// Returns the manifests in the order of their application.
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
    async fn create() -> Self {
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

    /// Returns the defaults with a low CPU request, for small machines.
    pub(crate) fn section(&self) -> PodsSection {
        PodsSection {
            namespace: self.scripts.clone(),
            cpu: "50m".to_owned(),
            ..PodsSection::default()
        }
    }

    /// Starts a runner with the manager's permissions.
    pub(crate) fn runner(&self) -> KubernetesRunner {
        self.runner_with(self.section())
    }

    /// Starts a runner with the manager's permissions and the given configuration.
    pub(crate) fn runner_with(&self, section: PodsSection) -> KubernetesRunner {
        KubernetesRunner::start(self.manager.clone(), section).unwrap()
    }

    /// Starts a runner, and returns it with the event of its first request for a log: by then it follows
    /// a running script.
    pub(crate) fn observed_runner(&self) -> (KubernetesRunner, Arc<Notify>) {
        let follows = Arc::new(Notify::new());
        let state = (self.manager.clone(), follows.clone());
        let proxy = Router::new().fallback(forward).with_state(state);
        let client = Client::new(proxy, self.scripts.as_str());
        (KubernetesRunner::start(client, self.section()).unwrap(), follows)
    }

    /// Ends the waiting of [`held_script`]s. Their input is an annotation, and the node writes its changes
    /// to the file in the pod.
    pub(crate) async fn release(&self) {
        const INPUT: &str = "rockbot.dev/input";
        let is_held = |pod: &Pod| {
            let annotations = pod.metadata.annotations.as_ref();
            annotations.and_then(|all| all.get(INPUT)).is_some_and(|input| input == "held")
        };
        let patch = serde_json::json!({"metadata": {"annotations": {INPUT: "released"}}});
        let pods = self.pods().list(&ListParams::default()).await.unwrap();
        for pod in pods.items.into_iter().filter(is_held) {
            let (name, patch) = (pod.metadata.name.unwrap(), Patch::Merge(&patch));
            self.pods().patch(&name, &PatchParams::default(), &patch).await.unwrap();
        }
    }

    /// Returns a kubeconfig with the manager's credentials.
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

    /// Returns the API of script pods.
    pub(crate) fn pods(&self) -> Api<Pod> {
        Api::namespaced(self.admin.clone(), &self.scripts)
    }

    /// Returns the names of the existing pods.
    pub(crate) async fn names(&self) -> Vec<String> {
        let pods = self.pods().list(&ListParams::default()).await.unwrap();
        pods.items.into_iter().filter_map(|pod| pod.metadata.name).collect()
    }

    /// Deletes all pods.
    pub(crate) async fn delete_pods(&self) {
        let at_once = DeleteParams::default().grace_period(0);
        let all = self.pods().delete_collection(&at_once, &ListParams::default()).await;
        all.expect("deleted");
    }

    /// Waits until `count` pods match.
    pub(crate) async fn wait_for(&self, event: &str, count: usize, matches: impl Fn(&Pod) -> bool) {
        let mut poll = interval(Duration::from_millis(100));
        let happened = async {
            loop {
                poll.tick().await;
                let pods = self.pods().list(&ListParams::default()).await.unwrap();
                if pods.items.iter().filter(|pod| matches(pod)).count() == count {
                    return;
                }
            }
        };
        assert!(timeout(PATIENCE, happened).await.is_ok(), "did not happen: {event}");
    }

    /// Waits until all pods are deleted.
    pub(crate) async fn wait_for_none(&self) {
        let mut poll = interval(Duration::from_millis(100));
        let deleted = async {
            while !self.names().await.is_empty() {
                poll.tick().await;
            }
        };
        assert!(timeout(PATIENCE, deleted).await.is_ok(), "not deleted: {:?}", self.names().await);
    }

    /// Sets the quota of pods, and waits until the quota controller has applied it.
    pub(crate) async fn set_pod_quota(&self, limit: &str) {
        let quotas: Api<ResourceQuota> = Api::namespaced(self.admin.clone(), &self.scripts);
        let patch = serde_json::json!({"spec": {"hard": {"pods": limit}}});
        quotas.patch("scripts", &PatchParams::default(), &Patch::Merge(patch)).await.unwrap();
        let mut poll = interval(Duration::from_millis(100));
        let applied = async {
            loop {
                poll.tick().await;
                let quota = quotas.get("scripts").await.unwrap();
                let hard = quota.status.and_then(|status| status.hard).unwrap_or_default();
                if hard.get("pods").is_some_and(|pods| pods.0 == limit) {
                    return;
                }
            }
        };
        assert!(timeout(PATIENCE, applied).await.is_ok(), "the quota was not applied");
    }

    /// Deletes the network policy.
    pub(crate) async fn delete_policy(&self) {
        let deleted = self.policies().delete("deny-all", &DeleteParams::default()).await;
        deleted.expect("deleted");
    }

    /// Creates the network policy again.
    pub(crate) async fn restore_policy(&self) {
        for manifest in manifests() {
            if manifest.types.as_ref().is_some_and(|types| types.kind == "NetworkPolicy") {
                apply(&self.admin, manifest, &self.scripts, &self.home).await;
            }
        }
    }

    /// Adds a policy that opens the network to all pods of the namespace.
    pub(crate) async fn allow_egress(&self, name: &str) {
        let spec =
            serde_json::json!({"podSelector": {}, "policyTypes": ["Egress"], "egress": [{}]});
        let policy = serde_json::json!({"metadata": {"name": name}, "spec": spec});
        let policy = serde_json::from_value(policy).expect("a policy");
        self.policies().create(&PostParams::default(), &policy).await.expect("created");
    }

    /// Asserts that the policies of the namespace close the network to scripts.
    pub(crate) async fn assert_policy_is_closed(&self) {
        let openings = check_namespace(self.admin.clone(), &self.scripts).await.unwrap();
        assert_eq!(openings, Vec::<String>::new());
    }

    /// Returns whether the cluster is declared to enforce network policies. A test can't distinguish a
    /// network plugin that does not from a wrong policy.
    pub(crate) fn enforces_policies(&self) -> bool {
        std::env::var_os("ROCKBOT_TEST_NETWORK_POLICY").is_some_and(|value| value == "enforced")
    }

    fn policies(&self) -> Api<NetworkPolicy> {
        Api::namespaced(self.admin.clone(), &self.scripts)
    }

    /// Describes the nodes and the test's pods, to distinguish unschedulable pods from scripts that do not
    /// run.
    async fn describe(&self) -> String {
        let (nodes, pods) = (Api::<Node>::all(self.admin.clone()), self.pods());
        let all = ListParams::default();
        let lists = async { tokio::try_join!(nodes.list(&all), pods.list(&all)) };
        let (nodes, pods) = match timeout(Duration::from_secs(10), lists).await {
            Ok(Ok(lists)) => lists,
            Ok(Err(error)) => return format!("cluster request failed: {error}"),
            Err(_) => return "the cluster does not respond".to_owned(),
        };
        let mut text = String::new();
        for node in nodes {
            let taints = node.spec.and_then(|spec| spec.taints).unwrap_or_default();
            let conditions = node.status.and_then(|status| status.conditions).unwrap_or_default();
            let name = node.metadata.name.unwrap_or_default();
            text += &format!("node {name}, taints {taints:?}, conditions {conditions:?}\n");
        }
        for pod in pods {
            let name = pod.metadata.name.unwrap_or_default();
            text += &format!("pod {name}: {:?}\n", pod.status.unwrap_or_default());
        }
        text
    }

    async fn remove(&self, namespace: &str) {
        let all = (DeleteParams::default().grace_period(0), ListParams::default());
        let pods: Api<Pod> = Api::namespaced(self.admin.clone(), namespace);
        let _ = pods.delete_collection(&all.0, &all.1).await;
        let namespaces: Api<Namespace> = Api::all(self.admin.clone());
        let _ = namespaces.delete(namespace, &DeleteParams::default()).await;
    }
}

/// Creates a script.
pub(crate) fn script(code: &str) -> Script {
    Script::new(code).unwrap()
}

/// Creates a script that runs until [`ClusterFixture::release`], however slow the cluster is.
pub(crate) fn held_script() -> Script {
    script(HELD).with_input("held").unwrap().with_timeout(PATIENCE).unwrap()
}

/// Creates the context of a new call with a distant deadline.
pub(crate) fn call() -> ToolContext {
    let session = SessionId::new("session").unwrap();
    let mut context = ToolContext::new("run_script", session, AgentName::new("agent").unwrap());
    context.deadline = Instant::now() + PATIENCE;
    context
}

/// Runs a script in a new call.
pub(crate) async fn run(
    runner: &KubernetesRunner,
    code: &str,
) -> Result<ScriptOutcome, ToolFailure> {
    runner.run(&script(code), &call()).await
}

/// Returns whether the script of a pod runs.
pub(crate) fn is_running(pod: &Pod) -> bool {
    let status = pod.status.as_ref();
    let container = status.and_then(|status| status.container_statuses.iter().flatten().next());
    container.and_then(|one| one.state.as_ref()).is_some_and(|state| state.running.is_some())
}

/// Forwards a request to the API server.
async fn forward(
    State((client, follows)): State<(Client, Arc<Notify>)>,
    request: Request,
) -> Response {
    if request.uri().path().ends_with("/log") {
        follows.notify_one();
    }
    let (parts, body) = request.into_parts();
    let body = axum::body::to_bytes(body, usize::MAX).await.expect("a body");
    let request = http::Request::from_parts(parts, kube::client::Body::from(body));
    match client.send(request).await {
        Ok(response) => response.map(axum::body::Body::new),
        Err(_) => StatusCode::BAD_GATEWAY.into_response(),
    }
}

/// Returns the path of the kubeconfig of the test cluster.
pub(crate) fn kubeconfig() -> std::ffi::OsString {
    let path = ["ROCKBOT_TEST_KUBECONFIG", "KUBECONFIG"].into_iter().find_map(std::env::var_os);
    path.expect(
        "these tests require a Kubernetes cluster: `kind create cluster`, then \
         `kind get kubeconfig > kind.yaml` and set ROCKBOT_TEST_KUBECONFIG to that file; they create \
         namespaces and remove them",
    )
}

async fn config() -> Config {
    let kubeconfig = Kubeconfig::read_from(kubeconfig()).expect("a kubeconfig");
    Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default())
        .await
        .expect("a cluster in the kubeconfig")
}

/// Applies a manifest with renamed namespaces.
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

/// Creates a client with the permissions of the manager's service account.
async fn as_manager(admin: &Client, home: &str, mut config: Config) -> (Client, String) {
    let accounts: Api<ServiceAccount> = Api::namespaced(admin.clone(), home);
    let spec = TokenRequestSpec { expiration_seconds: Some(3600), ..TokenRequestSpec::default() };
    let request = TokenRequest { spec, ..TokenRequest::default() };
    let (name, now) = ("rockbot-scripts-manager", PostParams::default());
    let response = accounts.create_token_request(name, &now, &request).await;
    let token = response.expect("a token of the manager").status.expect("a token").token;
    config.auth_info = serde_json::from_value(serde_json::json!({"token": token})).unwrap();
    (Client::try_from(config).expect("a client with the token"), token)
}

/// Removes the namespaces of killed tests.
async fn remove_leftovers(admin: &Client) {
    let namespaces: Api<Namespace> = Api::all(admin.clone());
    let found = namespaces.list(&ListParams::default().labels(TESTS)).await;
    let found = found.expect("namespaces");
    let is_old = |namespace: &Namespace| {
        let created = namespace.metadata.creation_timestamp.as_ref();
        created.is_some_and(|created| Timestamp::now().as_second() - created.0.as_second() > 900)
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
