//! Turns of many conversations, at a rate or a number at a time.

use std::{sync::Arc, time::Duration};

use rockbot_agent::AgentClient;
use rockbot_contracts::{
    AgentName, InstanceId, ReplyBody, SessionId, UserMessage, user::TurnOutcome,
};
use tokio::{
    task::JoinSet,
    time::{Instant, MissedTickBehavior, interval},
};

use crate::conversations::harness::Replicas;

/// Limit between two replies.
const IDLE: Duration = Duration::from_secs(60);

/// A turn that ended.
#[derive(Debug, Clone)]
pub(super) struct EndedTurn {
    pub(super) sent: Instant,
    pub(super) time: Duration,
    /// Continuations by another process.
    pub(super) resumed: usize,
    outcome: TurnOutcome,
    text: String,
}

impl EndedTurn {
    pub(super) fn is_completed(&self) -> bool {
        self.outcome == TurnOutcome::Completed && self.text == "done"
    }
}

/// A client of an agent. Clones share its reply queue.
#[derive(Clone)]
pub(super) struct TurnClient {
    client: Arc<AgentClient>,
    agent: AgentName,
}

impl TurnClient {
    pub(super) async fn connect(replicas: &Replicas) -> Self {
        let bus = replicas.fleet.bus(|_| {}).await;
        let client = AgentClient::connect(bus, &InstanceId::generate()).await.expect("a queue");
        let client = Arc::new(client.with_idle_timeout(IDLE));
        Self { client, agent: replicas.agent.clone() }
    }

    /// Sends a message, and reads its replies until the answer.
    pub(super) async fn turn(&self, session: SessionId, text: &str) -> EndedTurn {
        let sent = Instant::now();
        let message = UserMessage::new(session, text);
        let mut replies = self.client.send(&self.agent, &message).await.expect("sent");
        let mut resumed = 0;
        while let Some(reply) = replies.next().await {
            match reply.expect("a reply").body {
                ReplyBody::Resumed { .. } => resumed += 1,
                ReplyBody::Answer { text, outcome, .. } => {
                    return EndedTurn { sent, time: sent.elapsed(), resumed, outcome, text };
                }
                _ => {}
            }
        }
        panic!("the replies ended without an answer");
    }

    /// Starts turns of new conversations at a rate until `work` completes, and returns all of them with its
    /// output.
    pub(super) async fn at_rate<T>(
        &self,
        per_second: u32,
        text: &'static str,
        work: impl Future<Output = T>,
    ) -> (Vec<EndedTurn>, T) {
        let mut work = std::pin::pin!(work);
        let mut turns = JoinSet::new();
        let mut ticks = interval(Duration::from_secs(1) / per_second);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Burst);
        let output = loop {
            tokio::select! {
                output = &mut work => break output,
                _ = ticks.tick() => {
                    let client = self.clone();
                    turns.spawn(async move { client.turn(SessionId::generate(), text).await });
                }
            }
        };
        (turns.join_all().await, output)
    }

    /// Runs one turn of each conversation, `in_flight` at a time.
    pub(super) async fn one_each(
        &self,
        sessions: impl IntoIterator<Item = SessionId>,
        in_flight: usize,
        text: &'static str,
    ) -> Vec<EndedTurn> {
        let mut sessions = sessions.into_iter();
        let mut turns = JoinSet::new();
        let mut ended = Vec::new();
        loop {
            while turns.len() < in_flight
                && let Some(session) = sessions.next()
            {
                let client = self.clone();
                turns.spawn(async move { client.turn(session, text).await });
            }
            let Some(turn) = turns.join_next().await else { return ended };
            ended.push(turn.expect("no panic"));
        }
    }
}
