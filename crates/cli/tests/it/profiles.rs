//! The tools of each profile. A new tool or source changes the snapshots: its author decides which
//! profiles may use it and accepts the snapshots.

use std::{fmt::Write, fs, path::Path, sync::Arc};

use rockbot_agent::{
    AgentMemory, Conversations, Delegation, DelegationOptions, MemorySection, Schedule,
    ScheduleSection, ServiceSearch, internal_tools, mcp::management_tools,
};
use rockbot_contracts::{AgentName, ToolRegistration, ToolSource};
use rockbot_scripts::{ExecutePythonScript, LazyScripts, ScriptsSection};
use rockbot_store::{Clock, MemoryStore, Store};
use rockbot_toolkit::files::{self, FilesConfig};
use rockbot_tools::{
    Guides, Outputs, OutputsSection, Tool, ToolOutput, ToolProfile, ToolProvider, guide_tools,
};
use rockbot_web::{WebProvider, WebSection};

/// Returns every tool of the repository, except those of configured APIs and servers.
async fn tools() -> Vec<ToolRegistration> {
    let root = tempfile::tempdir().unwrap();
    let config = FilesConfig { root: root.path().to_owned(), ..FilesConfig::default() };
    let mut tools: Vec<Arc<dyn Tool>> = files::tools(&config).unwrap();
    let scripts = Arc::new(LazyScripts::new(ScriptsSection::default()));
    tools.push(Arc::new(ExecutePythonScript::new(scripts, false)));
    tools.extend(guide_tools(&Guides::new([rockbot_agent::mcp::GUIDE])));
    let store: Arc<dyn Store> = Arc::new(MemoryStore::new(Clock::System));
    tools.push(Arc::new(ToolOutput::new(Outputs::new(store, OutputsSection::default()))));
    tools.push(ServiceSearch::new(Vec::new()).tool());
    let delegation = Delegation::new(DelegationOptions::default());
    tools.extend(delegation.tools());
    tools.extend(delegation.peer_tools());
    // The key only decides whether web_search is offered.
    let environment = |name: &str| (name == "BRAVE_API_KEY").then(|| "key".to_owned());
    tools.extend(
        WebProvider::from_section(&WebSection::default(), environment, None).unwrap().list(),
    );
    let section = MemorySection { store: Some("memory:".into()), ..MemorySection::default() };
    let memory = AgentMemory::open(&section, |url| async move {
        rockbot_store_sql::connect(&url, Clock::System).await
    })
    .await
    .unwrap()
    .unwrap();
    tools.extend(memory.tools());
    let conversations = Conversations::in_memory(AgentName::new("assistant").unwrap());
    tools.extend(Schedule::new(&conversations, ScheduleSection::default(), Some(&memory)).tools());
    let mut all: Vec<_> = tools.iter().map(|tool| tool.registration().clone()).collect();
    all.extend(management_tools());
    all.extend(internal_tools::registrations());
    all.sort_by(|one, other| one.name.cmp(&other.name));
    all
}

async fn check(profile: &ToolProfile) {
    let mut table = String::from("tools\n");
    let mut row = |name: &str, source: &ToolSource| {
        let sign = if profile.permits(name, source) { "may" } else { "NOT" };
        writeln!(table, "  {sign} {name} ({source})").unwrap();
    };
    for tool in tools().await {
        row(&tool.name, &tool.source);
    }
    // Tools of other families are permitted by their source and by these names.
    let servers = [ToolSource::Mcp("server".to_owned()), ToolSource::Agent("other".to_owned())];
    for source in ToolSource::plain().chain(servers) {
        row("any", &source);
    }
    insta::assert_snapshot!(profile.name(), table);
}

#[tokio::test]
async fn main_profile_tools() {
    check(ToolProfile::main()).await;
}

#[tokio::test]
async fn subagent_profile_tools() {
    check(ToolProfile::subagent()).await;
}

#[tokio::test]
async fn scheduled_profile_tools() {
    check(ToolProfile::scheduled()).await;
}

#[tokio::test]
async fn peer_profile_tools() {
    check(ToolProfile::peer()).await;
}

#[tokio::test]
async fn a2a_synthesis_profile_tools() {
    check(ToolProfile::a2a_synthesis()).await;
}

/// Lists the types that implement a tool. A new one belongs in the list above, unless it needs a
/// configuration.
#[test]
fn tool_implementations_are_listed() {
    let crates = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    let mut found = Vec::new();
    let mut folders = vec![crates.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            let name = path.file_name().unwrap().to_string_lossy().into_owned();
            if path.is_dir() {
                let is_code = !matches!(name.as_str(), "tests" | "benches" | "examples" | "target");
                folders.extend(is_code.then_some(path));
            } else if name.ends_with(".rs") && name != "tests.rs" {
                let text = fs::read_to_string(&path).unwrap();
                // Tests are at the end of a file, or in a file of their own.
                let text = text.split("#[cfg(test)]\nmod tests").next().unwrap_or_default();
                let place = path.strip_prefix(crates).unwrap().display().to_string();
                let types = text.lines().filter_map(|line| {
                    let (head, name) = line.split_once(" Tool for ")?;
                    head.starts_with("impl").then(|| name.trim_end_matches(" {").to_owned())
                });
                found.extend(types.map(|name| format!("{place}: {name}")));
            }
        }
    }
    found.sort();
    insta::assert_snapshot!("types", found.join("\n"));
}
