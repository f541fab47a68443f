//! Skills: instructions that are kept until they are deleted.

use std::sync::Arc;

use rockbot_contracts::AgentName;
use rockbot_store::{Expected, PutOutcome, Store};
use rockbot_tools::{Tool, ToolContext, ToolFailure, ToolHints, ToolResult, ToolSource};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::{
    collection::{Collection, CollectionItem, check_text, one_line},
    facts::contended,
    recall::{Recallable, utc_date},
};
use crate::builtin_tool::{
    BuiltinDefinition, BuiltinTool, DESTRUCTIVE, NON_DESTRUCTIVE, parse_arguments,
};

/// Maximum number of skills of an agent.
const MAX_SKILLS: usize = 300;
/// Maximum length of a skill, in bytes.
const MAX_BYTES: usize = 32 * 1024;
const MAX_SUMMARY_BYTES: usize = 300;

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

impl CollectionItem for Skill {
    const NAME: &'static str = "skills";

    /// Weights name and summary twice.
    fn search_text(&self) -> String {
        let Self { name, summary, content, .. } = self;
        format!("{name} {name} {summary} {summary} {content}")
    }
}

impl Recallable for Skill {
    const HEADING: &'static str =
        "Skills that you saved and that may help now (get_skill reads one):";

    fn line(&self, name: &str) -> String {
        format!("- {name}: {}", one_line(&self.summary))
    }
}

/// The skills of all agents of the process.
pub(super) struct Skills {
    store: Arc<dyn Store>,
    pub(super) collection: Arc<Collection<Skill>>,
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
        let collection = Arc::new(Collection::new(store.clone(), MAX_SKILLS));
        Arc::new(Self { store, collection })
    }

    pub(super) fn tools(self: &Arc<Self>) -> Vec<Arc<dyn Tool>> {
        let name = json!({"type": "string", "pattern": "^[A-Za-z0-9][A-Za-z0-9_./-]{0,63}$",
            "description": "Such as plan-a-meeting."});
        let define = |name, description, arguments, required, hints| BuiltinDefinition {
            name,
            description,
            arguments,
            required,
            source: ToolSource::Skills,
            hints,
        };
        vec![
            BuiltinTool::create(
                self,
                define(
                    "save_skill",
                    "Save instructions for later conversations: the steps, the tools and the \
                     pitfalls.",
                    json!({"name": name,
                        "summary": {"type": "string", "minLength": 1,
                            "maxLength": MAX_SUMMARY_BYTES,
                            "description": format!("When to use it, on one line, at most \
                                {MAX_SUMMARY_BYTES} bytes of UTF-8.")},
                        "content": {"type": "string", "minLength": 1, "maxLength": MAX_BYTES,
                            "description": format!("The skill, in Markdown, at most {MAX_BYTES} bytes \
                                of UTF-8.")},
                        "replace": {"type": "boolean",
                            "description": "Replace a skill of the same name."}}),
                    &["name", "summary", "content"],
                    ToolHints { destructive: true, ..NON_DESTRUCTIVE },
                ),
                |skills, arguments, context| Box::pin(skills.save(arguments, context)),
            ),
            BuiltinTool::create(
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
            BuiltinTool::create(
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
            BuiltinTool::create(
                self,
                define(
                    "delete_skill",
                    "Delete a skill that you saved.",
                    json!({"name": name}),
                    &["name"],
                    DESTRUCTIVE,
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
        let Arguments { name, summary, content, replace } = parse_arguments(arguments)?;
        check_text("the summary", &summary, MAX_SUMMARY_BYTES)?;
        check_text("the content", &content, MAX_BYTES)?;
        let name = name.to_lowercase();
        let summary = one_line(&summary);
        let saved_at = self.store.now().await?.as_millis();
        let present = self.collection.get(&context.agent, &name).await?;
        if present.is_some() && !replace {
            return Err(exists(&name));
        }
        let expected = present.map_or(Expected::Absent, |found| Expected::Version(found.version));
        let skill = Skill { name, summary, content, saved_at };
        let name = &skill.name;
        match self.collection.put(&context.agent, name, &skill, expected).await? {
            PutOutcome::Done(_) => Ok(ToolResult::text(format!("Saved as {name}."))),
            PutOutcome::Conflict(Some(_)) if !replace => Err(exists(name)),
            PutOutcome::Conflict(_) => Err(contended()),
        }
    }

    async fn get(
        &self,
        arguments: Value,
        context: &ToolContext,
    ) -> Result<ToolResult, ToolFailure> {
        let Arguments { name, .. } = parse_arguments(arguments)?;
        let found = self.collection.get(&context.agent, &name.to_lowercase()).await?;
        let skill = found.ok_or_else(|| missing(&name))?.value;
        let Skill { name, summary, content, saved_at } = skill;
        let heading = format!("{name}: {summary} (saved {})", utc_date(saved_at));
        Ok(ToolResult::text(format!("{heading}\n\n{content}")))
    }

    async fn list(&self, agent: &AgentName) -> Result<ToolResult, ToolFailure> {
        let entries = self.collection.entries(agent).await?;
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
        let Arguments { name, .. } = parse_arguments(arguments)?;
        if !self.collection.remove(&context.agent, &name.to_lowercase()).await? {
            return Err(missing(&name));
        }
        Ok(ToolResult::text("Deleted."))
    }
}

fn exists(name: &str) -> ToolFailure {
    ToolFailure::invalid(format!(
        "skill {name} exists; read it with get_skill, and save again with replace if yours is \
         better"
    ))
}

fn missing(name: &str) -> ToolFailure {
    ToolFailure::invalid(format!("unknown skill {name}; list_skills returns the names"))
}
