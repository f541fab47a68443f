//! `executed: no` is true: handlers on the broker with a common journal, and copies of a request in
//! several of them.

use std::time::{Duration, SystemTime};

use rockbot_contracts::{Envelope, Executed, ToolErrorCode};
use rockbot_testkit::{
    FaultProxy,
    fixture::{self, wait_until},
    proxy::Direction,
};
use rustix::process::Signal;
use serde_json::json;

use crate::{
    fleet::ProcessGroup,
    process::Running,
    requests::{Reply, Requests, call_of},
};

/// Time limit of a call that ends within it.
const TIMEOUT: Duration = Duration::from_secs(55);
/// Time limit of a call that is to pass while a handler hangs: enough to start another one on a busy machine.
const SHORT: Duration = Duration::from_secs(30);
/// A command that runs until the gate opens.
const BLOCKER: &str = "echo $$ > blocker; until [ -e gate ]; do sleep 0.02; done";
/// Log line of a handler with a request that another one runs.
const RUNS_ELSEWHERE: &str = "call runs in another handler";

/// Returns a command that writes a line to `<name>-ran` and its process id to `<name>`, and completes when
/// the gate opens.
fn gated(name: &str) -> String {
    format!(
        "echo ran >> {name}-ran; echo $$ > {name}; until [ -e gate ]; do sleep 0.02; done; echo done"
    )
}

pub(crate) fn assert_none_denied(replies: &[Reply]) {
    assert!(replies.iter().all(|reply| reply.executed != Executed::No), "{replies:?}");
}

async fn wait_until_late(request: &Envelope) {
    let deadline = request.budget.expect("a budget");
    wait_until("the deadline", || deadline.remaining(SystemTime::now()).is_zero()).await;
}

/// A handler that hangs with a request, which another one runs.
struct HungHandler {
    requests: Requests,
    hung: Running,
    request: Envelope,
    /// Keeps the proxy of the handler.
    _proxy: FaultProxy,
}

impl HungHandler {
    /// Returns a handler that hangs while the request waits for a permit in it, without its connection.
    async fn with_waiting_request() -> Self {
        let requests = Requests::start().await;
        let proxy = FaultProxy::start(&fixture::test_broker_url()).await;
        let url = ("ROCKBOT_BUS__URL", proxy.url());
        let mut hung = requests.handler("handler-1", "2", &[url]).await;
        requests.send(&requests.command(BLOCKER, TIMEOUT)).await;
        requests.fleet.wait_for_line("blocker").await;
        let request = requests.command(&gated("call"), SHORT);
        requests.send(&request).await;
        hung.expect_log("call waits for a permit").await;
        hung.send(Signal::STOP);
        proxy.cut_all();
        Self { requests, hung, request, _proxy: proxy }
    }

    /// Returns a handler that hangs before it reads the request, which is in its socket, before the end of
    /// its connection.
    async fn with_unread_request() -> Self {
        let requests = Requests::start().await;
        let proxy = FaultProxy::start(&fixture::test_broker_url()).await;
        let url = ("ROCKBOT_BUS__URL", proxy.url());
        let hung = requests.handler("handler-1", "2", &[url]).await;
        hung.send(Signal::STOP);
        let request = requests.command(&gated("call"), SHORT);
        requests.send(&request).await;
        requests.wait_until_delivered().await;
        proxy.truncate_next_chunk(Direction::ToClient);
        requests.send(&requests.command("true", TIMEOUT)).await;
        Self { requests, hung, request, _proxy: proxy }
    }

    /// Runs the call in another handler, which is killed. Checks the replies when the hung one goes on.
    async fn check(mut self) {
        let mut other = self.requests.handler("handler-2", "8", &[]).await;
        let _group = ProcessGroup::from_file(&self.requests.fleet, "call").await;
        other.send(Signal::KILL);
        other.wait_for_exit().await;
        wait_until_late(&self.request).await;
        self.hung.send(Signal::CONT);
        let mut replies = self.requests.replies_until(&self.request).await;
        let unknown = (ToolErrorCode::OutcomeUnknown, Executed::Unknown);
        assert_eq!(replies.last().expect("a reply").error(), unknown);
        self.requests.fleet.write("gate", "");
        replies.extend(self.requests.stop(vec![self.hung], &[]).await);
        assert_none_denied(&replies);
        assert_eq!(self.requests.runs("call-ran"), 1);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn handler_that_hung_with_waiting_request_does_not_deny_run() {
    HungHandler::with_waiting_request().await.check().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn handler_that_hung_before_reading_request_does_not_deny_run() {
    HungHandler::with_unread_request().await.check().await;
}

/// Two handlers. The first runs a call and takes no other request meanwhile; the second has a copy of it.
struct CopiedCall {
    requests: Requests,
    handlers: Vec<Running>,
    request: Envelope,
}

impl CopiedCall {
    async fn start(timeout: Duration) -> Self {
        let requests = Requests::start().await;
        let first = requests.handler("handler-1", "0", &[]).await;
        let request = requests.command(&gated("call"), timeout);
        requests.send(&request).await;
        requests.fleet.wait_for_line("call").await;
        let mut second = requests.handler("handler-2", "8", &[]).await;
        requests.resend(&request).await;
        second.expect_log(RUNS_ELSEWHERE).await;
        Self { requests, handlers: vec![first, second], request }
    }

    /// Returns the replies of both handlers, after which the call is settled.
    async fn finish(mut self) -> [Reply; 2] {
        let replies = [self.requests.reply().await, self.requests.reply().await];
        assert_eq!(self.requests.stop(self.handlers, &[]).await, []);
        assert_eq!(self.requests.runs("call-ran"), 1);
        replies
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn copy_returns_result_of_run_in_another_handler() {
    let copied = CopiedCall::start(TIMEOUT).await;
    copied.requests.fleet.write("gate", "");
    for reply in copied.finish().await {
        assert_eq!(reply.outcome, Ok("done\n".to_owned()));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn late_copy_returns_timeout_of_run_in_another_handler() {
    for reply in CopiedCall::start(SHORT).await.finish().await {
        assert_eq!(reply.error(), (ToolErrorCode::Timeout, Executed::Yes));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn copy_returns_outcome_of_cancelled_run_in_another_handler() {
    let copied = CopiedCall::start(TIMEOUT).await;
    copied.requests.cancel(&copied.request, TIMEOUT).await;
    for reply in copied.finish().await {
        assert_eq!(reply.error(), (ToolErrorCode::Cancelled, Executed::Yes));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn full_handler_denies_only_calls_that_never_run() {
    let mut requests = Requests::start().await;
    let free = requests.handler("handler-1", "0", &[]).await;
    let request = requests.command(&gated("call"), TIMEOUT);
    requests.send(&request).await;
    requests.fleet.wait_for_line("call").await;
    // One call runs here, one waits, and further ones are rejected.
    let mut full = requests.handler("handler-2", "2", &[]).await;
    requests.send(&requests.command(BLOCKER, TIMEOUT)).await;
    requests.fleet.wait_for_line("blocker").await;
    requests.send(&requests.command("true", TIMEOUT)).await;
    full.expect_log("call waits for a permit").await;
    let rejected = requests.command("echo ran >> rejected-ran", TIMEOUT);
    requests.send(&rejected).await;
    let overloaded = (ToolErrorCode::Overloaded, Executed::No);
    assert_eq!(requests.reply().await.error(), overloaded);

    // Nothing marks the copy, as if the broker had its publish twice.
    requests.send(&request).await;
    full.expect_log(RUNS_ELSEWHERE).await;
    requests.fleet.write("gate", "");
    let mut replies = Vec::new();
    for _ in 0..4 {
        replies.push(requests.reply().await);
    }
    assert!(replies.iter().all(|reply| reply.outcome.is_ok()), "{replies:?}");
    requests.resend(&rejected).await;
    assert_eq!(requests.reply().await.error(), overloaded);
    assert_eq!(requests.stop(vec![free, full], &[]).await, []);
    assert_eq!((requests.runs("call-ran"), requests.runs("rejected-ran")), (1, 0));
}

#[tokio::test(flavor = "multi_thread")]
async fn cancel_before_request_holds_for_every_copy() {
    let mut requests = Requests::start().await;
    requests.fleet.write("notes.md", "notes");
    let mut handlers = vec![
        requests.handler("handler-1", "8", &[]).await,
        requests.handler("handler-2", "8", &[]).await,
    ];
    // The journal has no record of a read-only call.
    let read = requests.request("read_file", &json!({"path": "notes.md"}), TIMEOUT);
    let command = requests.command("echo ran >> call-ran", TIMEOUT);
    let mut replies = Vec::new();
    for request in [&read, &command] {
        requests.cancel(request, TIMEOUT).await;
        let id = request.correlation_id.clone().expect("an id");
        for handler in &mut handlers {
            handler.expect_log(&id).await;
        }
        requests.send(request).await;
        // The first copy comes at once, and the others after a reply.
        for _ in 0..4 {
            requests.resend(request).await;
            replies.push(requests.reply().await);
        }
    }
    replies.extend(requests.stop(handlers, &[]).await);
    for reply in &replies {
        let (code, executed) = reply.error();
        assert_eq!(code, ToolErrorCode::Cancelled, "{replies:?}");
        // Without a record, a handler does not know that no other copy of the read-only call ran.
        let is_known = reply.call == call_of(&command) || executed != Executed::Unknown;
        assert!(!is_known || executed == Executed::No, "{replies:?}");
    }
    assert_eq!(requests.runs("call-ran"), 0);
}
