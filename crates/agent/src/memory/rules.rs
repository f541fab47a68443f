//! Rules: standing instructions of the user.

use std::sync::Arc;

use futures_util::future::BoxFuture;
use rockbot_contracts::AgentName;
use rockbot_store::{Expected, PutOutcome, Store};
use rockbot_tools::{Tool, ToolContext, ToolFailure, ToolHints, ToolResult, ToolSource};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use tracing::warn;

use super::collection::{Collection, CollectionItem, Entries, check_text, content_id, one_line};
use crate::{
    builtin_tool::{BuiltinDefinition, BuiltinTool, DESTRUCTIVE, NON_DESTRUCTIVE, parse_arguments},
    context::{ContextPart, ContextRequest, ContextSource},
};

/// Maximum number of rules of an agent.
const MAX_RULES: usize = 50;
/// Longest rule, in bytes.
const MAX_BYTES: usize = 500;
/// Maximum size of all rules, in bytes. All are part of the context of a turn.
const MAX_TOTAL_BYTES: usize = 6 * 1024;

/// A rule.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Rule {
    rule: String,
    /// In milliseconds since the Unix epoch. Rules are ordered by it.
    added_at: i64,
}

impl CollectionItem for Rule {
    const NAME: &'static str = "rules";

    fn search_text(&self) -> String {
        self.rule.clone()
    }
}

/// The rules of all agents of the process.
pub(super) struct Rules {
    store: Arc<dyn Store>,
    collection: Collection<Rule>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Arguments {
    rule: String,
    id: String,
}

impl Rules {
    pub(super) fn new(store: Arc<dyn Store>) -> Arc<Self> {
        Arc::new(Self { collection: Collection::new(store.clone(), MAX_RULES), store })
    }

    pub(super) fn tools(self: &Arc<Self>) -> Vec<Arc<dyn Tool>> {
        let define = |name, description, arguments, required, hints| BuiltinDefinition {
            name,
            description,
            arguments,
            required,
            source: ToolSource::Memory,
            hints,
        };
        vec![
            BuiltinTool::create(
                self,
                define(
                    "add_rule",
                    "Add a rule for every conversation from the next turn on. Only when the user \
                     asks for it.",
                    json!({"rule": {
                        "type": "string",
                        "minLength": 1,
                        "maxLength": MAX_BYTES,
                        "description": format!("At most {MAX_BYTES} bytes of UTF-8."),
                    }}),
                    &["rule"],
                    NON_DESTRUCTIVE,
                ),
                |rules, arguments, context| Box::pin(rules.add(arguments, context)),
            ),
            BuiltinTool::create(
                self,
                define(
                    "remove_rule",
                    "Remove a rule by its id.",
                    json!({"id": {"type": "string", "minLength": 1, "maxLength": 64}}),
                    &["id"],
                    DESTRUCTIVE,
                ),
                |rules, arguments, context| Box::pin(rules.remove(arguments, context)),
            ),
            BuiltinTool::create(
                self,
                define(
                    "list_rules",
                    "List the rules with their ids.",
                    json!({}),
                    &[],
                    ToolHints::READ_ONLY,
                ),
                |rules, _, context| Box::pin(rules.list(&context.agent)),
            ),
        ]
    }

    async fn add(
        &self,
        arguments: Value,
        context: &ToolContext,
    ) -> Result<ToolResult, ToolFailure> {
        let Arguments { rule, .. } = parse_arguments(arguments)?;
        check_text("the rule", &rule, MAX_BYTES)?;
        let rule = one_line(&rule);
        let bytes = rule.len();
        let fits = move |entries: &Entries<Rule>| {
            let taken: usize = entries.all.iter().map(|(_, one)| one.value.rule.len()).sum();
            if taken + bytes <= MAX_TOTAL_BYTES {
                return Ok(());
            }
            Err(ToolFailure::invalid(format!(
                "the rule was not added: all rules together are limited to {MAX_TOTAL_BYTES} bytes \
                 and use {taken}; remove one with remove_rule"
            )))
        };
        let id = content_id(&rule);
        let added_at = self.store.now().await?.as_millis();
        let rule = Rule { rule, added_at };
        match self.collection.put_if(&context.agent, &id, &rule, Expected::Absent, fits).await? {
            PutOutcome::Done(_) => Ok(ToolResult::text(format!("Added, id {id}."))),
            PutOutcome::Conflict(_) => {
                Ok(ToolResult::text(format!("The rule exists already, id {id}.")))
            }
        }
    }

    async fn remove(
        &self,
        arguments: Value,
        context: &ToolContext,
    ) -> Result<ToolResult, ToolFailure> {
        let Arguments { id, .. } = parse_arguments(arguments)?;
        if !self.collection.remove(&context.agent, &id).await? {
            return Err(ToolFailure::invalid("unknown rule id; list_rules returns the ids"));
        }
        Ok(ToolResult::text("Removed."))
    }

    async fn list(&self, agent: &AgentName) -> Result<ToolResult, ToolFailure> {
        let entries = self.collection.entries(agent).await?;
        if entries.all.is_empty() {
            return Ok(ToolResult::text("There is no rule."));
        }
        let lines = in_order(&entries).into_iter().map(|(id, rule)| format!("- {id}: {rule}"));
        Ok(ToolResult::text(lines.collect::<Vec<_>>().join("\n")))
    }
}

fn in_order(entries: &Entries<Rule>) -> Vec<(&str, &str)> {
    let mut all: Vec<_> = entries.all.iter().collect();
    all.sort_by_key(|(_, rule)| rule.value.added_at);
    all.into_iter().map(|(id, rule)| (id.as_str(), rule.value.rule.as_str())).collect()
}

/// Adds all rules to the context of every turn. If the store fails, the turn runs without them, and a warning is
/// logged.
impl ContextSource for Rules {
    fn part(&self) -> ContextPart {
        ContextPart::Rules
    }

    fn text<'a>(&'a self, request: ContextRequest<'a>) -> BoxFuture<'a, Option<String>> {
        Box::pin(async move {
            let entries = match self.collection.entries(request.agent).await {
                Ok(entries) => entries,
                Err(error) => {
                    warn!(agent = %request.agent, %error, "rules unavailable; turn runs without them");
                    return None;
                }
            };
            let lines: Vec<_> =
                in_order(&entries).into_iter().map(|(_, rule)| format!("- {rule}")).collect();
            (!lines.is_empty()).then(|| format!("Always follow these rules:\n{}", lines.join("\n")))
        })
    }
}
