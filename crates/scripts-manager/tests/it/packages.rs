//! Packages that pods of their own install into a volume.

use k8s_openapi::api::{
    core::v1::{PersistentVolume, PersistentVolumeClaim, Pod},
    networking::v1::NetworkPolicy,
};
use kube::{
    Api,
    api::{DeleteParams, PostParams},
};
use rockbot_scripts::{Requirements, ScriptRunner};
use rockbot_scripts_manager::{PackagesSection, PodsSection};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use tokio::time::{interval, timeout};

use crate::{
    fixture::{ClusterFixture, PATIENCE, call, in_cluster, script},
    install::INDEX,
};

const CLAIM: &str = "packages";
const INDEX_PORT: &str = "8080";

#[tokio::test]
async fn package_is_installed_once_into_volume_and_imported() {
    in_cluster(async |cluster| {
        create_claim(&cluster).await;
        let index = start_index(&cluster).await;
        let packages = PackagesSection {
            claim: Some(CLAIM.to_owned()),
            index_url: format!("http://{index}:{INDEX_PORT}/simple"),
            ..PackagesSection::default()
        };
        let runner = cluster.runner_with(PodsSection { packages, ..cluster.section() });
        let required = Requirements::parse(&["demo==1.0"]).unwrap();
        let script = script("import demo; print(demo.VALUE)").with_packages(required);
        let first = runner.run(&script, &call()).await.unwrap();
        assert_eq!((first.stdout.as_str(), first.stderr.as_str()), ("42\n", ""));
        // The second script needs no index.
        let pods: Api<Pod> = Api::namespaced(cluster.admin.clone(), &cluster.home);
        pods.delete("index", &DeleteParams::default().grace_period(0)).await.unwrap();
        assert_eq!(runner.run(&script, &call()).await.unwrap().stdout, "42\n");
    })
    .await;
}

/// Creates a claim with a folder of the node that every user may write. The cluster removes the folder with
/// the claim.
async fn create_claim(cluster: &ClusterFixture) {
    let path = format!("/tmp/{}", cluster.scripts);
    let host = json!({"path": path, "type": "DirectoryOrCreate"});
    let volume = json!({
        "metadata": {"name": cluster.scripts},
        "spec": {
            "accessModes": ["ReadWriteMany"],
            "capacity": {"storage": "1Gi"},
            "claimRef": {"namespace": cluster.scripts, "name": CLAIM},
            "hostPath": host,
            "persistentVolumeReclaimPolicy": "Delete",
            "storageClassName": "",
        },
    });
    create::<PersistentVolume>(&Api::all(cluster.admin.clone()), volume).await;
    let claim = json!({
        "metadata": {"name": CLAIM},
        "spec": {
            "accessModes": ["ReadWriteMany"],
            "resources": {"requests": {"storage": "1Gi"}},
            "storageClassName": "",
            "volumeName": cluster.scripts,
        },
    });
    let claims = Api::namespaced(cluster.admin.clone(), &cluster.scripts);
    create::<PersistentVolumeClaim>(&claims, claim).await;
    let permit = "import os; os.chmod('/packages', 0o777)";
    let pod = pod("permit", &[permit], &json!({"runAsUser": 0}), &json!({"hostPath": host}));
    create_pod(cluster, pod, |phase| phase == "Succeeded").await;
}

/// Starts a pod with the package index, and returns its address.
async fn start_index(cluster: &ClusterFixture) -> String {
    // Clusters that enforce policies must let installations reach it.
    let policy = json!({
        "metadata": {"name": "index"},
        "spec": {
            "podSelector": {"matchLabels": {"app.kubernetes.io/name": "rockbot-script-packages"}},
            "policyTypes": ["Egress"],
            "egress": [{}],
        },
    });
    let policies = Api::namespaced(cluster.admin.clone(), &cluster.scripts);
    create::<NetworkPolicy>(&policies, policy).await;
    let arguments = [INDEX, "0.0.0.0", INDEX_PORT];
    let mut pod = pod("index", &arguments, &json!({"runAsUser": 65532}), &json!({"emptyDir": {}}));
    pod["spec"]["containers"][0]["readinessProbe"] =
        json!({"httpGet": {"path": "/simple/demo/", "port": 8080}, "periodSeconds": 1});
    create_pod(cluster, pod, |phase| phase == "Running").await
}

/// Returns a pod that runs a Python program in the folder `/packages`, a volume.
fn pod(name: &str, program: &[&str], user: &Value, volume: &Value) -> Value {
    let mut volume = volume.clone();
    volume["name"] = json!("packages");
    let command = [&["python3", "-c"], program].concat();
    json!({
        "metadata": {"name": name},
        "spec": {
            "restartPolicy": "Never",
            "securityContext": user,
            "containers": [{
                "name": "python",
                "image": PodsSection::default().image,
                "imagePullPolicy": "IfNotPresent",
                "command": command,
                "workingDir": "/packages",
                "volumeMounts": [{"name": "packages", "mountPath": "/packages"}],
            }],
            "volumes": [volume],
        },
    })
}

/// Creates a pod in the namespace of the manager, waits until it is in a phase and no container of it is
/// starting, and returns its address.
async fn create_pod(
    cluster: &ClusterFixture,
    pod: Value,
    is_expected: impl Fn(&str) -> bool,
) -> String {
    let pods: Api<Pod> = Api::namespaced(cluster.admin.clone(), &cluster.home);
    let name = pod["metadata"]["name"].as_str().unwrap().to_owned();
    create(&pods, pod).await;
    let reached = async {
        let mut poll = interval(std::time::Duration::from_millis(100));
        loop {
            poll.tick().await;
            let status = pods.get(&name).await.unwrap().status.unwrap_or_default();
            let containers = status.container_statuses.unwrap_or_default();
            let is_ready = containers.iter().all(|one| {
                one.ready || one.state.as_ref().is_some_and(|state| state.terminated.is_some())
            });
            if is_ready && status.phase.as_deref().is_some_and(&is_expected) {
                return status.pod_ip.unwrap_or_default();
            }
        }
    };
    timeout(PATIENCE, reached).await.unwrap_or_else(|_| panic!("the pod {name} did not start"))
}

async fn create<K>(api: &Api<K>, object: Value)
where
    K: Clone + std::fmt::Debug + DeserializeOwned + serde::Serialize,
{
    let object: K = serde_json::from_value(object).unwrap();
    api.create(&PostParams::default(), &object).await.unwrap();
}
