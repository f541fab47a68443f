//! `rockbot demo --team`: a message whose parts are done by sub-agents. The process that starts them is killed, and
//! this one continues their work.

use std::{path::Path, process::Stdio, sync::Arc, time::Duration};

use anyhow::Context;
use futures_util::future::{BoxFuture, pending};
use rockbot_agent::AgentDefinition;
use rockbot_contracts::{
    ConversationRequest, ConversationResponse, SessionId, TaskSummary,
    conversation::{HistoryBody, HistoryItem},
};
use rockbot_llm::{ChatError, ChatMessage, ChatModel, ChatRequest, ChatStream, ScriptedModel};
use rockbot_service::{Interrupts, exit};
use secrecy::SecretString;
use tokio::{
    io::{AsyncBufReadExt, BufReader},
    process::{Child, Command},
    sync::Notify,
    time::{sleep, timeout},
};

use super::{DemoFleet, at, create_files, heading, print_introduction};
use crate::{
    failure::{Failure, OrExit, Outcome},
    print::outln,
    render,
    settings::Settings,
    tasks,
};

const SCRIPT: &str = include_str!("../../../../examples/demo-team.toml");
const FIRST: &str = "Review this folder, in parts that you delegate.";
const SECOND: &str = "Meanwhile, check the notes with two plans.";
/// The part whose process is killed.
const HELD_TASK: &str = "Read the open work";
/// Folder of the files in the temporary directory.
const FILES: &str = "files";
/// Number of parts.
const PARTS: usize = 3;
/// The line with which the first process reports that it may be killed.
const READY: &str = "rockbot-demo: the last part waits for its model";
/// Time limit of the first process.
const FIRST_LIMIT: Duration = Duration::from_secs(120);
/// Interval at which the first process looks for ended parts.
const POLL: Duration = Duration::from_millis(50);
/// Longest text of a step, in characters.
const STEP_CHARS: usize = 60;

/// Runs both processes.
pub(crate) async fn run(settings: Settings) -> Outcome {
    let folder = create_files(FILES)?;
    let introduction = "Each process has an agent and a tool handler, connected by an in-memory bus. \
                        Both use one SQLite file for conversations.";
    print_introduction(&folder.path().join(FILES), introduction)?;
    let mut interrupts = Interrupts::listen().or_exit(exit::SOFTWARE)?;
    let killed = run_first_process(folder.path()).await?;
    let own = std::process::id();
    outln!(
        "\n{}\n",
        heading(&format!(
            "Process {killed} was killed (SIGKILL) while its last sub-agent waited for the model. Process \
             {own} continues."
        ))
    )?;
    let settings = stored(settings, folder.path());
    let model = ScriptedModel::from_toml("demo", SCRIPT).or_exit(exit::SOFTWARE)?;
    let fleet = DemoFleet::start(&settings, definition(), Arc::new(model), session()?).await?;
    let shown = continue_work(&fleet, killed, &mut interrupts).await;
    fleet.stop(&settings).await;
    folder.close().context("cannot remove the temporary directory").or_exit(exit::SOFTWARE)?;
    shown?;
    Ok(exit::OK)
}

/// Sends a message while the sub-agents work on, and shows their results, steps and spending.
async fn continue_work(
    fleet: &DemoFleet,
    killed: u32,
    interrupts: &mut Interrupts,
) -> Result<(), Failure> {
    let conversation = &fleet.conversation;
    conversation.expect_background(PARTS).await;
    fleet.ask(SECOND, interrupts).await?;
    conversation.await_background(interrupts).await?;
    outln!("\n{}", render::dim("The sub-agents, as `rockbot tasks list` shows those of a fleet:"))?;
    let tasks = tasks_of(fleet).await?;
    tasks::list(&tasks, false)?;
    outln!("\n{}", render::dim("Their steps, and the process of each:"))?;
    for task in &tasks {
        outln!("{}", render::short_line(&task.description, 80))?;
        let mut process = killed;
        for item in history(fleet, task).await? {
            if matches!(item.body, HistoryBody::Resumed { .. }) {
                process = std::process::id();
            }
            if let Some(step) = step(&item.body) {
                outln!("  {}", render::dim(&format!("process {process}: {step}")))?;
            }
        }
    }
    Ok(())
}

/// Returns one line on a recorded step.
fn step(body: &HistoryBody) -> Option<String> {
    let line = |text: &str| render::short_line(text, STEP_CHARS);
    Some(match body {
        HistoryBody::Model { calls, .. } => {
            let calls = calls.iter().map(|call| format!("{} {}", call.tool_name, call.arguments));
            format!("the model calls {}", line(&calls.collect::<Vec<_>>().join(", ")))
        }
        HistoryBody::Result { text, .. } => format!("result {}", line(text)),
        HistoryBody::Resumed { attempt, .. } => format!("continues the turn, as number {attempt}"),
        HistoryBody::Answer { text, usage, .. } => {
            let calls = usage.as_ref().map(|usage| usage.turn.model_calls).unwrap_or_default();
            format!("answer after {calls} model calls: {}", line(text))
        }
        _ => return None,
    })
}

async fn tasks_of(fleet: &DemoFleet) -> Result<Vec<TaskSummary>, Failure> {
    let (client, agent) = (&fleet.conversation.client, &fleet.conversation.agent);
    match client.request(agent, &ConversationRequest::Tasks {}).await? {
        ConversationResponse::Tasks { tasks } => Ok(tasks),
        _ => Ok(Vec::new()),
    }
}

async fn history(fleet: &DemoFleet, task: &TaskSummary) -> Result<Vec<HistoryItem>, Failure> {
    let (client, agent) = (&fleet.conversation.client, &fleet.conversation.agent);
    let session_id = task.task_session_id.clone();
    let request = ConversationRequest::History { session_id, from: 0, limit: 100 };
    match client.request(agent, &request).await? {
        ConversationResponse::History { items, .. } => Ok(items),
        _ => Ok(Vec::new()),
    }
}

fn definition() -> AgentDefinition {
    let mut definition = AgentDefinition::assistant();
    definition.internal.batch = true;
    definition.internal.wisps = true;
    definition
}

fn session() -> Result<SessionId, Failure> {
    SessionId::new("demo").or_exit(exit::SOFTWARE)
}

/// Returns settings whose conversations outlive the process.
fn stored(settings: Settings, folder: &Path) -> Settings {
    let mut settings = at(settings, &folder.join(FILES));
    let url = format!("sqlite:{}", folder.join("conversations.db").display());
    settings.agent.conversations.store = Some(SecretString::from(url));
    settings
}

/// Starts the first process, prints its lines, and kills it when it is ready. Returns its id.
async fn run_first_process(folder: &Path) -> Result<u32, Failure> {
    let program = std::env::current_exe().context("cannot find this program");
    let mut command = Command::new(program.or_exit(exit::SOFTWARE)?);
    command.args(["demo", "--team", "--first-process"]).arg(folder);
    command.stdin(Stdio::null()).stdout(Stdio::piped()).kill_on_drop(true);
    let started = command.spawn().context("cannot start another process");
    let mut child = started.or_exit(exit::SOFTWARE)?;
    let id = child.id().unwrap_or_default();
    outln!("{}\n", heading(&format!("Process {id}")))?;
    let is_ready = timeout(FIRST_LIMIT, relay(&mut child)).await.unwrap_or(Ok(false))?;
    child.kill().await.context("cannot kill the first process").or_exit(exit::SOFTWARE)?;
    if !is_ready {
        let cause = anyhow::anyhow!("the demo failed: its first process ended too early");
        return Err(Failure { code: exit::SOFTWARE, cause });
    }
    Ok(id)
}

/// Prints the lines of a process. Returns `true` once it is ready to be killed, and `false` at its end.
async fn relay(child: &mut Child) -> Result<bool, Failure> {
    let Some(output) = child.stdout.take() else { return Ok(false) };
    let mut lines = BufReader::new(output).lines();
    while let Some(line) = lines.next_line().await.or_exit(exit::SOFTWARE)? {
        if line == READY {
            return Ok(true);
        }
        outln!("{line}")?;
    }
    Ok(false)
}

/// Runs the first process: its last part waits for its model until the process is killed.
pub(crate) async fn run_first(settings: Settings, folder: &Path) -> Outcome {
    let settings = stored(settings, folder);
    let script = ScriptedModel::from_toml("demo", SCRIPT).or_exit(exit::SOFTWARE)?;
    let model = Arc::new(HeldModel { script, held: Notify::new() });
    let mut interrupts = Interrupts::listen().or_exit(exit::SOFTWARE)?;
    let fleet = DemoFleet::start(&settings, definition(), model.clone(), session()?).await?;
    fleet.ask(FIRST, &mut interrupts).await?;
    let others_ended = async {
        model.held.notified().await;
        while tasks_of(&fleet).await?.iter().filter(|task| task.state.is_terminal()).count() + 1
            < PARTS
        {
            sleep(POLL).await;
        }
        Ok::<_, Failure>(())
    };
    tokio::select! {
        ended = others_ended => ended?,
        shown = fleet.conversation.await_background(&mut interrupts) => shown?,
    }
    outln!("{READY}")?;
    sleep(FIRST_LIMIT).await;
    fleet.stop(&settings).await;
    Ok(exit::SOFTWARE)
}

/// The scripted model, which does not respond to one sub-agent after its first step.
struct HeldModel {
    script: ScriptedModel,
    held: Notify,
}

impl ChatModel for HeldModel {
    fn name(&self) -> &str {
        self.script.name()
    }

    fn stream<'a>(&'a self, request: ChatRequest) -> BoxFuture<'a, Result<ChatStream, ChatError>> {
        let is_held = |message: &ChatMessage| matches!(message, ChatMessage::User(text) if text.contains(HELD_TASK));
        let has_result =
            request.messages.iter().any(|message| matches!(message, ChatMessage::Tool { .. }));
        if has_result && request.messages.iter().any(is_held) {
            self.held.notify_one();
            return Box::pin(pending());
        }
        self.script.stream(request)
    }
}
