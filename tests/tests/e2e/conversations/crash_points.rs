//! Agents killed with SIGKILL at each point of a turn that a user or another process can see. The same turn continues
//! in the restarted process, and in another replica.

use std::time::Duration;

use rockbot_contracts::{MessageId, ReplyBody, SessionId};
use rockbot_testkit::{
    FaultProxy,
    fixture::{test_broker_url, within_timeout},
    proxy::Direction,
};
use rustix::process::Signal;
use tokio::time::interval;

use super::{
    harness::{Replicas, assert_completed},
    model_server::{FIRST_WORDS, ModelServer, Stall},
    user::User,
};
use crate::process::Running;

const COMMAND: &str = "echo ran >> lines";

/// The process that continues the turn.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Successor {
    Restarted,
    OtherReplica,
}

const SUCCESSORS: [Successor; 2] = [Successor::Restarted, Successor::OtherReplica];

/// A turn whose process is about to be killed.
struct Crash {
    replicas: Replicas,
    model: ModelServer,
    /// Between the process and the broker.
    proxy: FaultProxy,
    agent: Running,
    other: Option<Running>,
    user: User,
    session: SessionId,
    message: MessageId,
}

impl Crash {
    /// Starts a turn of a model that stops at `stall`. The second replica starts when the turn runs in the first.
    async fn begin(stall: Stall) -> Self {
        let model = ModelServer::start(COMMAND, stall).await;
        let replicas = Replicas::new("").await.with_model_server(model.base_url());
        let proxy = FaultProxy::start(&test_broker_url()).await;
        let agent = replicas.start_with("agent-1", &[("ROCKBOT_BUS__URL", proxy.url())]).await;
        let (mut user, session) = (replicas.user().await, SessionId::generate());
        let message = user.send(&session, "run the command").await;
        Self { replicas, model, proxy, agent, other: None, user, session, message }
    }

    async fn start_other(&mut self, successor: Successor) {
        if successor == Successor::OtherReplica {
            self.other = Some(self.replicas.start("agent-2").await);
        }
    }

    async fn assert_recorded(&self, kinds: &[&str]) {
        assert_eq!(self.replicas.kinds(&self.session).await, kinds);
    }

    /// Waits until the answer is recorded.
    async fn wait_for_recorded_answer(&self) {
        let stores = self.replicas.open_store().await;
        let mut poll = interval(Duration::from_millis(10));
        within_timeout("a recorded answer", async {
            loop {
                let entries = self.replicas.entries(&stores, &self.session).await;
                if entries.last().is_some_and(|entry| entry["kind"] == "answer") {
                    return;
                }
                poll.tick().await;
            }
        })
        .await;
        stores.close().await;
    }

    /// Kills the process, and waits for its successor.
    async fn replace(&mut self) {
        let successor = self.other.take();
        self.agent.send(Signal::KILL);
        self.agent.wait_for_exit().await;
        self.replicas.handler.send(Signal::CONT);
        // A proxy that holds bytes back does not notice that its client is gone.
        self.proxy.cut_all();
        self.agent = match successor {
            Some(other) => other,
            None => self.replicas.start("agent-1").await,
        };
    }

    /// Kills the process, and checks that another one completes the turn.
    async fn complete(mut self) {
        self.replace().await;
        assert_completed(&self.user.answer(&self.message).await, "done");
        assert_eq!(self.replicas.lines(), ["ran"]);
        self.user.assert_calls_succeeded();
        self.replicas.finish(vec![self.agent], self.user).await;
    }

    /// Checks that the answered turn did not run again, and that the conversation continues.
    async fn check_next_message(mut self) {
        let next = self.user.send(&self.session, "run the command").await;
        assert_completed(&self.user.answer(&next).await, "done");
        assert_eq!(self.replicas.lines(), ["ran", "ran"]);
        let turn = ["message", "model", "result", "answer"];
        self.assert_recorded(&[turn, turn].concat()).await;
        self.user.assert_equal_answers();
        self.replicas.stop(vec![self.agent]).await;
    }
}

#[tokio::test]
async fn turn_continues_after_its_message() {
    for successor in SUCCESSORS {
        let mut crash = Crash::begin(Stall::BeforeResponse(0)).await;
        crash.model.stalled().await;
        crash.start_other(successor).await;
        crash.assert_recorded(&["message"]).await;
        crash.complete().await;
    }
}

#[tokio::test]
async fn turn_continues_after_partial_response() {
    for successor in SUCCESSORS {
        let mut crash = Crash::begin(Stall::InFirstResponse).await;
        crash.model.stalled().await;
        let is_shown = |body: &ReplyBody| matches!(body, ReplyBody::TextDelta { text } if text.contains(FIRST_WORDS));
        crash.user.reply_to(&crash.message, "the first words", is_shown).await;
        crash.start_other(successor).await;
        crash.assert_recorded(&["message"]).await;
        crash.complete().await;
    }
}

#[tokio::test]
async fn turn_continues_after_sent_call() {
    for successor in SUCCESSORS {
        let mut crash = Crash::begin(Stall::BeforeResponse(0)).await;
        crash.model.stalled().await;
        crash.start_other(successor).await;
        // The call waits in the queue.
        crash.replicas.handler.send(Signal::STOP);
        crash.model.release();
        let is_sent = |body: &ReplyBody| matches!(body, ReplyBody::ToolStarted { .. });
        crash.user.reply_to(&crash.message, "a sent call", is_sent).await;
        crash.assert_recorded(&["message", "model"]).await;
        crash.complete().await;
    }
}

#[tokio::test]
async fn turn_continues_after_recorded_result() {
    for successor in SUCCESSORS {
        let mut crash = Crash::begin(Stall::BeforeResponse(1)).await;
        crash.model.stalled().await;
        crash.start_other(successor).await;
        crash.assert_recorded(&["message", "model", "result"]).await;
        crash.complete().await;
    }
}

#[tokio::test]
async fn recorded_answer_is_published() {
    for successor in SUCCESSORS {
        let mut crash = Crash::begin(Stall::BeforeResponse(1)).await;
        crash.model.stalled().await;
        crash.start_other(successor).await;
        crash.proxy.stall_direction(Direction::ToBroker);
        crash.model.release();
        crash.wait_for_recorded_answer().await;
        crash.complete().await;
    }
}

#[tokio::test]
async fn message_of_published_answer_is_not_run_again() {
    for successor in SUCCESSORS {
        let mut crash = Crash::begin(Stall::BeforeResponse(1)).await;
        crash.model.stalled().await;
        crash.start_other(successor).await;
        // Without a confirm of the answer, the process does not acknowledge the message.
        crash.proxy.stall_direction(Direction::ToClient);
        crash.model.release();
        assert_completed(&crash.user.answer(&crash.message).await, "done");
        crash.replace().await;
        // The redelivered message is answered from its record.
        assert_completed(&crash.user.second_answer(&crash.message).await, "done");
        crash.check_next_message().await;
    }
}

#[tokio::test]
async fn answered_message_is_not_run_again() {
    for successor in SUCCESSORS {
        let mut crash = Crash::begin(Stall::BeforeResponse(9)).await;
        crash.start_other(successor).await;
        assert_completed(&crash.user.answer(&crash.message).await, "done");
        // The message may not be acknowledged yet.
        crash.replace().await;
        crash.check_next_message().await;
    }
}
