//! Agents killed with SIGKILL at each point of a turn that a user or another process can see. The same turn continues
//! in the restarted process, and in another replica.

use rockbot_contracts::{MessageId, ReplyBody, SessionId};
use rustix::process::Signal;

use super::{
    harness::{Replicas, assert_completed, kill},
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
        let agent = replicas.start("agent-1").await;
        let (mut user, session) = (replicas.user().await, SessionId::generate());
        let message = user.send(&session, "run the command").await;
        Self { replicas, model, agent, other: None, user, session, message }
    }

    async fn start_other(&mut self, successor: Successor) {
        if successor == Successor::OtherReplica {
            self.other = Some(self.replicas.start("agent-2").await);
        }
    }

    async fn assert_recorded(&self, kinds: &[&str]) {
        assert_eq!(self.replicas.kinds(&self.session).await, kinds);
    }

    /// Kills the process, and checks that another one completes the turn.
    async fn complete(mut self) {
        kill(self.agent).await;
        self.replicas.handler.send(Signal::CONT);
        let agent = match self.other.take() {
            Some(other) => other,
            None => self.replicas.start("agent-1").await,
        };
        assert_completed(&self.user.answer(&self.message).await, "done");
        assert_eq!(self.replicas.lines(), ["ran"]);
        self.user.assert_calls_succeeded();
        self.replicas.finish(vec![agent], self.user).await;
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
async fn answered_message_is_not_run_again() {
    for successor in SUCCESSORS {
        let mut crash = Crash::begin(Stall::BeforeResponse(9)).await;
        crash.start_other(successor).await;
        assert_completed(&crash.user.answer(&crash.message).await, "done");
        // The message may not be acknowledged yet.
        kill(crash.agent).await;
        let agent = match crash.other.take() {
            Some(other) => other,
            None => crash.replicas.start("agent-1").await,
        };
        let next = crash.user.send(&crash.session, "run the command").await;
        assert_completed(&crash.user.answer(&next).await, "done");
        assert_eq!(crash.replicas.lines(), ["ran", "ran"]);
        let turn = ["message", "model", "result", "answer"];
        assert_eq!(crash.replicas.kinds(&crash.session).await, [turn, turn].concat());
        crash.user.assert_equal_answers();
        crash.replicas.stop(vec![agent]).await;
    }
}
