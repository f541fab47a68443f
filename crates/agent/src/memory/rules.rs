//! Rules: what a person told an agent to do always.

use std::sync::Arc;

use futures_util::future::BoxFuture;
use rockbot_contracts::AgentName;
use rockbot_store::{Expected, PutOutcome, Store};
use rockbot_tools::{Tool, ToolContext, ToolFailure, ToolHints, ToolResult, ToolSource};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use tracing::debug;

use super::collection::{Collection, Entries, Kept, check_text, name_of};
use crate::{
    context::{ContextPart, ContextSource, Moment},
    own_tool::{Definition, KEEPS, OwnTool, REMOVES, read},
};

/// Most rules of an agent.
const MOST: usize = 50;
/// The longest rule, in bytes.
const MOST_BYTES: usize = 500;
/// Most bytes of all of them: they are told in every turn, and none may be left out.
const MOST_BYTES_IN_ALL: usize = 6 * 1024;

/// A rule.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Rule {
    rule: String,
    /// In milliseconds since the Unix epoch; rules are told in this order.
    added_at: i64,
}

impl Kept for Rule {
    const NAME: &'static str = "rules";

    fn words(&self) -> String {
        self.rule.clone()
    }
}

/// The rules of all agents of the process.
pub(super) struct Rules {
    store: Arc<dyn Store>,
    kept: Collection<Rule>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Arguments {
    rule: String,
    id: String,
}

impl Rules {
    pub(super) fn new(store: Arc<dyn Store>) -> Arc<Self> {
        Arc::new(Self { kept: Collection::new(store.clone(), MOST), store })
    }

    pub(super) fn tools(self: &Arc<Self>) -> Vec<Arc<dyn Tool>> {
        let define = |name, description, arguments, required, hints| Definition {
            name,
            description,
            arguments,
            required,
            source: ToolSource::Memory,
            hints,
        };
        vec![
            OwnTool::over(
                self,
                define(
                    "add_rule",
                    "Keep to a rule from the next turn on, in every conversation. Only when the \
                     person asks for it.",
                    json!({"rule": {"type": "string", "minLength": 1, "maxLength": MOST_BYTES}}),
                    &["rule"],
                    KEEPS,
                ),
                |rules, arguments, context| Box::pin(rules.add(arguments, context)),
            ),
            OwnTool::over(
                self,
                define(
                    "remove_rule",
                    "Take a rule away, by its id.",
                    json!({"id": {"type": "string", "minLength": 1, "maxLength": 64}}),
                    &["id"],
                    REMOVES,
                ),
                |rules, arguments, context| Box::pin(rules.remove(arguments, context)),
            ),
            OwnTool::over(
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
        let Arguments { rule, .. } = read(arguments)?;
        check_text("the rule", &rule, MOST_BYTES)?;
        let rule = rule.split_whitespace().collect::<Vec<_>>().join(" ");
        let bytes = rule.len();
        let fits = move |entries: &Entries<Rule>| {
            let taken: usize = entries.all.iter().map(|(_, one)| one.value.rule.len()).sum();
            if taken + bytes <= MOST_BYTES_IN_ALL {
                return Ok(());
            }
            Err(ToolFailure::invalid(format!(
                "all rules together may have {MOST_BYTES_IN_ALL} bytes and have {taken}; nothing \
                 was dropped to make room: remove a rule first"
            )))
        };
        let id = name_of(&rule);
        let added_at = self.store.now().await?.as_millis();
        let rule = Rule { rule, added_at };
        match self.kept.put_if(&context.agent, &id, &rule, Expected::Absent, fits).await? {
            PutOutcome::Done(_) => Ok(ToolResult::text(format!("Added, id {id}."))),
            PutOutcome::Conflict(_) => {
                Ok(ToolResult::text(format!("It is a rule already, id {id}.")))
            }
        }
    }

    async fn remove(
        &self,
        arguments: Value,
        context: &ToolContext,
    ) -> Result<ToolResult, ToolFailure> {
        let Arguments { id, .. } = read(arguments)?;
        match self.kept.remove(&context.agent, &id).await? {
            true => Ok(ToolResult::text("Removed.")),
            false => Err(ToolFailure::invalid("there is no rule of that id; list_rules tells")),
        }
    }

    async fn list(&self, agent: &AgentName) -> Result<ToolResult, ToolFailure> {
        let entries = self.kept.entries(agent).await?;
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

/// Tells a model its rules in every turn.
impl ContextSource for Rules {
    fn part(&self) -> ContextPart {
        ContextPart::Rules
    }

    fn text<'a>(&'a self, moment: Moment<'a>) -> BoxFuture<'a, Option<String>> {
        Box::pin(async move {
            let entries = match self.kept.entries(moment.agent).await {
                Ok(entries) => entries,
                Err(error) => {
                    debug!(%error, "the rules are out of reach");
                    return None;
                }
            };
            let lines: Vec<_> =
                in_order(&entries).into_iter().map(|(_, rule)| format!("- {rule}")).collect();
            (!lines.is_empty()).then(|| format!("Rules to keep to always:\n{}", lines.join("\n")))
        })
    }
}
