//! Agents of others that speak A2A, as agents of the bus: the Python server of A2A, another gateway, and hostile ones.

use std::{
    future::ready,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use futures_util::{StreamExt, future::BoxFuture, stream};
use rockbot_contracts::{
    AgentTaskError, AgentTaskErrorCode, AgentTaskResult, AgentTaskState, AgentTaskStatusUpdate,
    Executed,
};
use rockbot_gateway::{FaceName, Right};
use rockbot_store::{Clock, MemoryStore, Store, StoreError, Write, Written};
use rockbot_testkit::{
    InterceptedStore, StoreInterceptor,
    fixture::{wait_until, within_timeout},
};

use crate::{
    fleet::Fleet,
    remote_harness::{Delegators, HostileAgent, Hostility, PythonAgent},
};

#[tokio::test]
async fn agent_delegates_to_the_a2a_sdk_server() {
    for mode in ["streaming", "polling"] {
        let mut python = PythonAgent::start(mode).await;
        let mut fleet = Delegators::start().await;
        let gateway = fleet.gateway(&python.url, "").await;
        let answer = fleet.delegate("find", "the key").await;
        assert!(answer.contains("[Agent 'partner' answered"), "{mode}: {answer}");
        assert!(answer.contains("Found by") && answer.contains("the key"), "{mode}: {answer}");
        assert!(python.line().await.starts_with("ran "), "{mode}");
        within_timeout("the stop", gateway.stop()).await;
        wait_until("its stop is announced", || !fleet.knows_partner()).await;
        assert!(python.rest().await.is_empty(), "{mode}: it ran once");
    }
}

#[tokio::test]
async fn card_that_the_a2a_sdk_signed_is_verified() {
    let pair = rcgen::KeyPair::generate_for(&rcgen::PKCS_ECDSA_P256_SHA256).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let (private, public) = (folder.path().join("card.key"), folder.path().join("card.pub"));
    std::fs::write(&private, pair.serialize_pem()).unwrap();
    std::fs::write(&public, pair.public_key_pem()).unwrap();
    let mut python = PythonAgent::start_with("streaming", Some(&private)).await;
    let mut fleet = Delegators::start().await;
    let _gateway = fleet.gateway(&python.url, &format!("card_keys_file = {public:?}")).await;
    fleet.request("t", "m", "the key").await;
    let result: AgentTaskResult = fleet.response().await;
    assert_eq!(result.text(), "Found by the key");
    assert_eq!(python.line().await, "ran the key");
}

#[tokio::test]
async fn request_repeated_at_two_replicas_is_sent_once() {
    let mut python = PythonAgent::start("streaming").await;
    let mut fleet = Delegators::start().await;
    let first = fleet.gateway(&python.url, "").await;
    let _second = fleet.gateway_of_unknown(&python.url, "");
    let caller = &fleet;
    let requests = stream::iter(0..100);
    requests.for_each_concurrent(100, |_| caller.request("t", "m", "the key")).await;
    let result: AgentTaskResult = fleet.response().await;
    assert_eq!(result.text(), "Found by the key");
    within_timeout("the stop", first.stop()).await;
    wait_until("its stop is announced", || !fleet.knows_partner()).await;
    wait_until("the second one serves the agent", || fleet.knows_partner()).await;
    fleet.request("t", "m", "the key").await;
    fleet.request("u", "m", "another").await;
    loop {
        let next: AgentTaskResult = fleet.response().await;
        if next.task_id.as_str() == "u" {
            break;
        }
        assert_eq!(next, result);
    }
    assert_eq!(python.line().await, "ran the key");
    assert_eq!(python.rest().await, ["ran another"]);
}

#[tokio::test]
async fn cancel_before_its_request_refuses_it() {
    let python = PythonAgent::start("streaming").await;
    let mut fleet = Delegators::start().await;
    let _gateway = fleet.gateway(&python.url, "").await;
    fleet.cancel("t").await;
    let error: AgentTaskError = fleet.response().await;
    assert_eq!((error.code, error.executed), (AgentTaskErrorCode::TaskNotFound, Executed::Unknown));
    fleet.request("t", "m", "the key").await;
    let error: AgentTaskError = fleet.response().await;
    assert_eq!((error.code, error.executed), (AgentTaskErrorCode::Cancelled, Executed::No));
    assert!(python.rest().await.is_empty(), "it did not run");
}

#[tokio::test]
async fn unanswered_question_ends_at_the_time_limit() {
    let mut python = PythonAgent::start("streaming").await;
    let mut fleet = Delegators::start().await;
    let _gateway = fleet.gateway(&python.url, "").await;
    fleet.request_within("t", "m", "ask me", Duration::from_secs(8)).await;
    assert_eq!(python.line().await, "ran ask me");
    let error: AgentTaskError = fleet.response().await;
    assert_eq!((error.code, error.executed), (AgentTaskErrorCode::Expired, Executed::Unknown));
    assert!(python.line().await.starts_with("cancelled "));
}

#[tokio::test]
async fn agent_delegates_to_an_agent_of_another_gateway() {
    let other = Fleet::start().await;
    let server = other.gateway().await;
    let token = server.token("partner", FaceName::A2a, &[Right::Talk]).await;
    let mut fleet = Delegators::start().await;
    let url = format!("http://{}/agents/assistant", server.address);
    let _gateway = fleet.gateway(&url, &format!("token = {token:?}")).await;
    let answer = fleet.delegate("assistant", "the key").await;
    assert!(answer.contains("You said") && answer.contains("the key"), "{answer}");
    assert_eq!(other.model.request_count(), 1);
}

#[tokio::test]
async fn killed_gateway_continues_without_sending_again() {
    for mode in ["streaming", "polling"] {
        let mut python = PythonAgent::start(mode).await;
        let mut fleet = Delegators::start().await;
        let gateway = fleet.gateway(&python.url, "").await;
        fleet.request("t", "m", "wait for it").await;
        assert_eq!(python.line().await, "ran wait for it");
        let status: AgentTaskStatusUpdate = fleet.response().await;
        assert_eq!(status.state, AgentTaskState::Working, "{mode}: its id is recorded");
        drop(gateway);
        python.go().await;
        let _next = fleet.gateway_of_unknown(&python.url, "");
        let result: AgentTaskResult = fleet.response().await;
        assert_eq!(result.text(), "Found by wait for it", "{mode}");
        // A repeated request is the same task.
        fleet.request("t", "m", "wait for it").await;
        let again: AgentTaskResult = fleet.response().await;
        assert_eq!(again, result, "{mode}");
        assert!(python.rest().await.is_empty(), "{mode}: it ran once");
    }
}

/// Fails the first writes that record the id of a remote task.
#[derive(Default)]
struct ResponseOutage(AtomicUsize);

impl StoreInterceptor for ResponseOutage {
    fn write<'a>(
        &'a self,
        store: &'a dyn Store,
        write: Write,
    ) -> BoxFuture<'a, Result<Written, StoreError>> {
        let has_remote_task = String::from_utf8_lossy(&write.value).contains("\"remoteTask\"");
        if has_remote_task && self.0.fetch_add(1, Ordering::Relaxed) < 2 {
            let reason = "a test".to_owned();
            return Box::pin(ready(Err(StoreError::Unavailable { reason })));
        }
        store.write(write)
    }
}

#[tokio::test]
async fn response_during_a_store_outage_is_recorded_after_it() {
    let mut python = PythonAgent::start("polling").await;
    let store = Arc::new(MemoryStore::new(Clock::System));
    let store = InterceptedStore::wrap(store, ResponseOutage::default());
    let mut fleet = Delegators::start_with(store.clone()).await;
    let _gateway = fleet.gateway(&python.url, "").await;
    fleet.request("t", "m", "the key").await;
    let result: AgentTaskResult = fleet.response().await;
    assert_eq!(result.text(), "Found by the key");
    assert!(store.interceptor.0.load(Ordering::Relaxed) > 2);
    assert_eq!(python.line().await, "ran the key");
    assert!(python.rest().await.is_empty(), "it ran once");
}

#[tokio::test]
async fn caller_without_permission_is_refused() {
    let hostile = HostileAgent::start(Hostility::NoTask).await;
    let mut fleet = Delegators::start().await;
    let _gateway = fleet.gateway(&hostile.url, "callers = [\"team-*\"]").await;
    fleet.request("t", "m", "the key").await;
    let error: AgentTaskError = fleet.response().await;
    assert_eq!((error.code, error.executed), (AgentTaskErrorCode::NotPermitted, Executed::No));
    fleet.cancel("u").await;
    let error: AgentTaskError = fleet.response().await;
    assert_eq!((error.code, error.executed), (AgentTaskErrorCode::NotPermitted, Executed::Unknown));
    assert!(hostile.requests("SendMessage").is_empty());
}

#[tokio::test]
async fn cancel_reaches_the_remote_agent() {
    for mode in ["streaming", "polling"] {
        let mut python = PythonAgent::start(mode).await;
        let mut fleet = Delegators::start().await;
        let _gateway = fleet.gateway(&python.url, "").await;
        fleet.request("t", "m", "wait for it").await;
        assert_eq!(python.line().await, "ran wait for it", "{mode}");
        fleet.cancel("t").await;
        assert!(python.line().await.starts_with("cancelled "), "{mode}");
        let error: AgentTaskError = fleet.response().await;
        assert_eq!(error.code, AgentTaskErrorCode::Cancelled, "{mode}: {error:?}");
        fleet.cancel("t").await;
        let error: AgentTaskError = fleet.response().await;
        assert_eq!(error.code, AgentTaskErrorCode::TaskNotCancelable, "{mode}");
    }
}

#[tokio::test]
async fn question_of_the_remote_agent_is_answered_in_its_task() {
    let mut python = PythonAgent::start("streaming").await;
    let mut fleet = Delegators::start().await;
    let _gateway = fleet.gateway(&python.url, "").await;
    fleet.request("t", "m1", "ask me").await;
    let question = loop {
        let status: AgentTaskStatusUpdate = fleet.response().await;
        if status.state == AgentTaskState::InputRequired {
            break status;
        }
    };
    assert_eq!(question.sequence, 1);
    assert_eq!(question.message.unwrap().text(), "Which table?");
    fleet.request("t", "m2", "the blue one").await;
    let result: AgentTaskResult = fleet.response().await;
    assert_eq!(result.text(), "Found by the blue one");
    fleet.request("t", "m3", "another task").await;
    let error: AgentTaskError = fleet.response().await;
    assert_eq!((error.code, error.executed), (AgentTaskErrorCode::InvalidRequest, Executed::No));
    assert_eq!(python.line().await, "ran ask me");
    assert_eq!(python.rest().await, ["ran the blue one"]);
}

#[tokio::test]
async fn hostile_agent_is_refused_with_a_reason() {
    for (kind, executed, reason) in [
        (Hostility::HugeBody, Executed::Unknown, "exceeds 2097152 bytes"),
        (Hostility::EndlessStream, Executed::Unknown, "the stream exceeds 16 MiB"),
        (Hostility::EndlessEvent, Executed::Unknown, "an event of the stream exceeds 2 MiB"),
        (Hostility::Redirect, Executed::No, "HTTP status 307"),
        (Hostility::Cut, Executed::Unknown, "the connection to the agent was cut"),
        (Hostility::AuthRequired, Executed::Unknown, "requires credentials"),
        (Hostility::NoTask, Executed::Unknown, "no valid task id"),
        (Hostility::Rejected, Executed::No, "rejected the task"),
        (Hostility::RejectedLater, Executed::Unknown, "rejected the task"),
        (Hostility::Conflict, Executed::Unknown, "HTTP status 409"),
    ] {
        let hostile = HostileAgent::start(kind).await;
        let mut fleet = Delegators::start().await;
        let _gateway = fleet.gateway(&hostile.url, "").await;
        fleet.request("t", "m", "the key").await;
        let error: AgentTaskError = fleet.response().await;
        assert_eq!(error.code, AgentTaskErrorCode::ExecutionFailed, "{kind:?}");
        assert!(error.message.contains(reason), "{kind:?}: {}", error.message);
        assert_eq!(error.executed, executed, "{kind:?}");
        let sent = ["SendMessage", "SendStreamingMessage"].map(|method| hostile.requests(method));
        assert_eq!(sent.concat().len(), 1, "{kind:?}: it is not sent again");
        if matches!(kind, Hostility::EndlessStream | Hostility::AuthRequired) {
            wait_until("the task is cancelled", || !hostile.requests("CancelTask").is_empty())
                .await;
        }
    }
}

#[tokio::test]
async fn idempotent_agent_gets_the_same_message_again_after_a_cut() {
    let hostile = HostileAgent::start(Hostility::Cut).await;
    let mut fleet = Delegators::start().await;
    let _gateway = fleet.gateway(&hostile.url, "idempotent = true").await;
    fleet.request_within("t", "m", "the key", Duration::from_secs(8)).await;
    wait_until("a second attempt", || hostile.requests("SendMessage").len() >= 2).await;
    let sent = hostile.requests("SendMessage");
    assert_eq!(sent[0]["message"], sent[1]["message"]);
    assert!(sent[0]["message"]["messageId"].is_string());
    // Later attempts find no connection, and say nothing about the first one.
    drop(hostile);
    let error: AgentTaskError = fleet.response().await;
    assert_eq!((error.code, error.executed), (AgentTaskErrorCode::Expired, Executed::Unknown));
}
