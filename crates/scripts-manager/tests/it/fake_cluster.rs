//! The program on RabbitMQ, with a fake API server instead of a cluster.

use std::{process::Stdio, sync::Arc};

use rockbot_bus_rabbitmq::{RabbitBus, RabbitConfig};
use rockbot_scripts::{BusRunner, Requirements, ScriptOutcome, ScriptRunner};
use rockbot_testkit::fixture::{fresh_namespace, reply_address, test_broker_url, within_timeout};
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::{
    io::{AsyncBufReadExt, BufReader},
    net::TcpListener,
    process::{Child, Command},
    sync::watch,
    task::JoinSet,
};

use crate::{
    api_errors::{FakeApi, LINES, router},
    fixture::{call, script},
    process::program,
};

/// A manager process and its cluster. Dropping it kills the process.
struct Manager {
    namespace: String,
    log: watch::Receiver<String>,
    _process: Child,
    _tasks: JoinSet<()>,
    _folder: TempDir,
}

impl Manager {
    /// Starts the program with additional settings, and waits until it is ready.
    async fn start(api: &Arc<FakeApi>, settings: &[(&str, &str)]) -> Self {
        let mut tasks = JoinSet::new();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let server = router(api);
        tasks.spawn(async move { axum::serve(listener, server).await.unwrap() });
        let folder = TempDir::new().unwrap();
        let kubeconfig = folder.path().join("kubeconfig");
        let config = json!({"apiVersion": "v1", "kind": "Config", "current-context": "fake",
            "clusters": [{"name": "fake", "cluster": {"server": format!("http://{address}")}}],
            "users": [{"name": "fake", "user": {}}],
            "contexts": [{"name": "fake", "context": {"cluster": "fake", "user": "fake"}}]});
        std::fs::write(&kubeconfig, config.to_string()).unwrap();
        let namespace = fresh_namespace();
        let mut command = program();
        command
            .env("KUBECONFIG", kubeconfig)
            .env("ROCKBOT_BUS__URL", test_broker_url())
            .env("ROCKBOT_BUS__NAMESPACE", &namespace)
            .env(
                "ROCKBOT_STORE__URL",
                format!("sqlite:{}", folder.path().join("calls.db").display()),
            )
            .env("ROCKBOT_STORE__SHARED", "true")
            .env("ROCKBOT_SCRIPTS__PROBE_NETWORK", "false")
            .env("ROCKBOT_LOG__LEVEL", "info,rockbot_tools=debug")
            .envs(settings.iter().copied())
            .stdin(Stdio::null())
            .stderr(Stdio::piped());
        let mut process = Command::from(command).kill_on_drop(true).spawn().unwrap();
        let mut lines = BufReader::new(process.stderr.take().unwrap()).lines();
        let (sender, log) = watch::channel(String::new());
        tasks.spawn(async move {
            while let Ok(Some(line)) = lines.next_line().await {
                sender.send_modify(|log| *log += &(line + "\n"));
            }
        });
        let manager = Self { namespace, log, _process: process, _tasks: tasks, _folder: folder };
        manager.wait_for_log("ready").await;
        manager
    }

    async fn wait_for_log(&self, expected: &str) {
        let mut log = self.log.clone();
        let found = within_timeout(expected, log.wait_for(|log| log.contains(expected))).await;
        assert!(found.is_ok(), "the manager exited:\n{}", *self.log.borrow());
    }

    /// Runs a script as an agent on the bus.
    async fn run(&self, packages: &[&str]) -> ScriptOutcome {
        let config = RabbitConfig::new(test_broker_url(), "test").with_namespace(&self.namespace);
        let bus = Arc::new(RabbitBus::start(&config).unwrap());
        within_timeout("the broker", bus.connected(rockbot_testkit::fixture::TEST_TIMEOUT))
            .await
            .unwrap();
        let agent = BusRunner::new(bus, reply_address("agent", "a"));
        let packages = Requirements::parse(packages).unwrap();
        agent.run(&script("print('ok')").with_packages(packages), &call()).await.unwrap()
    }
}

#[tokio::test]
async fn program_installs_requested_packages_once() {
    let api = Arc::new(FakeApi::default());
    let claim = "package-sets";
    let manager = Manager::start(&api, &[("ROCKBOT_SCRIPTS__PACKAGES__CLAIM", claim)]).await;
    for _ in 0..2 {
        assert_eq!(manager.run(&["numpy==2.1.3"]).await.stdout, "ok\n");
    }
    let pods = api.bodies.lock().unwrap().clone();
    let installs = |pod: &Value| {
        pod["metadata"]["labels"]["app.kubernetes.io/name"] == "rockbot-script-packages"
    };
    let kinds: Vec<_> = pods.iter().map(installs).collect();
    assert_eq!(kinds, [true, false, false], "{pods:#?}");
    for pod in &pods {
        let volumes = pod["spec"]["volumes"].as_array().expect("volumes");
        let is_claim = |volume: &Value| volume["persistentVolumeClaim"]["claimName"] == claim;
        assert!(volumes.iter().any(is_claim), "{pod:#}");
    }
}

#[tokio::test]
async fn program_stores_large_output_and_logs_the_call() {
    let text = "0123456789abcde\n".repeat(LINES);
    let api = Arc::new(FakeApi::printing(&text));
    let manager = Manager::start(&api, &[]).await;
    let outcome = manager.run(&[]).await;
    let facts = outcome.stdout.lines().next().expect("a line");
    let facts: Value = serde_json::from_str(facts).unwrap_or_else(|_| panic!("{facts}"));
    let facts = &facts["tool_output"];
    assert_eq!((&facts["bytes"], &facts["lines"]), (&json!(text.len()), &json!(LINES)));
    assert!(facts["handle"].as_str().is_some_and(|handle| handle.starts_with("out-")), "{facts}");
    manager.wait_for_log("tool response").await;
    let log = manager.log.borrow().clone();
    assert!(log.contains("tool request"), "{log}");
    assert!(!log.contains("0123456789abcde"), "the output is in the log");
}
