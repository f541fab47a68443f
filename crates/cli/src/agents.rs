//! `rockbot agents` and `rockbot tools list --agent`: the agents of a fleet, and the tools that they may use.

mod access;
mod peers;
mod tools;

use std::collections::BTreeMap;

use rockbot_agent::AgentDefinition;
use rockbot_contracts::{
    AgentCard, AgentName, ToolSource, conversation::AgentOverview, topology::user_message,
};
use rockbot_service::exit;
use serde_json::json;

use self::access::AgentAccess;
pub(crate) use self::tools::list_tools;
use crate::{
    arguments::Agents,
    completion::names::Names,
    failure::{Failure, OrExit, Outcome},
    print::{note, outln},
    render,
    settings::Settings,
    work_queues::configured_agents,
};

/// Longest shown description, in characters.
const MAX_DESCRIPTION_CHARS: usize = 80;

/// An agent in the list.
struct Row {
    name: AgentName,
    state: State,
    /// Of a running agent.
    overview: Option<AgentOverview>,
    /// Of its definition or overview.
    description: String,
    /// Skills that it announces to other agents.
    skills: Vec<String>,
}

/// State of an agent.
#[derive(Debug, Clone, PartialEq, Eq)]
enum State {
    /// Messages to it are received by this number of processes.
    Running(u32),
    /// It is a tool of another agent, which runs it.
    ToolOf(AgentName),
    /// No process receives its messages.
    NotRunning,
    /// This user may not inspect its inbox.
    Unknown,
}

pub(crate) async fn run(settings: Settings, command: Option<Agents>, json: bool) -> Outcome {
    match command {
        None | Some(Agents::List) => Box::pin(list(settings, json)).await,
        Some(Agents::Show { agent }) => peers::show(&settings, &agent, json).await,
        Some(Agents::Ask { agent, text, skill, timeout, task }) => {
            let text = text.join(" ");
            let task = peers::Task { agent, text, skill, timeout, answers: task };
            peers::ask(&settings, task, json).await
        }
    }
}

async fn list(settings: Settings, json: bool) -> Outcome {
    let defined = definitions(&settings)?;
    let mut names = configured_agents(&settings)?;
    let is_embedded = settings.embeds();
    let access = Box::pin(AgentAccess::open(settings)).await?;
    let announced = if is_embedded { Vec::new() } else { announced(&access).await };
    names.extend(announced.iter().map(|card| card.agent_name.clone()));
    let rows = rows(&access, names, &defined).await;
    access.close().await;
    let mut rows = rows?;
    for row in &mut rows {
        if let Some(card) = announced.iter().find(|card| card.agent_name == row.name) {
            row.skills = card.skills.iter().map(|skill| skill.id.clone()).collect();
        }
    }
    let agents = rows.iter().map(|row| row.name.to_string()).collect();
    Names { agents, ..Names::default() }.keep();
    if json {
        let entries: Vec<_> = rows.iter().map(Row::to_json).collect();
        outln!("{}", render::json(&json!(entries)))?;
        return Ok(exit::OK);
    }
    let headings = ["agent", "state", "model", "tools", "skills", "description"];
    outln!("{}", render::table(&headings, rows.iter().map(Row::cells)))?;
    if rows.iter().any(|row| row.state == State::Unknown) {
        note!("this user may not inspect the queues of some agents");
    }
    Ok(exit::OK)
}

/// Returns the cards of the agents that announce themselves; none if they cannot be received.
async fn announced(access: &AgentAccess) -> Vec<AgentCard> {
    peers::discover(&access.fleet().bus).await.unwrap_or_else(|failure| {
        let why = render::clean(&format!("{:#}", failure.cause));
        note!("announcements of agents not received: {why}");
        Vec::new()
    })
}

/// Returns the descriptions of the defined agents, by name.
fn definitions(settings: &Settings) -> Result<BTreeMap<AgentName, String>, Failure> {
    let Some(folder) = &settings.agent.directory else { return Ok(BTreeMap::new()) };
    let defined = AgentDefinition::load_dir(folder).or_exit(exit::USAGE)?;
    Ok(defined.into_iter().map(|agent| (agent.name, agent.description)).collect())
}

/// Asks the running ones of these agents, and adds the agents that they have as tools.
async fn rows(
    access: &AgentAccess,
    names: Vec<AgentName>,
    defined: &BTreeMap<AgentName, String>,
) -> Result<Vec<Row>, Failure> {
    let mut rows = BTreeMap::new();
    for name in names {
        if rows.contains_key(&name) {
            continue;
        }
        let state = match access.consumers(&user_message(&name)).await? {
            Some(0) => State::NotRunning,
            Some(number) => State::Running(number),
            None => State::Unknown,
        };
        let overview = match state {
            State::NotRunning => None,
            _ => match access.overview(&name).await {
                Ok(overview) => Some(overview),
                Err(failure) => {
                    let why = render::clean(&format!("{:#}", failure.cause));
                    note!("agent {name} did not describe itself: {why}");
                    None
                }
            },
        };
        let known = overview.as_ref().map(|one| one.description.clone());
        let description = known.or_else(|| defined.get(&name).cloned()).unwrap_or_default();
        let skills = Vec::new();
        rows.insert(name.clone(), Row { name, state, overview, description, skills });
    }
    for (name, by, description) in delegates(&rows) {
        let row = rows.entry(name.clone()).or_insert_with(|| Row {
            name,
            state: State::NotRunning,
            overview: None,
            description,
            skills: Vec::new(),
        });
        if row.state == State::NotRunning {
            row.state = State::ToolOf(by);
        }
    }
    Ok(rows.into_values().collect())
}

/// Returns the agents that are tools of others, with the other one and their description.
fn delegates(rows: &BTreeMap<AgentName, Row>) -> Vec<(AgentName, AgentName, String)> {
    let overviews = rows.values().filter_map(|row| row.overview.as_ref());
    let tools = overviews.flat_map(|overview| {
        overview.tools.iter().filter_map(|tool| match &tool.source {
            ToolSource::Agent(name) => {
                let name = AgentName::new(name.as_str()).ok()?;
                Some((name, overview.name.clone(), tool.summary.clone()))
            }
            _ => None,
        })
    });
    tools.collect()
}

impl Row {
    fn tool_count(&self) -> Option<usize> {
        let overview = self.overview.as_ref()?;
        Some(overview.tools.len() + overview.more_tools as usize)
    }

    fn cells(&self) -> Vec<String> {
        let state = match &self.state {
            State::Running(1) => render::good("running"),
            State::Running(number) => render::good(&format!("running, {number} processes")),
            State::ToolOf(agent) => format!("tool of {agent}"),
            State::NotRunning => render::bad("not running"),
            State::Unknown => "unknown".to_owned(),
        };
        let model = self.overview.as_ref().map(|overview| render::clean(&overview.model));
        vec![
            self.name.to_string(),
            state,
            model.unwrap_or_default(),
            self.tool_count().map(|number| number.to_string()).unwrap_or_default(),
            render::short_line(&self.skills.join(", "), MAX_DESCRIPTION_CHARS),
            render::short_line(&self.description, MAX_DESCRIPTION_CHARS),
        ]
    }

    fn to_json(&self) -> serde_json::Value {
        let mut entry = json!({"name": self.name, "description": self.description});
        match &self.state {
            State::Running(number) => {
                entry["state"] = json!("running");
                entry["processes"] = json!(number);
            }
            State::ToolOf(agent) => {
                entry["state"] = json!("tool");
                entry["toolOf"] = json!(agent);
            }
            State::NotRunning => entry["state"] = json!("not_running"),
            State::Unknown => entry["state"] = json!("unknown"),
        }
        if let Some(overview) = &self.overview {
            entry["model"] = json!(overview.model);
            entry["tools"] = json!(self.tool_count());
        }
        if !self.skills.is_empty() {
            entry["skills"] = json!(self.skills);
        }
        entry
    }
}

#[cfg(test)]
mod tests {
    use rockbot_contracts::{ToolHints, conversation::AgentTool};

    use super::*;

    fn name(name: &str) -> AgentName {
        AgentName::new(name).unwrap()
    }

    #[test]
    fn agents_as_tools_are_found_in_overviews() {
        let tool = |name: &str, source: ToolSource| AgentTool {
            name: name.to_owned(),
            source,
            summary: "writes".to_owned(),
            hints: ToolHints::default(),
            is_announced: false,
        };
        let overview = AgentOverview {
            name: name("assistant"),
            description: String::new(),
            model: "m".to_owned(),
            tools: vec![
                tool("agent__writer", ToolSource::Agent("writer".to_owned())),
                tool("read_file", ToolSource::Files),
            ],
            more_tools: 1,
            foreign_processes: 0,
        };
        let row = Row {
            name: name("assistant"),
            state: State::Running(2),
            overview: Some(overview),
            description: "helps".to_owned(),
            skills: Vec::new(),
        };
        assert_eq!(row.to_json()["tools"], 3);
        let rows = BTreeMap::from([(row.name.clone(), row)]);
        let found = delegates(&rows);
        assert_eq!(found, [(name("writer"), name("assistant"), "writes".to_owned())]);
    }
}
