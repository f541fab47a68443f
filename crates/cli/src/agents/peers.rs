//! Agents as they announce themselves to others, and tasks for them.

use std::{sync::Arc, time::Duration};

use rockbot_bus::{Bus, Consumer, Publication, PublishError, Subscription};
use rockbot_contracts::{
    AgentCard, AgentName, AgentTaskCancelRequest, AgentTaskError, AgentTaskErrorCode,
    AgentTaskRequest, AgentTaskResult, AgentTaskState, AgentTaskStatusUpdate, ContentTrust,
    DiscoveryRefresh, Envelope, InstanceId, Message, MessageId, QueueSpec, RoutingKey, TaskId,
    TaskMessage,
    identity::{CLI, may_reply_as},
    json::Limits,
    topology::{
        agent_response_at, agent_task, agent_task_cancel, discovery_announce, discovery_refresh,
        user_message,
    },
};
use rockbot_service::{Interrupts, exit};
use serde_json::json;
use tokio::time::{Instant, timeout_at};

use crate::{
    failure::{Failure, OrExit, Outcome},
    fleet::Fleet,
    print::{note, outln},
    render,
    settings::Settings,
};

/// Time in which agents announce themselves on request.
const DISCOVERY_TIME: Duration = Duration::from_millis(1500);
/// Time after the limit of a task in which the agent may still report its end.
const GRACE: Duration = Duration::from_secs(5);
/// Time for which a cancelled task may confirm its end.
const CANCEL_TIMEOUT: Duration = Duration::from_secs(10);
const PREFETCH: u16 = 64;
/// Most agents that are listed. Further announcements are ignored.
const MAX_AGENTS: usize = 1000;
/// Longest description and progress, in characters.
const MAX_LINE_CHARS: usize = 500;

/// A task for an agent.
pub(super) struct Task {
    pub(super) agent: AgentName,
    pub(super) text: String,
    pub(super) skill: String,
    pub(super) timeout: Duration,
    /// The task whose question is answered.
    pub(super) answers: Option<TaskId>,
}

/// Asks the agents of a fleet to announce themselves. Those of other users in their names are left out.
pub(super) async fn discover(bus: &Arc<dyn Bus>) -> Result<Vec<AgentCard>, Failure> {
    let instance = InstanceId::generate();
    let queue = QueueSpec::exclusive(&discovery_announce(), &instance);
    let subscription = Subscription::on_receipt(queue, PREFETCH);
    let mut announcements = bus.consume(subscription).await.or_exit(exit::UNAVAILABLE)?;
    let refresh = Envelope::from_payload(&DiscoveryRefresh {}).with_source(CLI);
    let refresh = Publication::announcement(discovery_refresh(), refresh);
    bus.publish(refresh).await.or_exit(exit::UNAVAILABLE)?;
    let until = Instant::now() + DISCOVERY_TIME;
    let mut cards: Vec<AgentCard> = Vec::new();
    while let Ok(Some(delivery)) = timeout_at(until, announcements.next()).await {
        let envelope = delivery.into_envelope();
        let Ok(card) = envelope.decode::<AgentCard>(Limits::default()) else { continue };
        let is_known = cards.iter().any(|one| one.agent_name == card.agent_name);
        let is_own = may_reply_as(envelope.user_id.as_deref(), &card.agent_name);
        if is_own && !is_known && !card.is_deregistering {
            cards.push(card);
        }
        if cards.len() == MAX_AGENTS {
            note!("only the first {MAX_AGENTS} agents are listed");
            break;
        }
    }
    announcements.cancel().await;
    cards.sort_by(|one, other| one.agent_name.cmp(&other.agent_name));
    Ok(cards)
}

/// Prints what an agent announces.
pub(super) async fn show(settings: &Settings, agent: &AgentName, json: bool) -> Outcome {
    let fleet = connect(settings).await?;
    let found = announced_card(&fleet, agent).await;
    fleet.close().await;
    let card = match found? {
        Ok(card) => card,
        Err(reason) => {
            note!("{reason}");
            return Ok(exit::ANSWERED_WITH_ERROR);
        }
    };
    if json {
        outln!("{}", render::json(&json!(card)))?;
        return Ok(exit::OK);
    }
    let line = |text: &str| render::short_line(text, MAX_LINE_CHARS);
    outln!(
        "{} {}\n{}\n",
        line(card.agent_name.as_str()),
        line(&card.version),
        line(&card.description)
    )?;
    let rows = card.skills.iter().map(|skill| {
        let examples = skill.examples.join("; ");
        vec![
            line(&skill.id),
            line(&skill.description),
            line(&skill.tags.join(", ")),
            line(&examples),
        ]
    });
    outln!("{}", render::table(&["skill", "description", "tags", "examples"], rows))?;
    Ok(exit::OK)
}

/// Returns what an agent announces, or why it announces nothing.
async fn announced_card(
    fleet: &Fleet,
    agent: &AgentName,
) -> Result<Result<AgentCard, String>, Failure> {
    let cards = discover(&fleet.bus).await?;
    if let Some(card) = cards.into_iter().find(|card| card.agent_name == *agent) {
        return Ok(Ok(card));
    }
    let consumers = fleet.consumers(&user_message(agent)).await;
    Ok(Err(why_unannounced(agent, consumers.ok().flatten())))
}

/// Explains why an agent announces nothing. `consumers` is the number of processes that receive its messages, if it
/// is known.
fn why_unannounced(agent: &AgentName, consumers: Option<u32>) -> String {
    match consumers {
        Some(0) => format!(
            "agent {agent} does not run: no process receives its messages; `rockbot agents` lists the agents"
        ),
        Some(_) => format!(
            "agent {agent} runs, and does not announce itself to other agents: its definition lacks [a2a] \
             expose = true; `rockbot tools list --agent {agent}` lists its tools"
        ),
        None => format!(
            "agent {agent} announces nothing: it does not run, or its definition lacks [a2a] expose = true; \
             this user may not inspect its queue"
        ),
    }
}

/// Hands a task to an agent, and prints its result.
pub(super) async fn ask(settings: &Settings, task: Task, json: bool) -> Outcome {
    let fleet = connect(settings).await?;
    let outcome = Exchange::start(fleet.bus.clone(), task).await;
    let outcome = match outcome {
        Ok(mut exchange) => exchange.run(json).await,
        Err(failure) => Err(failure),
    };
    fleet.close().await;
    outcome
}

async fn connect(settings: &Settings) -> Result<Fleet, Failure> {
    if settings.embeds() {
        return Err(Failure::usage("other agents are on a bus: name the running fleet with --bus"));
    }
    Fleet::open(settings).await
}

/// A task that an agent does.
struct Exchange {
    bus: Arc<dyn Bus>,
    task: Task,
    id: TaskId,
    reply_to: RoutingKey,
    responses: Consumer,
}

/// A response that ends the command.
enum FinalResponse {
    Result(AgentTaskResult),
    Error(AgentTaskError),
    Question(AgentTaskStatusUpdate),
}

impl Exchange {
    async fn start(bus: Arc<dyn Bus>, task: Task) -> Result<Self, Failure> {
        let caller = AgentName::new(CLI).or_exit(exit::SOFTWARE)?;
        let reply_to = agent_response_at(&caller, &InstanceId::generate());
        let queue = QueueSpec::reply(&reply_to, vec![(&reply_to).into()]);
        let subscription = Subscription::on_receipt(queue, PREFETCH);
        let responses = bus.consume(subscription).await.or_exit(exit::UNAVAILABLE)?;
        let id = task.answers.clone().unwrap_or_else(TaskId::generate);
        let exchange = Self { bus, task, id, reply_to, responses };
        exchange.request(caller).await?;
        Ok(exchange)
    }

    async fn request(&self, caller: AgentName) -> Result<(), Failure> {
        let Task { agent, text, skill, timeout, .. } = &self.task;
        let message = TaskMessage::new(TaskMessage::USER, text, None);
        let request = AgentTaskRequest {
            task_id: self.id.clone(),
            skill: skill.clone(),
            message: message.with_id(MessageId::generate()),
            lineage: vec![caller],
            depth: 0,
            budget: None,
        };
        let envelope = self.addressed(Envelope::from_payload(&request)).within(*timeout);
        let publication = Publication::mandatory(agent_task(agent), envelope);
        self.bus.publish(publication).await.map_err(|error| match error {
            PublishError::Unroutable { .. } => Failure::unavailable(format!(
                "agent {agent} cannot be reached: nothing serves its tasks. Nothing was sent."
            )),
            error => Failure::unavailable(error),
        })
    }

    fn addressed(&self, envelope: Envelope) -> Envelope {
        envelope
            .with_correlation_id(self.id.as_str())
            .with_source(CLI)
            .with_trust(ContentTrust::UserInput)
            .reply_to(self.reply_to.clone())
    }

    async fn run(&mut self, json: bool) -> Outcome {
        let mut interrupts = Interrupts::listen().or_exit(exit::SOFTWARE)?;
        let until = Instant::now() + self.task.timeout + GRACE;
        let response = tokio::select! {
            response = self.final_response(until, json) => response?,
            _ = interrupts.recv() => {
                self.cancel().await?;
                self.final_response(Instant::now() + CANCEL_TIMEOUT, json).await?
            }
        };
        let Some(response) = response else {
            let text = format!("no answer from {} within the time limit", self.task.agent);
            return Err(Failure { code: exit::TEMPORARY, cause: anyhow::anyhow!(text) });
        };
        match response {
            FinalResponse::Result(result) => {
                if json {
                    outln!("{}", render::json(&json!(result)))?;
                } else {
                    outln!("{}", render::clean(&result.text()))?;
                }
                if result.state == AgentTaskState::Completed {
                    return Ok(exit::OK);
                }
                note!("the task is {}", result.state.as_str());
                Ok(exit::ANSWERED_WITH_ERROR)
            }
            FinalResponse::Error(error) => {
                if json {
                    outln!("{}", render::json(&json!(error)))?;
                } else {
                    note!("{}", render::clean(&error.message));
                }
                Ok(match error.code {
                    AgentTaskErrorCode::Expired => exit::TEMPORARY,
                    _ => exit::ANSWERED_WITH_ERROR,
                })
            }
            FinalResponse::Question(status) => {
                if json {
                    outln!("{}", render::json(&json!(status)))?;
                } else {
                    outln!("{}", render::clean(&message_text(&status)))?;
                }
                note!(
                    "the agent waits for an answer: rockbot agents ask {} --skill {} --task {} TEXT",
                    self.task.agent,
                    self.task.skill,
                    self.id
                );
                Ok(exit::ANSWERED_WITH_ERROR)
            }
        }
    }

    /// Waits for the end of the task, and prints its progress. Returns `None` after `until`.
    async fn final_response(
        &mut self,
        until: Instant,
        json: bool,
    ) -> Result<Option<FinalResponse>, Failure> {
        while let Ok(delivery) = timeout_at(until, self.responses.next()).await {
            let Some(delivery) = delivery else {
                return Err(Failure::unavailable(
                    "the connection to the broker was lost; the task may still run",
                ));
            };
            let envelope = delivery.into_envelope();
            if !may_reply_as(envelope.user_id.as_deref(), &self.task.agent) {
                continue;
            }
            let limits = Limits::default();
            match envelope.message_type() {
                AgentTaskResult::TYPE => {
                    let result: AgentTaskResult =
                        envelope.decode(limits).or_exit(exit::SOFTWARE)?;
                    return Ok(Some(FinalResponse::Result(result)));
                }
                AgentTaskError::TYPE => {
                    let error: AgentTaskError = envelope.decode(limits).or_exit(exit::SOFTWARE)?;
                    return Ok(Some(FinalResponse::Error(error)));
                }
                AgentTaskStatusUpdate::TYPE => {
                    let Ok(status) = envelope.decode::<AgentTaskStatusUpdate>(limits) else {
                        continue;
                    };
                    if status.state == AgentTaskState::InputRequired {
                        return Ok(Some(FinalResponse::Question(status)));
                    }
                    let text = message_text(&status);
                    if !text.is_empty() && !json {
                        note!("{}", render::short_line(&text, MAX_LINE_CHARS));
                    }
                }
                _ => {}
            }
        }
        Ok(None)
    }

    async fn cancel(&self) -> Result<(), Failure> {
        let request = AgentTaskCancelRequest { task_id: self.id.clone() };
        let envelope = self.addressed(Envelope::from_payload(&request));
        let publication = Publication::mandatory(agent_task_cancel(&self.task.agent), envelope);
        self.bus.publish(publication).await.or_exit(exit::UNAVAILABLE)
    }
}

fn message_text(status: &AgentTaskStatusUpdate) -> String {
    status.message.as_ref().map(TaskMessage::text).unwrap_or_default()
}
