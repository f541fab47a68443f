//! Agents as tools of each other.

use std::{fs, path::Path, sync::Arc, time::Duration};

use rockbot_agent::{Agent, AgentDefinition, AgentParts, Team, TurnAnswer};
use rockbot_contracts::{AgentName, user::TurnOutcome};
use rockbot_llm::{ChatModel, ScriptedTurn};
use rockbot_testkit::fixture::wait_until;
use rockbot_tools::ToolRegistry;
use serde_json::json;
use tokio::{task::JoinHandle, time::Instant};

use crate::stage::{Does, Ear, Probe, Stage, Witness, all_wait, cancel, message, say, start};

/// Agents of one process, each with a model of its own.
struct Company {
    registry: Arc<ToolRegistry>,
    team: Team,
}

impl Company {
    /// The agent `tester`, and others with these models.
    fn new(models: &[(&str, &Arc<Witness>)]) -> Self {
        let registry = Arc::new(ToolRegistry::new());
        let models: Vec<_> =
            models.iter().map(|(name, model)| ((*name).to_owned(), (*model).clone())).collect();
        let hire = {
            let registry = registry.clone();
            Arc::new(move |definition: AgentDefinition| {
                let name = definition.name.as_str();
                let (_, model) = models.iter().find(|(one, _)| one == name).expect("a model");
                let model: Arc<dyn ChatModel> = model.clone();
                AgentParts::new(definition, model, registry.clone())
            })
        };
        let team = Team::new(AgentName::new("tester").unwrap(), registry.clone(), hire);
        Self { registry, team }
    }

    fn tester(&self, model: &Arc<Witness>) -> Agent {
        Stage { registry: self.registry.clone(), ..Stage::new() }.agent(model)
    }
}

fn definition(head: &str) -> AgentDefinition {
    let text = format!("+++\n{head}\n+++\nBe of use.");
    AgentDefinition::parse(Path::new("x.md"), &text).unwrap()
}

fn offered(model: &Witness) -> Vec<(String, String)> {
    let tools = model.last().tools.into_iter();
    tools.map(|tool| (tool.name, tool.description)).collect()
}

#[tokio::test]
async fn every_enabled_agent_that_is_not_primary_is_a_tool_with_its_own_words() {
    let idle = Witness::script([]);
    let company = Company::new(&[("a", &idle), ("b", &idle), ("c", &idle), ("tester", &idle)]);
    company.team.follow(vec![
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
    let model = Witness::script([ScriptedTurn::text("Hm.")]);
    say(&company.tester(&model), "go").await;
    let words = [("agent__a", "Ask a."), ("agent__b", "Counts."), ("agent__c", "c")];
    let words: Vec<_> = words.map(|(one, other)| (one.to_owned(), other.to_owned())).into();
    assert_eq!(offered(&model), words);
    let tools = model.last().tools;
    assert_eq!(tools[0].parameters["required"], json!(["message"]));
    assert_eq!(tools[2].parameters["required"], json!(["n"]));
}

#[tokio::test]
async fn a_call_is_a_turn_of_the_other_agent_and_its_spending_is_counted() {
    let counting = Witness::script([ScriptedTurn::text("Seven.")]);
    let looking = Witness::script([ScriptedTurn::text("Eight.")]);
    let company = Company::new(&[("b", &counting), ("c", &looking)]);
    let own_schema = "name = 'c'\nparameters = {type = 'object'}";
    company.team.follow(vec![definition("name = 'b'"), definition(own_schema)]);
    let model = Witness::script([
        ScriptedTurn::default().call("agent__b", json!({"message": "Count the files."})),
        ScriptedTurn::default().call("agent__c", json!({"folder": "x"})),
        ScriptedTurn::default().call("agent__b", json!({"messages": "x"})),
        ScriptedTurn::text("Done."),
    ]);
    let answer = say(&company.tester(&model), "go").await;
    assert_eq!(model.results()[..2], ["Seven.", "Eight."]);
    assert!(model.results()[2].contains("invalid arguments"), "{:?}", model.results());
    for (model, text) in [(&counting, "Count the files."), (&looking, r#"{"folder":"x"}"#)] {
        let last = model.last().messages.pop().unwrap();
        let rockbot_llm::ChatMessage::User(said) = &last else { panic!("{last:?}") };
        assert!(said.starts_with(text), "{said}");
    }
    let usage = answer.usage.unwrap();
    assert_eq!((usage.children.model_calls, usage.turn.model_calls), (2, 6));
}

#[tokio::test]
async fn agents_are_offered_nobody_who_waits_for_them() {
    let inner = Witness::script([
        ScriptedTurn::default().call("agent__b", json!({"message": "Help yourself."})),
        ScriptedTurn::text("I could not."),
    ]);
    let company = Company::new(&[("b", &inner), ("c", &inner)]);
    company.team.follow(vec![definition("name = 'b'"), definition("name = 'c'")]);
    let model = Witness::script([
        ScriptedTurn::default().call("agent__b", json!({"message": "Go."})),
        ScriptedTurn::text("Done."),
    ]);
    say(&company.tester(&model), "go").await;
    assert_eq!(inner.results().len(), 1);
    assert!(inner.results()[0].contains("already works on this request"), "{:?}", inner.results());
    let names: Vec<_> = offered(&inner).into_iter().map(|(name, _)| name).collect();
    assert_eq!(names, ["agent__c"]);
}

/// A turn of at most a minute calls another agent, which calls a tool that hangs.
async fn waiting(company: &Company, slow: &Arc<Probe>) -> (Agent, JoinHandle<TurnAnswer>) {
    company.registry.register(slow.as_tool()).unwrap();
    company.team.follow(vec![definition("name = 'b'\ntool_timeout = '1h'")]);
    let model = Witness::script([
        ScriptedTurn::default().call("agent__b", json!({"message": "Go."})),
        ScriptedTurn::text("Done."),
    ]);
    let mut stage = Stage { registry: company.registry.clone(), ..Stage::new() };
    stage.limits.turn_timeout = Duration::from_secs(60);
    let agent = stage.agent(&model);
    let (turn, _) = start(&agent, message("s", "go"));
    slow.is_called().await;
    (agent, turn)
}

fn caller_of_slow() -> (Company, Arc<Probe>) {
    let inner = Witness::script([ScriptedTurn::default().call("slow", json!({}))]);
    (Company::new(&[("b", &inner)]), Probe::new("slow", Does::Hangs))
}

#[tokio::test(start_paused = true)]
async fn a_cancelled_turn_ends_the_turns_that_it_called() {
    let (company, slow) = caller_of_slow();
    let (agent, turn) = waiting(&company, &slow).await;
    assert!(!slow.token().is_cancelled());
    agent.message(cancel("s"), Ear::default().sink()).await;
    assert_eq!(turn.await.unwrap().outcome, TurnOutcome::Cancelled);
    all_wait().await;
    assert!(slow.token().is_cancelled());
}

#[tokio::test(start_paused = true)]
async fn a_turn_that_is_called_ends_by_the_deadline_of_the_caller() {
    let began = Instant::now();
    let (company, slow) = caller_of_slow();
    let (_agent, turn) = waiting(&company, &slow).await;
    let deadline = slow.contexts.lock().unwrap()[0].deadline;
    assert_eq!(deadline - began, Duration::from_secs(60), "not the hour of its own definition");
    turn.await.unwrap();
    assert!(began.elapsed() < Duration::from_secs(61));
}

#[tokio::test]
async fn agents_come_and_go_while_the_process_runs() {
    let idle = Witness::script([]);
    let company = Company::new(&[("a", &idle), ("b", &idle)]);
    let names = || company.team.members().iter().map(ToString::to_string).collect::<Vec<_>>();
    let folder = tempfile::tempdir().unwrap();
    let write = |name: &str, head: &str| {
        fs::write(folder.path().join(name), format!("+++\n{head}\n+++\nBe of use.")).unwrap();
    };
    write("a.md", "");
    company.team.watch(folder.path().to_owned());
    wait_until("a is a tool", || names() == ["a"]).await;
    write("b.md", "");
    wait_until("b is a tool", || names() == ["a", "b"]).await;
    write("a.md", "enabled = false");
    wait_until("a is none any more", || names() == ["b"]).await;
    assert!(company.registry.get("agent__a").is_none());
    let b = AgentName::new("b").unwrap();
    assert!(company.team.switch(&b, false));
    assert!(names().is_empty());
    assert!(company.team.switch(&b, true));
    write("a.md", "colour = 'red'");
    write("c.md", "primary = true");
    fs::remove_file(folder.path().join("a.md")).unwrap();
    wait_until("b is left", || names() == ["b"]).await;
    company.team.shut_down(Duration::ZERO).await;
    assert!(company.registry.list().is_empty());
}
