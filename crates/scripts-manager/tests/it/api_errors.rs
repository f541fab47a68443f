//! API servers that answer in odd ways: no cluster, no sockets.

use std::{
    convert::Infallible,
    sync::{
        Arc,
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
use futures_util::{StreamExt, stream};
use kube::Client;
use rockbot_bus::MemoryBus;
use rockbot_contracts::{Executed, InstanceId, ToolErrorCode};
use rockbot_scripts::{BusRunner, ScriptOutcome, ScriptRunner};
use rockbot_scripts_manager::{KubernetesRunner, PodsSection, ScriptsManager, pod::build_pod};
use rockbot_store::{Clock, MemoryStore};
use rockbot_testkit::fixture::reply_address;
use rockbot_tool_rpc::{CallJournal, HandlerSection, JournalOptions};
use rockbot_tools::{ToolContext, ToolFailure};
use serde_json::{Value, json};
use tokio::sync::Notify;

use crate::fixture::{call, script};

const CODE: &str = "print('ok')";

/// What a server says: to creations in turn, the last one for ever, and to watches likewise.
struct Says {
    created: Vec<(StatusCode, Value)>,
    watched: Vec<String>,
    found: (StatusCode, Value),
    /// To how many questions after a pod it stumbles, before it says so.
    stumbles: AtomicUsize,
    log: &'static str,
    /// Whether the script runs until its log was followed, and ends then.
    followed: bool,
    was_followed: Arc<Notify>,
    creations: AtomicUsize,
    watches: AtomicUsize,
    deletions: AtomicUsize,
    /// How often the log was read from its beginning, without following it.
    reads: AtomicUsize,
}

impl Default for Says {
    fn default() -> Self {
        Self {
            created: vec![(StatusCode::CREATED, pod(&json!({"phase": "Pending"})))],
            watched: vec![event("MODIFIED", &pod(&exited("exit 0 5 3\n")))],
            found: (StatusCode::OK, pod(&json!({"phase": "Pending"}))),
            stumbles: AtomicUsize::new(0),
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

fn pod(status: &Value) -> Value {
    let metadata = json!({"name": "script-x", "uid": "u", "resourceVersion": "7"});
    json!({"apiVersion": "v1", "kind": "Pod", "metadata": metadata,
        "spec": {"containers": [], "nodeName": "n"}, "status": status})
}

/// A pod that was made for the script that is asked for.
fn made_before(status: &Value) -> Value {
    let context = call();
    let (id, agent) = (&context.tool_call_id, &context.agent);
    let made = build_pod(&script(CODE), id, agent, "i", &PodsSection::default()).unwrap();
    let mut pod = pod(status);
    pod["metadata"]["annotations"] = json!(made.metadata.annotations);
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

fn refusal(code: StatusCode, reason: &str, message: &str) -> (StatusCode, Value) {
    let status = json!({"apiVersion": "v1", "kind": "Status", "status": "Failure",
        "code": code.as_u16(), "reason": reason, "message": message});
    (code, status)
}

/// The next thing to say, or the last one again.
fn next<T: Clone>(said: &[T], count: &AtomicUsize) -> T {
    let at = count.fetch_add(1, Ordering::Relaxed).min(said.len() - 1);
    said[at].clone()
}

async fn list(State(says): State<Arc<Says>>, uri: Uri) -> Response {
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
    if says.followed {
        let (runs, ends) = (event("MODIFIED", &pod(&running())), says.watched[0].clone());
        let was_followed = says.was_followed.clone();
        let ends = stream::once(async move {
            was_followed.notified().await;
            Ok::<_, Infallible>(ends)
        });
        return Body::from_stream(stream::iter([Ok(runs)]).chain(ends)).into_response();
    }
    next(&says.watched, &says.watches).into_response()
}

async fn log(State(says): State<Arc<Says>>, uri: Uri) -> Response {
    if !uri.query().unwrap_or_default().contains("follow=true") {
        says.reads.fetch_add(1, Ordering::Relaxed);
        return says.log.into_response();
    }
    // Whoever asks for more has read what was there; and there is never an end.
    let was_followed = says.was_followed.clone();
    let more = stream::once(async move {
        was_followed.notify_one();
        std::future::pending().await
    });
    let printed = stream::iter([Ok::<_, Infallible>(says.log)]);
    Body::from_stream(printed.chain(more)).into_response()
}

async fn create(State(says): State<Arc<Says>>) -> Response {
    let (code, body) = next(&says.created, &says.creations);
    (code, Json(body)).into_response()
}

async fn find(State(says): State<Arc<Says>>) -> Response {
    if says.stumbles.load(Ordering::Relaxed) > 0 {
        says.stumbles.fetch_sub(1, Ordering::Relaxed);
        return StatusCode::INTERNAL_SERVER_ERROR.into_response();
    }
    (says.found.0, Json(says.found.1.clone())).into_response()
}

async fn delete(State(says): State<Arc<Says>>) -> Response {
    says.deletions.fetch_add(1, Ordering::Relaxed);
    Json(pod(&json!({}))).into_response()
}

/// A runner in a cluster that says this.
fn runner(says: &Arc<Says>) -> KubernetesRunner {
    let pods = "/api/v1/namespaces/rockbot-scripts/pods";
    let server = Router::new()
        .route(pods, post(create).get(list))
        .route(&format!("{pods}/{{name}}"), get(find).delete(delete))
        .route(&format!("{pods}/{{name}}/log"), get(log))
        .with_state(says.clone());
    let section = PodsSection { start_timeout: Duration::from_secs(2), ..PodsSection::default() };
    KubernetesRunner::start(Client::new(server, "rockbot-scripts"), section).unwrap()
}

/// What becomes of a script, and whether its pod was deleted.
async fn request(says: Says) -> (Result<ScriptOutcome, ToolFailure>, usize) {
    let says = Arc::new(says);
    let runner = runner(&says);
    let ended = runner.run(&script(CODE), &call()).await;
    runner.stop(Duration::from_secs(5)).await;
    (ended, says.deletions.load(Ordering::Relaxed))
}

#[tokio::test]
async fn broken_watch_is_resumed() {
    let done = event("MODIFIED", &pod(&exited("exit 0 5 3\n")));
    let gone = json!({"kind": "Status", "code": 410, "reason": "Expired", "message": "too old"});
    for broken in [String::new(), "{\"type\":".to_owned(), event("ERROR", &gone)] {
        let (ended, deleted) =
            request(Says { watched: vec![broken, done.clone()], ..Says::default() }).await;
        assert_eq!(ended.unwrap().stdout, "ok\n");
        assert_eq!(deleted, 1);
    }
}

#[tokio::test]
async fn server_errors_are_retried_and_rejections_are_not() {
    let made = (StatusCode::CREATED, pod(&json!({"phase": "Pending"})));
    let stumbled = refusal(StatusCode::INTERNAL_SERVER_ERROR, "InternalError", "etcd");
    let conflict = refusal(StatusCode::CONFLICT, "Conflict", "on resourcequotas");
    for first in [stumbled.clone(), conflict] {
        let (ended, _) =
            request(Says { created: vec![first, made.clone()], ..Says::default() }).await;
        assert_eq!(ended.unwrap().stdout, "ok\n");
    }
    let (ended, _) = request(Says { created: vec![stumbled], ..Says::default() }).await;
    let failure = ended.unwrap_err();
    assert_eq!(failure.code(), ToolErrorCode::Unavailable, "{failure}");
    assert_eq!(failure.executed(), Executed::Unknown, "nobody knows");
    for (refused, code) in [
        (
            refusal(StatusCode::FORBIDDEN, "Forbidden", "exceeded quota: q"),
            ToolErrorCode::Overloaded,
        ),
        (
            refusal(StatusCode::FORBIDDEN, "Forbidden", "violates PodSecurity"),
            ToolErrorCode::Unavailable,
        ),
        (refusal(StatusCode::UNPROCESSABLE_ENTITY, "Invalid", "cpu"), ToolErrorCode::Unavailable),
        (refusal(StatusCode::NOT_FOUND, "NotFound", "namespaces"), ToolErrorCode::Unavailable),
    ] {
        let found = refusal(StatusCode::NOT_FOUND, "NotFound", "pods \"x\" not found");
        let says = Says { created: vec![refused.clone()], found, ..Says::default() };
        let (ended, deleted) = request(says).await;
        let failure = ended.unwrap_err();
        assert_eq!((failure.code(), failure.executed()), (code, Executed::No), "{failure}");
        assert_eq!(deleted, 0, "there is nothing to delete");

        // Nobody may look either.
        let found = refusal(StatusCode::FORBIDDEN, "Forbidden", "cannot get pods");
        let says = Says { created: vec![refused], found, ..Says::default() };
        let failure = request(says).await.0.unwrap_err();
        let expected = (ToolErrorCode::Unavailable, Executed::Unknown);
        assert_eq!((failure.code(), failure.executed()), expected, "{failure}");
    }
}

#[tokio::test]
async fn existing_pod_is_adopted_despite_rejection() {
    for refused in [
        refusal(StatusCode::CONFLICT, "AlreadyExists", "pods \"x\" already exists"),
        refusal(StatusCode::FORBIDDEN, "Forbidden", "exceeded quota: q"),
        refusal(StatusCode::FORBIDDEN, "Forbidden", "violates PodSecurity"),
        refusal(StatusCode::UNPROCESSABLE_ENTITY, "Invalid", "cpu"),
        refusal(StatusCode::NOT_FOUND, "NotFound", "runtimeclasses"),
    ] {
        let found = (StatusCode::OK, made_before(&exited("exit 0 5 3\n")));
        let says = Says { created: vec![refused], found, ..Says::default() };
        let (ended, deleted) = request(says).await;
        assert_eq!(ended.unwrap().stdout, "ok\n");
        assert_eq!(deleted, 1);
    }
}

#[tokio::test]
async fn pod_of_other_script_is_not_touched() {
    let exists = refusal(StatusCode::CONFLICT, "AlreadyExists", "pods \"x\" already exists");
    let (ended, deleted) = request(Says { created: vec![exists], ..Says::default() }).await;
    let failure = ended.unwrap_err();
    assert_eq!(failure.code(), ToolErrorCode::NotPermitted, "{failure}");
    assert_eq!(deleted, 0);
}

#[tokio::test]
async fn possibly_executed_script_is_adopted_or_unknown() {
    let missing = refusal(StatusCode::NOT_FOUND, "NotFound", "pods \"x\" not found");
    let hidden = refusal(StatusCode::FORBIDDEN, "Forbidden", "cannot get pods");
    let ours = (StatusCode::OK, made_before(&exited("exit 0 5 3\n")));
    for (found, stumbles, answer) in [
        (ours.clone(), 0, Ok(1)),
        (ours.clone(), 2, Ok(1)),
        (ours, usize::MAX, Err(ToolErrorCode::OutcomeUnknown)),
        (missing, 0, Err(ToolErrorCode::OutcomeUnknown)),
        (hidden, 0, Err(ToolErrorCode::OutcomeUnknown)),
        (Says::default().found, 0, Err(ToolErrorCode::NotPermitted)),
    ] {
        let says = Says { found, stumbles: AtomicUsize::new(stumbles), ..Says::default() };
        let says = Arc::new(says);
        let runner = runner(&says);
        let context = ToolContext { may_have_run: true, ..call() };
        let ended = runner.run(&script(CODE), &context).await;
        runner.stop(Duration::from_secs(5)).await;
        let deletions = says.deletions.load(Ordering::Relaxed);
        let is_anothers = answer == Err(ToolErrorCode::NotPermitted);
        assert!(!is_anothers || deletions == 0, "another one's pod is not touched");
        assert_eq!(says.creations.load(Ordering::Relaxed), 0, "nothing is started");
        assert_eq!(ended.map(|_| deletions).map_err(|failure| failure.code()), answer);
    }
}

#[tokio::test]
async fn deleted_pod_is_unknown_outcome() {
    let running = pod(&running());
    let watched = vec![event("MODIFIED", &running) + &event("DELETED", &running)];
    let (ended, _) = request(Says { watched, ..Says::default() }).await;
    let failure = ended.unwrap_err();
    assert_eq!(failure.code(), ToolErrorCode::OutcomeUnknown, "{failure}");
}

#[tokio::test]
async fn termination_reasons_map_to_error_codes() {
    let ended_by = |reason: &str, message: &str| {
        let status = json!({"phase": "Failed", "reason": reason, "message": message});
        vec![event("MODIFIED", &pod(&status))]
    };
    for (reason, message, code) in [
        ("Evicted", "The node was low on resource: memory.", ToolErrorCode::Unavailable),
        ("NodeShutdown", "Pod was terminated", ToolErrorCode::Unavailable),
        ("OutOfcpu", "Node didn't have enough resource", ToolErrorCode::Overloaded),
        ("DeadlineExceeded", "Pod was active too long", ToolErrorCode::Unavailable),
    ] {
        let watched = ended_by(reason, message);
        let (ended, deleted) = request(Says { watched, ..Says::default() }).await;
        let failure = ended.unwrap_err();
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
            let status = json!({"phase": "Failed", "reason": reason, "message": "no room",
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
            let (ended, _) = request(Says { watched: vec![watched], ..Says::default() }).await;
            let failure = ended.unwrap_err();
            assert_eq!((failure.code(), failure.executed()), (code, executed), "{reason}");
        }
    }
}

#[tokio::test]
async fn completely_followed_log_is_not_read_again() {
    // Of 3 bytes, 3 were followed; of 6, another 3 may be there by now.
    for (message, reads) in [("exit 0 5 3\n", 0), ("exit 0 5 6\n", 3)] {
        let watched = vec![event("MODIFIED", &pod(&exited(message)))];
        let says = Arc::new(Says { watched, followed: true, ..Says::default() });
        let ended = runner(&says).run(&script(CODE), &call()).await;
        assert_eq!(says.reads.load(Ordering::Relaxed), reads, "{message}");
        assert_eq!(ended.is_ok_and(|outcome| outcome.stdout == "ok\n"), reads == 0, "{message}");
    }
}

#[tokio::test]
async fn unreadable_output_is_not_empty_output() {
    let (ended, _) = request(Says { log: "", ..Says::default() }).await;
    let failure = ended.unwrap_err();
    assert_eq!(failure.code(), ToolErrorCode::Unavailable, "{failure}");
    assert_eq!(failure.executed(), Executed::Yes);
}

#[tokio::test]
async fn unprobed_network_is_reported_as_gap() {
    let refused = refusal(StatusCode::FORBIDDEN, "Forbidden", "violates PodSecurity");
    let mut failed = exited("exit 1 5 0\n");
    failed["containerStatuses"][0]["state"]["terminated"]["exitCode"] = json!(1);
    let ended = |status: &Value| vec![event("MODIFIED", &pod(status))];
    let closed = || Says { watched: ended(&exited("exit 0 5 0\n")), log: "", ..Says::default() };
    let somewhere = ["192.0.2.1:443".parse().unwrap()];
    let did_not_run = "the network (not probed: the probe did not run)";
    for (says, addresses, missing) in [
        (closed(), &somewhere[..], &[][..]),
        (Says::default(), &somewhere, &["the network"]),
        (Says { created: vec![refused], ..Says::default() }, &somewhere, &[did_not_run]),
        (Says { watched: ended(&failed), ..closed() }, &somewhere, &[did_not_run]),
        (closed(), &[], &["the network (not probed)"]),
    ] {
        let runner = runner(&Arc::new(says));
        assert!(!runner.isolation().is_complete(), "nobody looked yet");
        assert_eq!(runner.probe(addresses).await.gaps, missing);
        assert_eq!(runner.isolation().gaps, missing);
        runner.stop(Duration::from_secs(5)).await;
    }
}

#[tokio::test]
async fn requests_wait_for_network_probe() {
    // The first pod is the probe's, and is refused.
    let refused = refusal(StatusCode::FORBIDDEN, "Forbidden", "violates PodSecurity");
    let made = (StatusCode::CREATED, pod(&json!({"phase": "Pending"})));
    let says = Arc::new(Says { created: vec![refused, made], ..Says::default() });
    let (bus, store) = (MemoryBus::new(), Arc::new(MemoryStore::new(Clock::System)));
    let instance = InstanceId::new("scripts-0").unwrap();
    let journal = CallJournal::start(store, &instance, JournalOptions::default());
    let section = HandlerSection::default();
    let manager = ScriptsManager::start(
        Arc::new(bus.clone()),
        Arc::new(runner(&says)),
        &section,
        journal,
        instance,
        vec!["192.0.2.1:443".parse().unwrap()],
    );
    let manager = manager.await.unwrap();
    assert_eq!(says.creations.load(Ordering::Relaxed), 1);
    let agent = BusRunner::new(Arc::new(bus), reply_address("agent", "a"));
    let outcome = agent.run(&script(CODE), &call()).await.unwrap();
    assert_eq!(outcome.stdout, "ok\n");
    let told = outcome.isolation.to_string();
    assert!(told.contains("the network (not probed: the probe did not run)"), "{told}");
    assert!(manager.drain(Duration::from_secs(5)).await);
}
