//! Faulty API servers, in process: no cluster, no sockets.

use std::{
    convert::Infallible,
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use axum::{
    Json, Router,
    body::Body,
    extract::State,
    http::{StatusCode, Uri},
    response::{IntoResponse, Response},
    routing::{get, post},
};
use base64::{Engine, prelude::BASE64_STANDARD};
use futures_util::{StreamExt, stream};
use kube::Client;
use rockbot_bus::MemoryBus;
use rockbot_contracts::{Executed, InstanceId, ToolErrorCode};
use rockbot_scripts::{BusRunner, Requirements, ScriptOutcome, ScriptRunner};
use rockbot_scripts_manager::{
    KubernetesRunner, PackagesSection, PodsSection, ScriptsManager, pod::build_pod,
};
use rockbot_store::{Clock, MemoryStore};
use rockbot_testkit::fixture::{reply_address, within_timeout};
use rockbot_tool_rpc::{CallJournal, HandlerSection, JournalOptions};
use rockbot_tools::{
    LayerOptions, Outputs, OutputsSection, Tool, ToolContext, ToolFailure, ToolOutput, ToolUpdate,
};
use serde_json::{Value, json};
use tokio::sync::Notify;

use crate::fixture::{call, script};

const CODE: &str = "print('ok')";
/// Lines of 16 bytes of an output of 2 MiB.
pub(crate) const LINES: usize = 128 * 1024;

/// A fake API server with prepared responses. Creations and watches get their responses in turn; the last
/// one repeats.
pub(crate) struct FakeApi {
    /// The objects of all creations.
    pub(crate) bodies: Mutex<Vec<Value>>,
    created: Vec<(StatusCode, Value)>,
    watched: Vec<String>,
    found: (StatusCode, Value),
    /// Number of requests for a pod that fail before one succeeds.
    failures: AtomicUsize,
    log: &'static str,
    /// Keeps the script running until its log was followed.
    followed: bool,
    was_followed: Arc<Notify>,
    creations: AtomicUsize,
    watches: AtomicUsize,
    deletions: AtomicUsize,
    /// Number of reads of the log without following it.
    reads: AtomicUsize,
}

impl Default for FakeApi {
    fn default() -> Self {
        Self {
            bodies: Mutex::default(),
            created: vec![(StatusCode::CREATED, pod(&json!({"phase": "Pending"})))],
            watched: vec![event("MODIFIED", &pod(&exited("exit 0 5 3\n")))],
            found: (StatusCode::OK, pod(&json!({"phase": "Pending"}))),
            failures: AtomicUsize::new(0),
            log: "b2sK\n",
            followed: false,
            was_followed: Arc::new(Notify::new()),
            creations: AtomicUsize::new(0),
            watches: AtomicUsize::new(0),
            deletions: AtomicUsize::new(0),
            reads: AtomicUsize::new(0),
        }
    }
}

impl FakeApi {
    /// Returns an API whose pods print a text and exit.
    pub(crate) fn printing(text: &str) -> Self {
        let parts = text.as_bytes().chunks(48 * 1024);
        let log: String = parts.map(|part| BASE64_STANDARD.encode(part) + "\n").collect();
        let ended = exited(&format!("exit 0 5 {}\n", text.len()));
        let watched = vec![event("MODIFIED", &pod(&ended))];
        Self { watched, log: log.leak(), ..Self::default() }
    }
}

fn pod(status: &Value) -> Value {
    let metadata = json!({"name": "script-x", "uid": "u", "resourceVersion": "7"});
    json!({"apiVersion": "v1", "kind": "Pod", "metadata": metadata,
        "spec": {"containers": [], "nodeName": "n"}, "status": status})
}

/// Returns a pod that was created for the requested script.
fn existing_pod(status: &Value) -> Value {
    let context = call();
    let (id, agent) = (&context.tool_call_id, &context.agent);
    let built = build_pod(&script(CODE), id, agent, "i", None, &PodsSection::default()).unwrap();
    let mut pod = pod(status);
    pod["metadata"]["annotations"] = json!(built.metadata.annotations);
    pod
}

fn running() -> Value {
    json!({"phase": "Running", "containerStatuses": [{
        "name": "script", "image": "i", "imageID": "", "ready": true, "restartCount": 0,
        "state": {"running": {}},
    }]})
}

fn exited(message: &str) -> Value {
    json!({"phase": "Succeeded", "containerStatuses": [{
        "name": "script", "image": "i", "imageID": "", "ready": false, "restartCount": 0,
        "state": {"terminated": {"exitCode": 0, "message": message}},
    }]})
}

fn event(kind: &str, object: &Value) -> String {
    format!("{}\n", json!({"type": kind, "object": object}))
}

fn error_status(code: StatusCode, reason: &str, message: &str) -> (StatusCode, Value) {
    let status = json!({"apiVersion": "v1", "kind": "Status", "status": "Failure",
        "code": code.as_u16(), "reason": reason, "message": message});
    (code, status)
}

/// Returns the next response; the last one repeats.
fn next<T: Clone>(responses: &[T], count: &AtomicUsize) -> T {
    let index = count.fetch_add(1, Ordering::Relaxed).min(responses.len() - 1);
    responses[index].clone()
}

async fn list(State(api): State<Arc<FakeApi>>, uri: Uri) -> Response {
    let query = uri.query().unwrap_or_default();
    if !query.contains("watch=") {
        // The sweep selects by label, a watch its own pod by name.
        let pending = || pod(&json!({"phase": "Pending"}));
        let items = if query.contains("fieldSelector") { vec![pending()] } else { Vec::new() };
        let metadata = json!({"resourceVersion": "7"});
        return Json(json!({"apiVersion": "v1", "kind": "PodList", "metadata": metadata,
            "items": items}))
        .into_response();
    }
    if api.followed {
        let (running, exit) = (event("MODIFIED", &pod(&running())), api.watched[0].clone());
        let was_followed = api.was_followed.clone();
        let exit_event = stream::once(async move {
            was_followed.notified().await;
            Ok::<_, Infallible>(exit)
        });
        return Body::from_stream(stream::iter([Ok(running)]).chain(exit_event)).into_response();
    }
    next(&api.watched, &api.watches).into_response()
}

async fn log(State(api): State<Arc<FakeApi>>, uri: Uri) -> Response {
    if !uri.query().unwrap_or_default().contains("follow=true") {
        api.reads.fetch_add(1, Ordering::Relaxed);
        return api.log.into_response();
    }
    // A second read means that the client has received the first part. The stream never ends.
    let was_followed = api.was_followed.clone();
    let more = stream::once(async move {
        was_followed.notify_one();
        std::future::pending().await
    });
    let printed = stream::iter([Ok::<_, Infallible>(api.log)]);
    Body::from_stream(printed.chain(more)).into_response()
}

async fn create(State(api): State<Arc<FakeApi>>, Json(body): Json<Value>) -> Response {
    api.bodies.lock().unwrap().push(body);
    let (code, body) = next(&api.created, &api.creations);
    (code, Json(body)).into_response()
}

async fn find(State(api): State<Arc<FakeApi>>) -> Response {
    if api.failures.load(Ordering::Relaxed) > 0 {
        api.failures.fetch_sub(1, Ordering::Relaxed);
        return StatusCode::INTERNAL_SERVER_ERROR.into_response();
    }
    (api.found.0, Json(api.found.1.clone())).into_response()
}

async fn delete(State(api): State<Arc<FakeApi>>) -> Response {
    api.deletions.fetch_add(1, Ordering::Relaxed);
    Json(pod(&json!({}))).into_response()
}

/// Starts a runner with the fake API.
fn runner(api: &Arc<FakeApi>) -> KubernetesRunner {
    let section = PodsSection { start_timeout: Duration::from_secs(2), ..PodsSection::default() };
    runner_with(api, section)
}

/// Starts a runner that installs packages.
fn runner_with_packages(api: &Arc<FakeApi>) -> KubernetesRunner {
    let claim = Some("package-sets".to_owned());
    let packages = PackagesSection { claim, ..PackagesSection::default() };
    runner_with(api, PodsSection { packages, ..PodsSection::default() })
}

fn runner_with(api: &Arc<FakeApi>, section: PodsSection) -> KubernetesRunner {
    let client = Client::new(router(api), "rockbot-scripts");
    KubernetesRunner::start(client, section).unwrap()
}

/// Returns the routes of the API.
pub(crate) fn router(api: &Arc<FakeApi>) -> Router {
    let pods = "/api/v1/namespaces/rockbot-scripts/pods";
    Router::new()
        .route(pods, post(create).get(list))
        .route(&format!("{pods}/{{name}}"), get(find).delete(delete))
        .route(&format!("{pods}/{{name}}/log"), get(log))
        .with_state(api.clone())
}

/// Runs a script. Returns its result and the number of deletions.
async fn run_script(api: FakeApi) -> (Result<ScriptOutcome, ToolFailure>, usize) {
    let api = Arc::new(api);
    let runner = runner(&api);
    let result = runner.run(&script(CODE), &call()).await;
    runner.stop(Duration::from_secs(5)).await;
    (result, api.deletions.load(Ordering::Relaxed))
}

#[tokio::test]
async fn broken_watch_is_resumed() {
    let done = event("MODIFIED", &pod(&exited("exit 0 5 3\n")));
    let expired = json!({"kind": "Status", "code": 410, "reason": "Expired", "message": "too old"});
    for broken in [String::new(), "{\"type\":".to_owned(), event("ERROR", &expired)] {
        let (result, deleted) =
            run_script(FakeApi { watched: vec![broken, done.clone()], ..FakeApi::default() }).await;
        assert_eq!(result.unwrap().stdout, "ok\n");
        assert_eq!(deleted, 1);
    }
}

#[tokio::test]
async fn server_errors_are_retried_and_rejections_are_not() {
    let created = (StatusCode::CREATED, pod(&json!({"phase": "Pending"})));
    let server_error = error_status(StatusCode::INTERNAL_SERVER_ERROR, "InternalError", "etcd");
    let conflict = error_status(StatusCode::CONFLICT, "Conflict", "on resourcequotas");
    for first in [server_error.clone(), conflict] {
        let (result, _) =
            run_script(FakeApi { created: vec![first, created.clone()], ..FakeApi::default() })
                .await;
        assert_eq!(result.unwrap().stdout, "ok\n");
    }
    let (result, _) =
        run_script(FakeApi { created: vec![server_error], ..FakeApi::default() }).await;
    let failure = result.unwrap_err();
    assert_eq!(failure.code(), ToolErrorCode::Unavailable, "{failure}");
    assert_eq!(failure.executed(), Executed::Unknown, "the pod may exist");
    for (refused, code) in [
        (
            error_status(StatusCode::FORBIDDEN, "Forbidden", "exceeded quota: q"),
            ToolErrorCode::Overloaded,
        ),
        (
            error_status(StatusCode::FORBIDDEN, "Forbidden", "violates PodSecurity"),
            ToolErrorCode::Unavailable,
        ),
        (
            error_status(StatusCode::UNPROCESSABLE_ENTITY, "Invalid", "cpu"),
            ToolErrorCode::Unavailable,
        ),
        (error_status(StatusCode::NOT_FOUND, "NotFound", "namespaces"), ToolErrorCode::Unavailable),
    ] {
        let found = error_status(StatusCode::NOT_FOUND, "NotFound", "pods \"x\" not found");
        let api = FakeApi { created: vec![refused.clone()], found, ..FakeApi::default() };
        let (result, deleted) = run_script(api).await;
        let failure = result.unwrap_err();
        assert_eq!((failure.code(), failure.executed()), (code, Executed::No), "{failure}");
        assert_eq!(deleted, 0, "no pod to delete");

        // Without the permission to get pods.
        let found = error_status(StatusCode::FORBIDDEN, "Forbidden", "cannot get pods");
        let api = FakeApi { created: vec![refused], found, ..FakeApi::default() };
        let failure = run_script(api).await.0.unwrap_err();
        let expected = (ToolErrorCode::Unavailable, Executed::Unknown);
        assert_eq!((failure.code(), failure.executed()), expected, "{failure}");
    }
}

#[tokio::test]
async fn existing_pod_is_adopted_despite_rejection() {
    for refused in [
        error_status(StatusCode::CONFLICT, "AlreadyExists", "pods \"x\" already exists"),
        error_status(StatusCode::FORBIDDEN, "Forbidden", "exceeded quota: q"),
        error_status(StatusCode::FORBIDDEN, "Forbidden", "violates PodSecurity"),
        error_status(StatusCode::UNPROCESSABLE_ENTITY, "Invalid", "cpu"),
        error_status(StatusCode::NOT_FOUND, "NotFound", "runtimeclasses"),
    ] {
        let found = (StatusCode::OK, existing_pod(&exited("exit 0 5 3\n")));
        let api = FakeApi { created: vec![refused], found, ..FakeApi::default() };
        let (result, deleted) = run_script(api).await;
        assert_eq!(result.unwrap().stdout, "ok\n");
        assert_eq!(deleted, 1);
    }
}

#[tokio::test]
async fn pod_of_other_script_is_not_touched() {
    let exists = error_status(StatusCode::CONFLICT, "AlreadyExists", "pods \"x\" already exists");
    let (result, deleted) =
        run_script(FakeApi { created: vec![exists], ..FakeApi::default() }).await;
    let failure = result.unwrap_err();
    assert_eq!(failure.code(), ToolErrorCode::NotPermitted, "{failure}");
    assert_eq!(deleted, 0);
}

#[tokio::test]
async fn possibly_executed_script_is_adopted_or_unknown() {
    let missing = error_status(StatusCode::NOT_FOUND, "NotFound", "pods \"x\" not found");
    let hidden = error_status(StatusCode::FORBIDDEN, "Forbidden", "cannot get pods");
    let own = (StatusCode::OK, existing_pod(&exited("exit 0 5 3\n")));
    for (found, failures, expected) in [
        (own.clone(), 0, Ok(1)),
        (own.clone(), 2, Ok(1)),
        (own, usize::MAX, Err(ToolErrorCode::OutcomeUnknown)),
        (missing, 0, Err(ToolErrorCode::OutcomeUnknown)),
        (hidden, 0, Err(ToolErrorCode::OutcomeUnknown)),
        (FakeApi::default().found, 0, Err(ToolErrorCode::NotPermitted)),
    ] {
        let is_missing = found.0 == StatusCode::NOT_FOUND;
        let api = FakeApi { found, failures: AtomicUsize::new(failures), ..FakeApi::default() };
        let api = Arc::new(api);
        let runner = runner(&api);
        let context = ToolContext { may_have_run: true, ..call() };
        let result = runner.run(&script(CODE), &context).await;
        let failure = result.as_ref().err().map(ToString::to_string).unwrap_or_default();
        assert_eq!(failure.contains("was deleted"), is_missing, "{failure}");
        runner.stop(Duration::from_secs(5)).await;
        let deletions = api.deletions.load(Ordering::Relaxed);
        let is_foreign = expected == Err(ToolErrorCode::NotPermitted);
        assert!(!is_foreign || deletions == 0, "the pod of another script was deleted");
        assert_eq!(api.creations.load(Ordering::Relaxed), 0, "a pod was created");
        assert_eq!(result.map(|_| deletions).map_err(|failure| failure.code()), expected);
    }
}

#[tokio::test]
async fn deleted_pod_is_unknown_outcome() {
    let running = pod(&running());
    let watched = vec![event("MODIFIED", &running) + &event("DELETED", &running)];
    let (result, _) = run_script(FakeApi { watched, ..FakeApi::default() }).await;
    let failure = result.unwrap_err();
    assert_eq!(failure.code(), ToolErrorCode::OutcomeUnknown, "{failure}");
}

#[tokio::test]
async fn output_of_running_script_is_reported_and_kept_when_cancelled() {
    let watched = vec![event("MODIFIED", &pod(&running()))];
    let api = Arc::new(FakeApi { watched, ..FakeApi::default() });
    let (runner, mut context, script) = (runner(&api), call(), script(CODE));
    let (sender, mut updates) = tokio::sync::mpsc::channel(8);
    context.updates = Some(Arc::new(move |update| drop(sender.try_send(update))));
    let cancel = context.cancellation.clone();
    let (result, ()) = tokio::join!(runner.run(&script, &context), async {
        let update = within_timeout("the output", updates.recv()).await;
        assert_eq!(update, Some(ToolUpdate::Progress("ok".to_owned())));
        cancel.cancel();
    });
    let failure = result.unwrap_err();
    assert_eq!(failure.to_string(), "cancelled\nstdout until then:\nok");
    assert_eq!(failure.executed(), Executed::Yes);
    runner.stop(Duration::from_secs(5)).await;
}

#[tokio::test]
async fn timeout_reports_printed_output() {
    let watched = vec![event("MODIFIED", &pod(&exited("timeout 124 1000 3\nslow\n")))];
    let failure = run_script(FakeApi { watched, ..FakeApi::default() }).await.0.unwrap_err();
    let expected = "timeout\nstdout until then:\nok\nstderr until then:\nslow";
    assert_eq!(failure.to_string(), expected);
    assert_eq!((failure.code(), failure.executed()), (ToolErrorCode::Timeout, Executed::Yes));
}

#[tokio::test]
async fn packages_are_installed_once_before_the_script() {
    let api = Arc::new(FakeApi::default());
    let runner = runner_with_packages(&api);
    let packages = Requirements::parse(&["numpy"]).unwrap();
    let script = script(CODE).with_packages(packages);
    for creations in [2, 3] {
        let outcome = runner.run(&script, &call()).await.unwrap();
        assert_eq!(outcome.stdout, "ok\n");
        assert_eq!(api.creations.load(Ordering::Relaxed), creations);
    }
    runner.stop(Duration::from_secs(5)).await;
    assert_eq!(api.deletions.load(Ordering::Relaxed), 3);
}

#[tokio::test]
async fn failed_installation_runs_no_script() {
    let with_code = |code: i32, message: &str| {
        let mut status = exited(message);
        status["containerStatuses"][0]["state"]["terminated"]["exitCode"] = json!(code);
        vec![event("MODIFIED", &pod(&status))]
    };
    let deleted = vec![event("DELETED", &pod(&running()))];
    for (watched, code, message, creations) in [
        (with_code(3, "no such package"), ToolErrorCode::InvalidArguments, "no such package", 1),
        (with_code(4, "read-only volume"), ToolErrorCode::Unavailable, "try again later", 1),
        (deleted, ToolErrorCode::Unavailable, "interrupted", 3),
    ] {
        let api = Arc::new(FakeApi { watched, ..FakeApi::default() });
        let runner = runner_with_packages(&api);
        let packages = Requirements::parse(&["numpy"]).unwrap();
        let script = script(CODE).with_packages(packages);
        let failure = runner.run(&script, &call()).await.unwrap_err();
        assert_eq!((failure.code(), failure.executed()), (code, Executed::No), "{failure}");
        assert!(failure.to_string().contains(message), "{failure}");
        assert!(!failure.to_string().contains("volume"), "{failure}");
        runner.stop(Duration::from_secs(5)).await;
        assert_eq!(api.creations.load(Ordering::Relaxed), creations);
        assert_eq!(api.deletions.load(Ordering::Relaxed), creations);
    }
}

#[tokio::test]
async fn termination_reasons_map_to_error_codes() {
    let terminated = |reason: &str, message: &str| {
        let status = json!({"phase": "Failed", "reason": reason, "message": message});
        vec![event("MODIFIED", &pod(&status))]
    };
    for (reason, message, code) in [
        ("Evicted", "The node was low on resource: memory.", ToolErrorCode::Unavailable),
        ("NodeShutdown", "Pod was terminated", ToolErrorCode::Unavailable),
        ("OutOfcpu", "Node didn't have enough resource", ToolErrorCode::Overloaded),
        ("DeadlineExceeded", "Pod was active too long", ToolErrorCode::Unavailable),
    ] {
        let watched = terminated(reason, message);
        let (result, deleted) = run_script(FakeApi { watched, ..FakeApi::default() }).await;
        let failure = result.unwrap_err();
        assert_eq!(failure.code(), code, "{reason}: {failure}");
        assert_eq!(deleted, 1);
    }
}

#[tokio::test]
async fn node_rejection_after_start_is_not_overload() {
    let state = |state: Value| {
        json!([{
            "name": "script", "image": "i", "imageID": "", "ready": false, "restartCount": 0,
            "state": state,
        }])
    };
    let ended = json!({"exitCode": 137, "startedAt": "2026-01-01T00:00:00Z"});
    let ended = state(json!({"terminated": ended}));
    for reason in ["OutOfcpu", "OutOfpods", "UnexpectedAdmissionError"] {
        let rejected = |containers: &Value| {
            let status = json!({"phase": "Failed", "reason": reason, "message": "no capacity",
                "containerStatuses": containers});
            event("MODIFIED", &pod(&status))
        };
        for (watched, code, executed) in [
            (rejected(&json!(null)), ToolErrorCode::Overloaded, Executed::No),
            (rejected(&ended), ToolErrorCode::Unavailable, Executed::Yes),
            (
                event("MODIFIED", &pod(&running())) + &rejected(&json!(null)),
                ToolErrorCode::Unavailable,
                Executed::Yes,
            ),
        ] {
            let (result, _) =
                run_script(FakeApi { watched: vec![watched], ..FakeApi::default() }).await;
            let failure = result.unwrap_err();
            assert_eq!((failure.code(), failure.executed()), (code, executed), "{reason}");
        }
    }
}

#[tokio::test]
async fn completely_followed_log_is_not_read_again() {
    // The follower receives 3 bytes; with an output of 6 bytes, the log must be read again.
    for (message, reads) in [("exit 0 5 3\n", 0), ("exit 0 5 6\n", 3)] {
        let watched = vec![event("MODIFIED", &pod(&exited(message)))];
        let api = Arc::new(FakeApi { watched, followed: true, ..FakeApi::default() });
        let result = runner(&api).run(&script(CODE), &call()).await;
        assert_eq!(api.reads.load(Ordering::Relaxed), reads, "{message}");
        assert_eq!(result.is_ok_and(|outcome| outcome.stdout == "ok\n"), reads == 0, "{message}");
    }
}

#[tokio::test]
async fn unreadable_output_is_not_empty_output() {
    let (result, _) = run_script(FakeApi { log: "", ..FakeApi::default() }).await;
    let failure = result.unwrap_err();
    assert_eq!(failure.code(), ToolErrorCode::Unavailable, "{failure}");
    assert_eq!(failure.executed(), Executed::Yes);
}

#[tokio::test]
async fn unprobed_network_is_reported_as_gap() {
    let refused = error_status(StatusCode::FORBIDDEN, "Forbidden", "violates PodSecurity");
    let mut failed = exited("exit 1 5 0\n");
    failed["containerStatuses"][0]["state"]["terminated"]["exitCode"] = json!(1);
    let ended = |status: &Value| vec![event("MODIFIED", &pod(status))];
    let closed =
        || FakeApi { watched: ended(&exited("exit 0 5 0\n")), log: "", ..FakeApi::default() };
    let addresses = ["192.0.2.1:443".parse().unwrap()];
    let did_not_run = "the network (not probed: the probe did not run)";
    for (api, addresses, gaps) in [
        (closed(), &addresses[..], &[][..]),
        (FakeApi::default(), &addresses, &["the network"]),
        (FakeApi { created: vec![refused], ..FakeApi::default() }, &addresses, &[did_not_run]),
        (FakeApi { watched: ended(&failed), ..closed() }, &addresses, &[did_not_run]),
        (closed(), &[], &["the network (not probed)"]),
    ] {
        let runner = runner(&Arc::new(api));
        assert!(!runner.isolation().is_complete(), "isolation not probed yet");
        assert_eq!(runner.probe(addresses).await.gaps, gaps);
        assert_eq!(runner.isolation().gaps, gaps);
        runner.stop(Duration::from_secs(5)).await;
    }
}

#[tokio::test]
async fn requests_wait_for_network_probe() {
    // The first pod is that of the probe, and is rejected.
    let refused = error_status(StatusCode::FORBIDDEN, "Forbidden", "violates PodSecurity");
    let created = (StatusCode::CREATED, pod(&json!({"phase": "Pending"})));
    let api = Arc::new(FakeApi { created: vec![refused, created], ..FakeApi::default() });
    let (bus, store) = (MemoryBus::new(), Arc::new(MemoryStore::new(Clock::System)));
    let instance = InstanceId::new("scripts-0").unwrap();
    let journal = CallJournal::start(store, &instance, JournalOptions::default());
    let section = HandlerSection::default();
    let manager = ScriptsManager::start(
        Arc::new(bus.clone()),
        Arc::new(runner(&api)),
        &section,
        LayerOptions::default(),
        journal,
        instance,
        vec!["192.0.2.1:443".parse().unwrap()],
    );
    let manager = manager.await.unwrap();
    assert_eq!(api.creations.load(Ordering::Relaxed), 1);
    let agent = BusRunner::new(Arc::new(bus), reply_address("agent", "a"));
    let outcome = agent.run(&script(CODE), &call()).await.unwrap();
    assert_eq!(outcome.stdout, "ok\n");
    let isolation = outcome.isolation.to_string();
    assert!(isolation.contains("the network (not probed: the probe did not run)"), "{isolation}");
    assert!(manager.drain(Duration::from_secs(5)).await);
}

#[tokio::test]
async fn large_output_is_stored_under_a_handle() {
    let text = "0123456789abcde\n".repeat(LINES);
    let api = Arc::new(FakeApi::printing(&text));
    let (bus, store) = (MemoryBus::new(), Arc::new(MemoryStore::new(Clock::System)));
    let outputs = Outputs::new(store.clone(), OutputsSection::default());
    let instance = InstanceId::new("scripts-0").unwrap();
    let journal = CallJournal::start(store, &instance, JournalOptions::default());
    let section = HandlerSection::default();
    let manager = ScriptsManager::start(
        Arc::new(bus.clone()),
        Arc::new(runner(&api)),
        &section,
        LayerOptions { outputs: Some(outputs.clone()), ..LayerOptions::default() },
        journal,
        instance,
        Vec::new(),
    );
    let manager = manager.await.unwrap();
    let agent = BusRunner::new(Arc::new(bus), reply_address("agent", "a"));
    let outcome = agent.run(&script(CODE), &call()).await.unwrap();
    assert_eq!(outcome.exit_code, 0);
    let facts = outcome.stdout.lines().next().unwrap();
    let facts: Value = serde_json::from_str(facts).unwrap();
    let facts = &facts["tool_output"];
    assert_eq!(facts["bytes"], text.len());
    // The tool handlers read it from the same store, in calls of the same conversation.
    let last = json!({"handle": facts["handle"], "mode": "tail", "count": 1});
    let read = ToolOutput::new(outputs).call(last, &call()).await.unwrap();
    assert!(read.to_text().contains("0123456789abcde"), "{}", read.to_text());
    assert!(manager.drain(Duration::from_secs(5)).await);
}
