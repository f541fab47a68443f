//! Handlers whose common journal in PostgreSQL is out of reach.

use std::time::Duration;

use rockbot_contracts::Executed;
use rockbot_testkit::{FaultProxy, fixture::within_timeout, store_fixture::test_postgres_url};

use crate::{executed::assert_none_denied, requests::Requests};

/// Setting of the journal.
const STORE: &str = "ROCKBOT_STORE__URL";
/// Time limit of a call.
const TIMEOUT: Duration = Duration::from_secs(55);

/// Waits until a handler can record calls.
async fn wait_for_journal(requests: &mut Requests) {
    within_timeout("the journal", async {
        loop {
            requests.send(&requests.command("true", TIMEOUT)).await;
            if requests.reply().await.outcome.is_ok() {
                return;
            }
        }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn call_without_journal_is_unknown_and_does_not_run() {
    let mut requests = Requests::start().await;
    let store = FaultProxy::start(&test_postgres_url()).await;
    let settings = [(STORE, store.url())];
    let handler = requests.handler("handler-1", "8", &settings).await;
    for is_refused in [true, false] {
        wait_for_journal(&mut requests).await;
        if is_refused {
            store.refuse();
            store.cut_all();
        } else {
            store.stall();
        }
        requests.send(&requests.command("echo ran >> call-ran", TIMEOUT)).await;
        let reply = requests.reply().await;
        assert_eq!(reply.error().1, Executed::Unknown, "{reply:?}");
        store.accept();
        store.resume();
    }
    assert_eq!(requests.stop(vec![handler], &settings).await, []);
    assert_eq!(requests.runs("call-ran"), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn handler_that_lost_its_lease_does_not_deny_run_elsewhere() {
    let mut requests = Requests::start().await;
    let store = FaultProxy::start(&test_postgres_url()).await;
    // It holds two calls, of which one runs.
    let mut lost = requests.handler("handler-1", "1", &[(STORE, store.url())]).await;
    let blocker = "echo $$ > blocker; until [ -e gate ]; do sleep 0.02; done";
    requests.send(&requests.command(blocker, TIMEOUT)).await;
    requests.fleet.wait_for_line("blocker").await;
    let request = requests.command("echo ran >> call-ran; echo done", TIMEOUT);
    requests.send(&request).await;
    lost.expect_log("call waits for a permit").await;
    store.refuse();
    store.cut_all();
    lost.expect_log("handler lease not acquired").await;

    let url = test_postgres_url();
    let settings = [(STORE, url.as_str())];
    let other = requests.handler("handler-2", "8", &settings).await;
    requests.resend(&request).await;
    let ran = requests.replies_until(&request).await;
    assert_eq!(ran.last().expect("a reply").outcome, Ok("done\n".to_owned()));
    requests.fleet.write("gate", "");
    let mut replies = requests.replies_until(&request).await;
    store.accept();
    replies.extend(ran);
    replies.extend(requests.stop(vec![lost, other], &settings).await);
    assert_none_denied(&replies);
    assert_eq!(requests.runs("call-ran"), 1);
}
