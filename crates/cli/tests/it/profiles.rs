//! Which profile has which tool. A new tool, and a new source, is in nobody's snapshot: whoever adds
//! it decides which kinds of work may use it, and accepts the snapshot.

use std::{fmt::Write, fs, path::Path, sync::Arc};

use rockbot_agent::{AgentMemory, MemorySection, ServiceSearch, mcp::management_tools};
use rockbot_contracts::{ToolRegistration, ToolSource};
use rockbot_scripts::{ExecutePythonScript, LazyScripts, ScriptsSection};
use rockbot_store::{Clock, MemoryStore, Store};
use rockbot_toolkit::files::{self, FilesConfig};
use rockbot_tools::{Outputs, OutputsSection, Tool, ToolOutput, ToolProfile, guide_tools};

/// Every tool of the repository that is there without a configuration of its own.
async fn tools() -> Vec<ToolRegistration> {
    let root = tempfile::tempdir().unwrap();
    let config = FilesConfig { root: root.path().to_owned(), ..FilesConfig::default() };
    let mut tools: Vec<Arc<dyn Tool>> = files::tools(&config).unwrap();
    let scripts = Arc::new(LazyScripts::new(ScriptsSection::default()));
    tools.push(Arc::new(ExecutePythonScript::new(scripts, false)));
    tools.extend(guide_tools(&[rockbot_agent::mcp::GUIDE]));
    let store: Arc<dyn Store> = Arc::new(MemoryStore::new(Clock::System));
    tools.push(Arc::new(ToolOutput::new(Outputs::new(store, OutputsSection::default()))));
    tools.push(ServiceSearch::new(Vec::new()).tool());
    let section = MemorySection { store: Some("memory:".into()), ..MemorySection::default() };
    let memory = AgentMemory::open(&section, |url| async move {
        rockbot_store_sql::connect(&url, Clock::System).await
    })
    .await
    .unwrap()
    .unwrap();
    tools.extend(memory.tools());
    let mut all: Vec<_> = tools.iter().map(|tool| tool.registration().clone()).collect();
    all.extend(management_tools());
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
    // What another family may bring along: its source counts, and these names of the seeds.
    let servers = [ToolSource::Mcp("server".to_owned()), ToolSource::Agent("other".to_owned())];
    for source in ToolSource::plain().chain(servers) {
        row("any", &source);
    }
    row("cancel_scheduled_task", &ToolSource::Scheduling);
    insta::assert_snapshot!(profile.name(), table);
}

#[tokio::test]
async fn main_has_these_tools() {
    check(ToolProfile::main()).await;
}

#[tokio::test]
async fn subagent_has_these_tools() {
    check(ToolProfile::subagent()).await;
}

#[tokio::test]
async fn scheduled_has_these_tools() {
    check(ToolProfile::scheduled()).await;
}

#[tokio::test]
async fn a2a_synthesis_has_these_tools() {
    check(ToolProfile::a2a_synthesis()).await;
}

/// What implements a tool. One that is not in the list above needs a place there, or a word here.
#[test]
fn these_types_are_tools() {
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
            } else if name.ends_with(".rs") {
                let text = fs::read_to_string(&path).unwrap();
                // Tests of a file stand at its end.
                let text = text.split("#[cfg(test)]\nmod tests").next().unwrap_or_default();
                let place = path.strip_prefix(crates).unwrap().display().to_string();
                let types = text.lines().filter_map(|line| {
                    let (head, what) = line.split_once(" Tool for ")?;
                    head.starts_with("impl").then(|| what.trim_end_matches(" {").to_owned())
                });
                found.extend(types.map(|what| format!("{place}: {what}")));
            }
        }
    }
    found.sort();
    insta::assert_snapshot!("types", found.join("\n"));
}
