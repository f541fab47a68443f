//! Turns of 8 steps with a scripted model and a no-op tool: without a log, and with the log in SQLite and
//! PostgreSQL.
//!
//! `cargo xtask bench turns` runs it beside other programs that promise durability.

#![allow(clippy::expect_used, reason = "a benchmark may panic")]

use std::{collections::BTreeMap, path::PathBuf, sync::Arc};

use futures_util::future::BoxFuture;
use rockbot_agent::{Agent, AgentDefinition, AgentParts, ConversationOptions, Conversations};
use rockbot_contracts::{AgentName, SessionId, UserMessage, user::TurnOutcome};
use rockbot_llm::{ScriptedModel, ScriptedTurn};
use rockbot_store::{Clock, StoreUrl};
use rockbot_testkit::turn_benchmark::{STEPS, serve};
use rockbot_tools::{
    Tool, ToolContext, ToolFailure, ToolHints, ToolRegistration, ToolRegistry, ToolResult,
    ToolSource,
};
use serde_json::{Value, json};

/// The allocator of the binaries.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Text of each response.
const TEXT_BYTES: usize = 500;

struct Noop(ToolRegistration);

impl Tool for Noop {
    fn registration(&self) -> &ToolRegistration {
        &self.0
    }

    fn call<'a>(
        &'a self,
        _: Value,
        _: &'a ToolContext,
    ) -> BoxFuture<'a, Result<ToolResult, ToolFailure>> {
        Box::pin(std::future::ready(Ok(ToolResult::text("done"))))
    }
}

#[tokio::main]
async fn main() {
    let folder = tempfile::tempdir().expect("a folder");
    let agents = agents(folder.path().to_owned()).await;
    serve(|variant| {
        let agent = agents[variant].clone();
        move || run_turn(agent.clone())
    })
    .await;
}

async fn agents(folder: PathBuf) -> BTreeMap<&'static str, Agent> {
    let name = AgentName::new("bench").expect("a name");
    let mut agents = BTreeMap::from([("memory", agent(Conversations::in_memory(name)))]);
    agents.insert("sqlite", stored(&StoreUrl::Sqlite(folder.join("turns.db"))).await);
    if let Ok(url) = std::env::var("ROCKBOT_TEST_POSTGRES_URL") {
        let url = StoreUrl::parse(&url.into()).expect("a URL of a store");
        agents.insert("postgresql", stored(&url).await);
    }
    agents
}

async fn stored(url: &StoreUrl) -> Agent {
    let opened = rockbot_store_sql::connect_stores(url, Clock::System).await.expect("a store");
    let name = AgentName::new("bench").expect("a name");
    let options = ConversationOptions::default();
    agent(Conversations::new(opened.log, opened.store, name, options))
}

fn agent(conversations: Conversations) -> Agent {
    let call = || ScriptedTurn::text("x".repeat(TEXT_BYTES)).call("noop", json!({}));
    let script: Vec<_> =
        (0..STEPS).map(|_| call()).chain([ScriptedTurn::text("All done.")]).collect();
    let registry = ToolRegistry::new();
    let registration = ToolRegistration {
        name: "noop".to_owned(),
        label: None,
        description: "Does nothing.".to_owned(),
        tool_description: None,
        parameters: json!({"type": "object"}),
        source: ToolSource::Internal,
        hints: ToolHints::default(),
        timeout_ms: None,
    };
    registry.register(Arc::new(Noop(registration))).expect("registered");
    let name = AgentName::new("bench").expect("a name");
    let definition = AgentDefinition::new(name, "Do what the user asks for.");
    let model = Arc::new(ScriptedModel::new(script));
    let parts = AgentParts { conversations, ..AgentParts::new(definition, model, registry.into()) };
    Agent::new(parts)
}

async fn run_turn(agent: Agent) {
    let message = UserMessage::new(SessionId::generate(), "go");
    let answer = agent.send(message, Arc::new(|_| ())).await;
    assert_eq!(answer.outcome, TurnOutcome::Completed, "{}", answer.text);
}
