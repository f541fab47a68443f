//! Parsing of definitions, key by key, so that all problems are reported at once.

use std::{
    path::{Path, PathBuf},
    time::Duration,
};

use rockbot_contracts::{
    AgentName,
    period::{self, Period},
};
use rockbot_tools::ArgumentSchema;
use serde::de::DeserializeOwned;
use serde_json::Value;
use toml::Table;

use super::{
    AgentDefinition, DefinitionErrors, DefinitionProblem, McpRules, SubagentRules, SubagentTool,
    ToolFilter,
};
use crate::{
    discovery::A2aRules,
    handoff::RouterRules,
    internal_tools::{InternalTools, ReportFormat},
    strategy::{ExecutionStrategy, MAX_PARALLEL},
};

/// Line before and after the head of a Markdown definition.
const FENCE: &str = "+++";
const MAX_PROMPT_BYTES: usize = 64 * 1024;
const MAX_DESCRIPTION_BYTES: usize = 1024;
const MAX_SCHEMA_BYTES: usize = 16 * 1024;
const NO_SCHEMA: &str = "must be a JSON Schema with type = \"object\", of at most 16 KiB";
const MAX_NAME_BYTES: usize = 64;
const MAX_DOCUMENTS: usize = 16;
const MAX_PATTERNS: usize = 256;
const MAX_PATTERN_BYTES: usize = 128;

impl AgentDefinition {
    /// Parses a definition. The extension of `file` selects the format: `.toml`, or Markdown with a head.
    ///
    /// # Errors
    /// Returns all problems.
    pub fn parse(file: &Path, text: &str) -> Result<Self, DefinitionErrors> {
        let mut reader = Reader { file, table: Table::new(), problems: Vec::new() };
        let is_toml = file.extension().is_some_and(|extension| extension == "toml");
        let (head, prompt) = if is_toml {
            (text.to_owned(), None)
        } else {
            match split(text) {
                Ok((head, body)) => (head, Some(body)),
                Err(problem) => return Err(reader.fail(None, problem)),
            }
        };
        match head.parse::<Table>() {
            Ok(table) => reader.table = table,
            Err(error) => return Err(reader.fail(None, error.to_string().trim_end().to_owned())),
        }
        reader.definition(prompt)
    }
}

/// Returns `true` for a valid JSON Schema of an object.
fn is_schema(schema: &Value) -> bool {
    schema["type"] == "object"
        && schema.to_string().len() <= MAX_SCHEMA_BYTES
        && ArgumentSchema::compile(schema).is_ok()
}

/// Splits a Markdown definition into head and body. The head starts with an empty line, so that line
/// numbers in errors match the file.
fn split(text: &str) -> Result<(String, String), String> {
    let text = text.trim_start_matches('\u{feff}');
    let mut lines = text.lines();
    if lines.next().map(str::trim_end) != Some(FENCE) {
        return Err(format!("must start with a line of {FENCE}, then TOML, then {FENCE} again"));
    }
    let mut head = String::from("\n");
    for line in lines.by_ref() {
        if line.trim_end() == FENCE {
            let body: Vec<&str> = lines.collect();
            return Ok((head, body.join("\n")));
        }
        head.push_str(line);
        head.push('\n');
    }
    Err(format!("the head is not closed by a line of {FENCE}"))
}

struct Reader<'a> {
    file: &'a Path,
    table: Table,
    problems: Vec<DefinitionProblem>,
}

impl Reader<'_> {
    fn problem(&mut self, key: Option<&str>, problem: impl Into<String>) {
        let (file, key) = (self.file.to_owned(), key.map(ToOwned::to_owned));
        self.problems.push(DefinitionProblem { file, key, problem: problem.into() });
    }

    fn fail(mut self, key: Option<&str>, problem: String) -> DefinitionErrors {
        self.problem(key, problem);
        DefinitionErrors(self.problems)
    }

    fn definition(mut self, prompt: Option<String>) -> Result<AgentDefinition, DefinitionErrors> {
        let name = self.name();
        let description: String = self.take("description").unwrap_or_default();
        let short = description.len() <= MAX_DESCRIPTION_BYTES;
        self.check("description", short, "is longer than 1024 bytes");
        let tool_description: Option<String> = self.take("tool_description");
        let short =
            tool_description.as_ref().is_none_or(|text| text.len() <= MAX_DESCRIPTION_BYTES);
        self.check("tool_description", short, "is longer than 1024 bytes");
        let parameters = self.parameters();
        let enabled: Option<bool> = self.take("enabled");
        let primary: Option<bool> = self.take("primary");
        let tools = self.tools();
        let mcp = self.mcp();
        let internal = self.internal();
        let router: RouterRules = self.take("router").unwrap_or_default();
        if let Some(problem) = router.problem(name.as_ref()) {
            self.problem(Some("router.destinations"), problem);
        }
        let subagents: SubagentRules = self.take("subagents").unwrap_or_default();
        if let Some(problem) = subagents.problem() {
            self.problem(Some("subagents.tool"), problem);
        }
        for SubagentTool { tools, .. } in &subagents.tool {
            self.patterns([
                ("subagents.tool.tools.allow", &tools.allow),
                ("subagents.tool.tools.deny", &tools.deny),
            ]);
        }
        let a2a: A2aRules = self.take("a2a").unwrap_or_default();
        self.patterns([("a2a.callers", &a2a.callers)]);
        if let Some(problem) = a2a.problem() {
            self.problem(Some("a2a.skills"), problem);
        }
        let prompt = self.prompt(prompt);
        let documents: Vec<PathBuf> = self.take("documents").unwrap_or_default();
        self.check("documents", documents.len() <= MAX_DOCUMENTS, "names more than 16 files");
        let strategy: ExecutionStrategy = self.take("strategy").unwrap_or_default();
        if let ExecutionStrategy::Batched(size) = strategy {
            let fits = (1..=MAX_PARALLEL).contains(&size);
            self.check("strategy", fits, "batched must be from 1 to 64");
        }
        let model: Option<String> = self.take("model");
        let named = model.as_ref().is_none_or(|model| !model.trim().is_empty());
        self.check("model", named, "is empty; omit it for the model of the process");
        let tier = self.take("tier").unwrap_or_default();
        let max_iterations = self.number("max_iterations", 1, 100);
        let tool_timeout =
            self.duration("tool_timeout", Duration::from_secs(1), Duration::from_secs(3600));
        let max_tool_timeouts = self.number("max_tool_timeouts", 1, 20);
        let max_tokens = self.number("max_tokens", 1, u32::MAX);
        let temperature = self.temperature();
        for key in self.table.keys().cloned().collect::<Vec<_>>() {
            self.problem(Some(&key), "unknown key");
        }
        let Some(name) = name.filter(|_| self.problems.is_empty()) else {
            return Err(DefinitionErrors(self.problems));
        };
        let defaults = AgentDefinition::new(name, prompt);
        Ok(AgentDefinition {
            description,
            tool_description,
            parameters,
            enabled: enabled.unwrap_or(defaults.enabled),
            primary: primary.unwrap_or(defaults.primary),
            documents,
            model,
            tier,
            tools,
            mcp,
            internal,
            router,
            subagents,
            a2a,
            strategy,
            max_iterations: max_iterations.unwrap_or(defaults.max_iterations),
            tool_timeout: tool_timeout.unwrap_or(defaults.tool_timeout),
            max_tool_timeouts: max_tool_timeouts.unwrap_or(defaults.max_tool_timeouts),
            temperature,
            max_tokens,
            ..defaults
        })
    }

    fn name(&mut self) -> Option<AgentName> {
        let stem = self.file.file_stem().map(|stem| stem.to_string_lossy().into_owned());
        let given = self.table.contains_key("name");
        let name = if given { self.take::<String>("name")? } else { stem.unwrap_or_default() };
        let named = AgentName::new(name).ok().filter(|name| {
            let allowed = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-');
            name.as_str().len() <= MAX_NAME_BYTES && name.as_str().chars().all(allowed)
        });
        self.check("name", named.is_some(), "must be 1 to 64 letters, digits, `_` or `-`");
        named
    }

    fn prompt(&mut self, body: Option<String>) -> String {
        let prompt = match body {
            Some(body) => body,
            None => self.take("system_prompt").unwrap_or_default(),
        };
        let prompt = prompt.trim().to_owned();
        let present = !prompt.is_empty() || self.problems.iter().any(|one| one.is("system_prompt"));
        self.check("system_prompt", present, "is missing or empty; describe the agent");
        let short = prompt.len() <= MAX_PROMPT_BYTES;
        self.check("system_prompt", short, "is longer than 64 KiB");
        prompt
    }

    fn parameters(&mut self) -> Option<Value> {
        let schema: Value = self.take("parameters")?;
        self.check("parameters", is_schema(&schema), NO_SCHEMA);
        Some(schema)
    }

    fn tools(&mut self) -> ToolFilter {
        let tools: ToolFilter = self.take("tools").unwrap_or_default();
        self.patterns([("tools.allow", &tools.allow), ("tools.deny", &tools.deny)]);
        tools
    }

    fn mcp(&mut self) -> McpRules {
        let rules: McpRules = self.take("mcp").unwrap_or_default();
        let ToolFilter { allow, deny } = &rules.servers;
        self.patterns([("mcp.servers.allow", allow), ("mcp.servers.deny", deny)]);
        rules
    }

    fn internal(&mut self) -> InternalTools {
        let internal: InternalTools = self.take("internal").unwrap_or_default();
        if let Some(schema) = &internal.report_schema {
            let is_json = internal.report_format == ReportFormat::Json;
            self.check("internal.report_schema", is_json, "needs report_format = \"json\"");
            let is_valid = is_schema(schema);
            self.check("internal.report_schema", is_valid, NO_SCHEMA);
        }
        internal
    }

    fn patterns<'a>(&mut self, lists: impl IntoIterator<Item = (&'a str, &'a Vec<String>)>) {
        for (key, patterns) in lists {
            let few = patterns.len() <= MAX_PATTERNS;
            self.check(key, few, "has more than 256 patterns");
            let fits = |one: &String| !one.is_empty() && one.len() <= MAX_PATTERN_BYTES;
            self.check(key, patterns.iter().all(fits), "a pattern must have 1 to 128 bytes");
        }
    }

    fn temperature(&mut self) -> Option<f64> {
        // TOML distinguishes 1 from 1.0; accept both.
        let value = self.table.remove("temperature")?;
        let number = value.as_float().or_else(|| value.as_integer().map(|whole| whole as f64));
        let number = number.filter(|number| (0.0..=2.0).contains(number));
        self.check("temperature", number.is_some(), "must be a number from 0 to 2");
        number
    }

    fn number(&mut self, key: &str, least: u32, most: u32) -> Option<u32> {
        let value = self.table.remove(key)?;
        let number = value.as_integer().and_then(|number| u32::try_from(number).ok());
        let number = number.filter(|number| (least..=most).contains(number));
        if number.is_none() {
            self.problem(Some(key), format!("must be a whole number from {least} to {most}"));
        }
        number
    }

    fn duration(&mut self, key: &str, least: Duration, most: Duration) -> Option<Duration> {
        let value = self.table.remove(key)?;
        let length = period::duration(value).ok().filter(|length| (least..=most).contains(length));
        if length.is_none() {
            let (least, most) = (Period::from(least), Period::from(most));
            let problem = format!("must be a duration from {least} to {most}, such as \"30s\"");
            self.problem(Some(key), problem);
        }
        length
    }

    fn take<T: DeserializeOwned>(&mut self, key: &str) -> Option<T> {
        match self.table.remove(key)?.try_into() {
            Ok(value) => Some(value),
            Err(error) => {
                self.problem(Some(key), error.to_string().trim_end());
                None
            }
        }
    }

    fn check(&mut self, key: &str, is_valid: bool, problem: &str) {
        if !is_valid {
            self.problem(Some(key), problem);
        }
    }
}

impl DefinitionProblem {
    fn is(&self, key: &str) -> bool {
        self.key.as_deref() == Some(key)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn keys(file: &str, text: &str) -> Vec<String> {
        let errors = AgentDefinition::parse(Path::new(file), text).unwrap_err();
        errors.0.into_iter().map(|problem| problem.key.unwrap_or_default()).collect()
    }

    #[test]
    fn builtin_definition_is_valid() {
        let assistant = AgentDefinition::assistant();
        assert_eq!(assistant.name.as_str(), "assistant");
        assert_eq!(assistant.max_iterations, 12);
        assert!(assistant.tools.permits("read_file"));
    }

    #[test]
    fn markdown_and_toml_are_equivalent() {
        let markdown = "+++\nname = 'a'\nmodel = 'm'\nstrategy = {batched = 3}\ntemperature = 1\n\
                        tool_timeout = '5s'\ntier = 'low'\n[tools]\ndeny = ['bash']\n+++\nBe brief.\n";
        let plain = "name = 'a'\nmodel = 'm'\nstrategy = {batched = 3}\ntemperature = 1.0\n\
                     tool_timeout = '5s'\ntier = 'low'\nsystem_prompt = 'Be brief.'\n[tools]\n\
                     deny = ['bash']\n";
        let one = AgentDefinition::parse(Path::new("x.md"), markdown).unwrap();
        let other = AgentDefinition::parse(Path::new("x.toml"), plain).unwrap();
        assert_eq!(one, other);
        assert_eq!(one.strategy, ExecutionStrategy::Batched(3));
        assert_eq!(one.tool_timeout, Duration::from_secs(5));
        assert_eq!(one.tier, rockbot_llm::ModelTier::Low);
        assert!(one.tools.permits("read") && !one.tools.permits("bash"));
    }

    #[test]
    fn every_problem_is_reported_with_its_key() {
        let text = "+++\nname = 'a b'\nmax_iterations = 0\ntool_timeout = 60\n\
                    max_tool_timeouts = 21\ntemperature = 3\nmax_tokens = -1\ncolour = 'red'\n\
                    strategy = 'wild'\nsystem_prompt = 'twice'\n[tools]\nforbid = []\n+++\n \n";
        let mut keys = keys("x.md", text);
        keys.sort();
        let expected = [
            "colour",
            "max_iterations",
            "max_tokens",
            "max_tool_timeouts",
            "name",
            "strategy",
            "system_prompt",
            "system_prompt",
            "temperature",
            "tool_timeout",
            "tools",
        ];
        assert_eq!(keys, expected);
    }

    #[test]
    fn toml_error_is_reported_with_its_line() {
        let errors = AgentDefinition::parse(Path::new("x.md"), "+++\nname = 'a'\nbad\n+++\np");
        let text = errors.unwrap_err().to_string();
        assert!(text.contains("line 3"), "{text}");
        for text in ["", "just text", "+++\nname = 'a'\nprompt"] {
            assert_eq!(keys("x.md", text), [""], "{text}");
        }
    }
}
