//! Skills: how something is done, kept until it is deleted.

use std::sync::Arc;

use rockbot_contracts::AgentName;
use rockbot_store::{Expected, PutOutcome, Store};
use rockbot_tools::{Tool, ToolContext, ToolFailure, ToolHints, ToolResult, ToolSource};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::{
    collection::{Collection, Kept, check_text},
    facts::contended,
    recall::{Recalled, day},
};
use crate::own_tool::{Definition, KEEPS, OwnTool, REMOVES, read};

/// Most skills of an agent.
const MOST: usize = 300;
/// The longest skill, in bytes.
const MOST_BYTES: usize = 32 * 1024;
const MOST_SUMMARY_BYTES: usize = 300;

/// A skill.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Skill {
    name: String,
    summary: String,
    content: String,
    /// In milliseconds since the Unix epoch.
    saved_at: i64,
}

impl Kept for Skill {
    const NAME: &'static str = "skills";

    /// Its name and summary count for more than its text.
    fn words(&self) -> String {
        let Self { name, summary, content, .. } = self;
        format!("{name} {name} {summary} {summary} {content}")
    }
}

impl Recalled for Skill {
    const HEADING: &'static str =
        "Skills that you saved and that may help now (get_skill reads one):";

    fn line(&self, name: &str) -> String {
        format!("- {name}: {}", self.summary)
    }
}

/// The skills of all agents of the process.
pub(super) struct Skills {
    store: Arc<dyn Store>,
    pub(super) kept: Arc<Collection<Skill>>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Arguments {
    name: String,
    summary: String,
    content: String,
    replace: bool,
}

impl Skills {
    pub(super) fn new(store: Arc<dyn Store>) -> Arc<Self> {
        let kept = Arc::new(Collection::new(store.clone(), MOST));
        Arc::new(Self { store, kept })
    }

    pub(super) fn tools(self: &Arc<Self>) -> Vec<Arc<dyn Tool>> {
        let name = json!({"type": "string", "pattern": "^[A-Za-z0-9][A-Za-z0-9_./-]{0,63}$",
            "description": "Such as plan-a-meeting."});
        let define = |name, description, arguments, required, hints| Definition {
            name,
            description,
            arguments,
            required,
            source: ToolSource::Skills,
            hints,
        };
        vec![
            OwnTool::over(
                self,
                define(
                    "save_skill",
                    "Keep how something is done for later conversations: the steps, the tools, and \
                     what to mind.",
                    json!({"name": name,
                        "summary": {"type": "string", "minLength": 1,
                            "maxLength": MOST_SUMMARY_BYTES,
                            "description": "When to use it, on one line."},
                        "content": {"type": "string", "minLength": 1, "maxLength": MOST_BYTES,
                            "description": "The skill, in Markdown."},
                        "replace": {"type": "boolean",
                            "description": "Whether it takes the place of one of that name."}}),
                    &["name", "summary", "content"],
                    ToolHints { destructive: true, ..KEEPS },
                ),
                |skills, arguments, context| Box::pin(skills.save(arguments, context)),
            ),
            OwnTool::over(
                self,
                define(
                    "get_skill",
                    "Read a skill that you saved.",
                    json!({"name": name}),
                    &["name"],
                    ToolHints::READ_ONLY,
                ),
                |skills, arguments, context| Box::pin(skills.get(arguments, context)),
            ),
            OwnTool::over(
                self,
                define(
                    "list_skills",
                    "List the skills that you saved.",
                    json!({}),
                    &[],
                    ToolHints::READ_ONLY,
                ),
                |skills, _, context| Box::pin(skills.list(&context.agent)),
            ),
            OwnTool::over(
                self,
                define(
                    "delete_skill",
                    "Delete a skill that you saved.",
                    json!({"name": name}),
                    &["name"],
                    REMOVES,
                ),
                |skills, arguments, context| Box::pin(skills.delete(arguments, context)),
            ),
        ]
    }

    async fn save(
        &self,
        arguments: Value,
        context: &ToolContext,
    ) -> Result<ToolResult, ToolFailure> {
        let Arguments { name, summary, content, replace } = read(arguments)?;
        check_text("the summary", &summary, MOST_SUMMARY_BYTES)?;
        check_text("the content", &content, MOST_BYTES)?;
        let name = name.to_lowercase();
        let summary = summary.split_whitespace().collect::<Vec<_>>().join(" ");
        let saved_at = self.store.now().await?.as_millis();
        let present = self.kept.get(&context.agent, &name).await?;
        if present.is_some() && !replace {
            return Err(taken(&name));
        }
        let expected = present.map_or(Expected::Absent, |found| Expected::Version(found.version));
        let skill = Skill { name, summary, content, saved_at };
        let name = &skill.name;
        match self.kept.put(&context.agent, name, &skill, expected).await? {
            PutOutcome::Done(_) => Ok(ToolResult::text(format!("Saved as {name}."))),
            PutOutcome::Conflict(Some(_)) if !replace => Err(taken(name)),
            PutOutcome::Conflict(_) => Err(contended()),
        }
    }

    async fn get(
        &self,
        arguments: Value,
        context: &ToolContext,
    ) -> Result<ToolResult, ToolFailure> {
        let Arguments { name, .. } = read(arguments)?;
        let found = self.kept.get(&context.agent, &name.to_lowercase()).await?;
        let skill = found.ok_or_else(|| missing(&name))?.value;
        let Skill { name, summary, content, saved_at } = skill;
        let heading = format!("{name}: {summary} (saved {})", day(saved_at));
        Ok(ToolResult::text(format!("{heading}\n\n{content}")))
    }

    async fn list(&self, agent: &AgentName) -> Result<ToolResult, ToolFailure> {
        let entries = self.kept.entries(agent).await?;
        if entries.all.is_empty() {
            return Ok(ToolResult::text("No skill is saved yet."));
        }
        let lines = entries.all.iter().map(|(name, skill)| skill.value.line(name));
        Ok(ToolResult::text(lines.collect::<Vec<_>>().join("\n")))
    }

    async fn delete(
        &self,
        arguments: Value,
        context: &ToolContext,
    ) -> Result<ToolResult, ToolFailure> {
        let Arguments { name, .. } = read(arguments)?;
        match self.kept.remove(&context.agent, &name.to_lowercase()).await? {
            true => Ok(ToolResult::text("Deleted.")),
            false => Err(missing(&name)),
        }
    }
}

fn taken(name: &str) -> ToolFailure {
    ToolFailure::invalid(format!(
        "there is a skill {name} already; read it with get_skill, and save again with replace if \
         yours is better"
    ))
}

fn missing(name: &str) -> ToolFailure {
    ToolFailure::invalid(format!("there is no skill {name}; list_skills tells which there are"))
}
