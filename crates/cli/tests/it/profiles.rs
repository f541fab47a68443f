//! The tools of each profile. A new tool or source changes the snapshots: its author decides which
//! profiles may use it and accepts the snapshots.

use std::{fmt::Write, fs, path::Path, sync::Arc};

use rockbot_agent::{
    AgentDefinition, AgentFamilies, AgentMemory, AgentTools, Conversations, Delegation,
    DelegationOptions, MemorySection, Schedule, ScheduleSection, ServiceSearch, internal_tools,
    mcp::management_tools,
};
use rockbot_contracts::{AgentName, ToolRegistration, ToolSource};
use rockbot_scripts::{LazyScripts, ScriptsProvider, ScriptsSection};
use rockbot_store::{Clock, MemoryStore, Store};
use rockbot_toolkit::files::{self, FilesConfig};
use rockbot_tools::{Outputs, OutputsSection, ToolProfile, ToolProvider};
use rockbot_web::{WebProvider, WebSection};

/// Returns every tool of the repository, except those of configured APIs and servers.
async fn tools() -> Vec<ToolRegistration> {
    let root = tempfile::tempdir().unwrap();
    let config = FilesConfig { root: root.path().to_owned(), ..FilesConfig::default() };
    let scripts = Arc::new(LazyScripts::new(ScriptsSection::default()));
    let store: Arc<dyn Store> = Arc::new(MemoryStore::new(Clock::System));
    // The key only decides whether web_search is offered.
    let environment = |name: &str| (name == "BRAVE_API_KEY").then(|| "key".to_owned());
    let web = WebProvider::from_section(&WebSection::default(), environment, None).unwrap();
    let section = MemorySection { store: Some("memory:".into()), ..MemorySection::default() };
    let memory = AgentMemory::open(&section, |url| async move {
        rockbot_store_sql::connect(&url, Clock::System).await
    })
    .await
    .unwrap()
    .unwrap();
    let assistant = AgentName::new("assistant").unwrap();
    let conversations = Conversations::in_memory(assistant.clone());
    let families = AgentFamilies {
        definition: &AgentDefinition::new(assistant, "Be of use."),
        delegation: &Delegation::new(DelegationOptions::default()),
        exchanges_tasks: true,
        memory: Some(&memory),
        schedule: Some(&Schedule::new(&conversations, ScheduleSection::default(), Some(&memory))),
        services: Some(&ServiceSearch::new(Vec::new())),
        outputs: Some(Outputs::new(store, OutputsSection::default())),
        scripts: Some(Arc::new(ScriptsProvider::new(scripts, false))),
    };
    let own = AgentTools::start(families.providers()).await;
    let offered = files::tools(&config).unwrap().into_iter().chain(web.list());
    let mut all = own.registry().list();
    all.extend(offered.map(|tool| tool.registration().clone()));
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
