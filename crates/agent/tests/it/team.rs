//! Agents as tools of each other.

use std::{fs, path::Path, sync::Arc, time::Duration};

use rockbot_agent::{
    Agent, AgentDefinition, AgentParts, ConversationOptions, Conversations, Team, TurnAnswer,
};
use rockbot_contracts::{AgentName, SessionId, user::TurnOutcome};
use rockbot_llm::{ChatModel, ScriptedTurn};
use rockbot_store::{Clock, Prefix, Stores};
use rockbot_testkit::fixture::wait_until;
use rockbot_tools::{AttachedProviders, ToolRegistry};
use serde_json::json;
use tokio::{task::JoinHandle, time::Instant};

use crate::harness::{
    AgentFixture, Behavior, EventLog, ProbeTool, RecordingModel, cancel, message, register_members,
    send, settle, spawn_send,
};

/// Agents of one process, each with its own model.
struct TeamFixture {
    registry: Arc<ToolRegistry>,
    team: Team,
}

impl TeamFixture {
    /// Creates a team of the agent `tester` and others with these models.
    fn new(models: &[(&str, &Arc<RecordingModel>)]) -> Self {
        let registry = Arc::new(ToolRegistry::new());
        let models: Vec<_> =
            models.iter().map(|(name, model)| ((*name).to_owned(), (*model).clone())).collect();
        let factory = {
            let registry = registry.clone();
            Arc::new(move |definition: AgentDefinition| {
                let name = definition.name.as_str();
                let (_, model) = models.iter().find(|(one, _)| one == name).expect("a model");
                let model: Arc<dyn ChatModel> = model.clone();
                AgentParts::new(definition, model, registry.clone())
            })
        };
        let team = Team::new(AgentName::new("tester").unwrap(), factory);
        Self { registry, team }
    }

    /// Registers the tools of the team, and follows its changes until the result is dropped.
    async fn attach(&self) -> AttachedProviders {
        let providers = vec![Arc::new(self.team.clone()) as _];
        AttachedProviders::attach(self.registry.clone(), providers).await
    }

    fn tester(&self, model: &Arc<RecordingModel>) -> Agent {
        AgentFixture { registry: self.registry.clone(), ..AgentFixture::new() }.agent(model)
    }
}

fn definition(head: &str) -> AgentDefinition {
    let text = format!("+++\n{head}\n+++\nBe of use.");
    AgentDefinition::parse(Path::new("x.md"), &text).unwrap()
}

fn offered(model: &RecordingModel) -> Vec<(String, String)> {
    let tools = model.last_request().tools.into_iter();
    tools.map(|tool| (tool.name, tool.description)).collect()
}

#[tokio::test]
async fn enabled_agents_are_tools_unless_primary() {
    let idle = RecordingModel::script([]);
    let fixture = TeamFixture::new(&[("a", &idle), ("b", &idle), ("c", &idle), ("tester", &idle)]);
    fixture.team.set_definitions(vec![
        definition("name = 'a'\ndescription = 'People read this.'\ntool_description = 'Ask a.'"),
        definition("name = 'b'\ndescription = 'Counts.'"),
        definition(
            "name = 'c'\n[parameters]\ntype = 'object'\nrequired = ['n']\n\
             [parameters.properties.n]\ntype = 'integer'",
        ),
        definition("name = 'd'\nenabled = false"),
        definition("name = 'e'\nprimary = true"),
        definition("name = 'tester'"),
    ]);
    let _attached = fixture.attach().await;
    let model = RecordingModel::script([ScriptedTurn::text("Hm.")]);
    send(&fixture.tester(&model), "go").await;
    let expected = [("agent__a", "Ask a."), ("agent__b", "Counts."), ("agent__c", "c")];
    let expected: Vec<_> = expected.map(|(one, other)| (one.to_owned(), other.to_owned())).into();
    assert_eq!(offered(&model), expected);
    let tools = model.last_request().tools;
    assert_eq!(tools[0].parameters["required"], json!(["message"]));
    assert_eq!(tools[2].parameters["required"], json!(["n"]));
}

#[tokio::test]
async fn call_runs_a_turn_and_adds_its_spending() {
    let counting = RecordingModel::script([ScriptedTurn::text("Seven.")]);
    let looking = RecordingModel::script([ScriptedTurn::text("Eight.")]);
    let fixture = TeamFixture::new(&[("b", &counting), ("c", &looking)]);
    let own_schema = "name = 'c'\nparameters = {type = 'object'}";
    fixture.team.set_definitions(vec![definition("name = 'b'"), definition(own_schema)]);
    let _attached = fixture.attach().await;
    let model = RecordingModel::script([
        ScriptedTurn::default().call("agent__b", json!({"message": "Count the files."})),
        ScriptedTurn::default().call("agent__c", json!({"folder": "x"})),
        ScriptedTurn::default().call("agent__b", json!({"messages": "x"})),
        ScriptedTurn::text("Done."),
    ]);
    let answer = send(&fixture.tester(&model), "go").await;
    assert_eq!(model.tool_results()[..2], ["Seven.", "Eight."]);
    assert!(model.tool_results()[2].contains("invalid arguments"), "{:?}", model.tool_results());
    for (model, text) in [(&counting, "Count the files."), (&looking, r#"{"folder":"x"}"#)] {
        let last = model.last_request().messages.pop().unwrap();
        let rockbot_llm::ChatMessage::User(user_text) = &last else { panic!("{last:?}") };
        assert!(user_text.starts_with(text), "{user_text}");
    }
    let usage = answer.usage.unwrap();
    assert_eq!((usage.children.model_calls, usage.turn.model_calls), (2, 6));
}

#[tokio::test]
async fn waiting_agents_are_not_offered() {
    let inner = RecordingModel::script([
        ScriptedTurn::default().call("agent__b", json!({"message": "Help yourself."})),
        ScriptedTurn::text("I could not."),
    ]);
    let fixture = TeamFixture::new(&[("b", &inner), ("c", &inner)]);
    fixture.team.set_definitions(vec![definition("name = 'b'"), definition("name = 'c'")]);
    let _attached = fixture.attach().await;
    let model = RecordingModel::script([
        ScriptedTurn::default().call("agent__b", json!({"message": "Go."})),
        ScriptedTurn::text("Done."),
    ]);
    send(&fixture.tester(&model), "go").await;
    assert_eq!(inner.tool_results().len(), 1);
    assert!(
        inner.tool_results()[0].contains("already works on this request"),
        "{:?}",
        inner.tool_results()
    );
    let names: Vec<_> = offered(&inner).into_iter().map(|(name, _)| name).collect();
    assert_eq!(names, ["agent__c"]);
}

/// Starts a turn with a time limit of one minute that calls another agent, which calls a hanging tool.
async fn waiting(fixture: &TeamFixture, slow: &Arc<ProbeTool>) -> (Agent, JoinHandle<TurnAnswer>) {
    fixture.registry.register(slow.as_tool()).unwrap();
    fixture.team.set_definitions(vec![definition("name = 'b'\ntool_timeout = '1h'")]);
    let _attached = fixture.attach().await;
    let model = RecordingModel::script([
        ScriptedTurn::default().call("agent__b", json!({"message": "Go."})),
        ScriptedTurn::text("Done."),
    ]);
    let mut fixture = AgentFixture { registry: fixture.registry.clone(), ..AgentFixture::new() };
    fixture.limits.turn_timeout = Duration::from_secs(60);
    let agent = fixture.agent(&model);
    let (turn, _) = spawn_send(&agent, message("s", "go"));
    slow.wait_for_call().await;
    (agent, turn)
}

fn caller_of_slow() -> (TeamFixture, Arc<ProbeTool>) {
    let inner = RecordingModel::script([ScriptedTurn::default().call("slow", json!({}))]);
    (TeamFixture::new(&[("b", &inner)]), ProbeTool::new("slow", Behavior::Hang))
}

#[tokio::test(start_paused = true)]
async fn cancel_ends_child_turns() {
    let (fixture, slow) = caller_of_slow();
    let (agent, turn) = waiting(&fixture, &slow).await;
    assert!(!slow.token().is_cancelled());
    agent.send(cancel("s"), EventLog::default().sink()).await;
    assert_eq!(turn.await.unwrap().outcome, TurnOutcome::Cancelled);
    settle().await;
    assert!(slow.token().is_cancelled());
}

#[tokio::test(start_paused = true)]
async fn child_turn_ends_by_the_deadline_of_its_parent() {
    let started = Instant::now();
    let (fixture, slow) = caller_of_slow();
    let (_agent, turn) = waiting(&fixture, &slow).await;
    let deadline = slow.contexts.lock().unwrap()[0].deadline;
    assert_eq!(deadline - started, Duration::from_secs(60), "not the hour of its own definition");
    turn.await.unwrap();
    assert!(started.elapsed() < Duration::from_secs(61));
}

#[tokio::test]
async fn definitions_are_reloaded_at_run_time() {
    let idle = RecordingModel::script([]);
    let fixture = TeamFixture::new(&[("a", &idle), ("b", &idle)]);
    let names = || fixture.team.members().iter().map(ToString::to_string).collect::<Vec<_>>();
    let _attached = fixture.attach().await;
    let folder = tempfile::tempdir().unwrap();
    let write = |name: &str, head: &str| {
        fs::write(folder.path().join(name), format!("+++\n{head}\n+++\nBe of use.")).unwrap();
    };
    write("a.md", "");
    fixture.team.watch(folder.path().to_owned());
    wait_until("a is a tool", || names() == ["a"]).await;
    write("b.md", "");
    wait_until("b is a tool", || names() == ["a", "b"]).await;
    write("a.md", "enabled = false");
    wait_until("a is removed", || names() == ["b"]).await;
    wait_until("its tool is removed", || fixture.registry.get("agent__a").is_none()).await;
    let b = AgentName::new("b").unwrap();
    assert!(fixture.team.set_enabled(&b, false));
    assert!(names().is_empty());
    assert!(fixture.team.set_enabled(&b, true));
    write("a.md", "colour = 'red'");
    write("c.md", "primary = true");
    fs::remove_file(folder.path().join("a.md")).unwrap();
    wait_until("b is left", || names() == ["b"]).await;
    fixture.team.shut_down(Duration::ZERO).await;
    wait_until("no tool is left", || fixture.registry.list().is_empty()).await;
}

#[tokio::test]
async fn deleted_conversation_leaves_none_of_its_sub_agents() {
    let stores = Stores::memory(Clock::System);
    let conversations = {
        let stores = stores.clone();
        move |agent: AgentName| {
            let options = ConversationOptions::default();
            Conversations::new(stores.log.clone(), stores.store.clone(), agent, options)
        }
    };
    let model = RecordingModel::script([
        ScriptedTurn::default()
            .call("agent__b", json!({"message": "Go."}))
            .call("agent__c_c", json!({"message": "Go."})),
        ScriptedTurn::text("Done."),
    ]);
    let registry = Arc::new(ToolRegistry::new());
    let factory = {
        let (registry, conversations) = (registry.clone(), conversations.clone());
        Arc::new(move |definition: AgentDefinition| {
            let conversations = conversations(definition.name.clone());
            // Calls the other one.
            let model: Arc<dyn ChatModel> = match definition.name.as_str() {
                "b" => RecordingModel::script([
                    ScriptedTurn::default().call("agent__c_c", json!({"message": "Go."})),
                    ScriptedTurn::text("Called."),
                ]),
                _ => RecordingModel::script([ScriptedTurn::text("Noted.")]),
            };
            let parts = AgentParts::new(definition, model, registry.clone());
            AgentParts { conversations, ..parts }
        })
    };
    let tester = AgentName::new("tester").unwrap();
    let team = Team::new(tester.clone(), factory);
    let definition = |name| AgentDefinition::new(AgentName::new(name).unwrap(), "Be of use.");
    team.set_definitions(vec![definition("b"), definition("c c")]);
    register_members(&team, &registry);
    let conversations = Some(conversations(tester));
    let agent = AgentFixture { registry, conversations, ..AgentFixture::new() }.agent(&model);
    assert_eq!(send(&agent, "go").await.text, "Done.");
    let all = Prefix::new(["conversation"]).unwrap();
    assert_eq!(stores.log.logs(&all, None, 10).await.unwrap().len(), 4);
    assert!(agent.delete_conversation(&SessionId::new("s").unwrap()).await.unwrap());
    assert_eq!(stores.log.logs(&all, None, 10).await.unwrap(), []);
}
