//! Work for other agents, as a definition permits it.

use rockbot_contracts::{
    AgentCard, AgentName, AgentSkill, agent_card::MAX_SKILLS, agent_task::MAX_SKILL_BYTES,
};
use rockbot_tools::ToolFilter;
use serde::Deserialize;

/// Longest text of a skill, in bytes.
const MAX_TEXT_BYTES: usize = 1024;
/// Maximum number of tags and of examples of a skill.
pub(super) const MAX_WORDS: usize = 16;
/// The skill of an agent that names none.
const DEFAULT_SKILL: &str = "ask";

/// `[a2a]` of a definition: whether other agents of the bus may hand tasks to the agent.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct A2aRules {
    /// Announces the agent, and accepts tasks. Default false.
    pub expose: bool,
    /// Names of the callers whose tasks are accepted; `*` matches any text. Default: all.
    pub callers: Vec<String>,
    /// Skills that callers name, at most 64. Default: one, `ask`, with the description of the agent.
    pub skills: Vec<SkillRule>,
}

/// A skill in a definition.
#[derive(Debug, Clone, PartialEq, Eq, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SkillRule {
    /// Id by which callers name it: 1 to 128 bytes.
    pub id: String,
    /// Name for people. Default: the id.
    #[serde(default)]
    pub name: String,
    /// Description of its work.
    #[serde(default)]
    pub description: String,
    /// Keywords, at most 16.
    #[serde(default)]
    pub tags: Vec<String>,
    /// Examples of requests, at most 16.
    #[serde(default)]
    pub examples: Vec<String>,
}

impl Default for A2aRules {
    fn default() -> Self {
        Self { expose: false, callers: vec!["*".to_owned()], skills: Vec::new() }
    }
}

impl A2aRules {
    /// Returns `true` if tasks of `caller` are accepted.
    #[must_use]
    pub fn accepts(&self, caller: &AgentName) -> bool {
        let callers = ToolFilter { allow: self.callers.clone(), deny: Vec::new() };
        callers.permits(caller.as_str())
    }

    /// Returns the card that announces the agent.
    #[must_use]
    pub fn card(&self, agent: &AgentName, description: &str) -> AgentCard {
        let mut skills: Vec<_> = self.skills.iter().map(SkillRule::announced).collect();
        if skills.is_empty() {
            let description = description.to_owned();
            let id = DEFAULT_SKILL.to_owned();
            skills.push(SkillRule { id, description, ..SkillRule::default() }.announced());
        }
        AgentCard {
            agent_name: agent.clone(),
            description: description.to_owned(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            skills,
            is_deregistering: false,
        }
    }

    /// Returns the first problem of the rules.
    pub(crate) fn problem(&self) -> Option<String> {
        if self.skills.len() > MAX_SKILLS {
            return Some(format!("more than {MAX_SKILLS} skills"));
        }
        self.skills.iter().find_map(SkillRule::problem)
    }
}

impl SkillRule {
    fn announced(&self) -> AgentSkill {
        let Self { id, name, description, tags, examples } = self.clone();
        let name = if name.is_empty() { id.clone() } else { name };
        AgentSkill { id, name, description, tags, examples }
    }

    fn problem(&self) -> Option<String> {
        let Self { id, name, description, tags, examples } = self;
        let is_id = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.');
        if !(1..=MAX_SKILL_BYTES).contains(&id.len()) || !id.chars().all(is_id) {
            return Some(format!(
                "skill {id:?}: the id must be 1 to {MAX_SKILL_BYTES} letters, digits, `_`, `-` or `.`"
            ));
        }
        let mut texts = [name, description].into_iter().chain(tags).chain(examples);
        if texts.any(|text| text.len() > MAX_TEXT_BYTES) {
            return Some(format!("skill {id}: a text is longer than {MAX_TEXT_BYTES} bytes"));
        }
        (tags.len() > MAX_WORDS || examples.len() > MAX_WORDS)
            .then(|| format!("skill {id}: more than {MAX_WORDS} tags or examples"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rules(text: &str) -> A2aRules {
        toml::from_str(text).unwrap()
    }

    #[test]
    fn callers_are_patterns_of_names() {
        let agent = |name| AgentName::new(name).unwrap();
        assert!(rules("").accepts(&agent("any")));
        let rules = rules("callers = ['team-*', 'cli']");
        assert!(rules.accepts(&agent("team-a")) && rules.accepts(&agent("cli")));
        assert!(!rules.accepts(&agent("mallory")));
    }

    #[test]
    fn agent_without_skills_has_one() {
        let agent = AgentName::new("reporter").unwrap();
        let card = rules("").card(&agent, "Writes reports.");
        assert_eq!(card.skills[0].id, "ask");
        assert_eq!(card.skills[0].description, "Writes reports.");
        let card = rules("skills = [{ id = 'write' }]").card(&agent, "");
        assert_eq!((card.skills.len(), card.skills[0].name.as_str()), (1, "write"));
    }

    #[test]
    fn invalid_skills_are_reported() {
        for text in
            ["skills = [{ id = '' }]", "skills = [{ id = 'a\\nb' }]", "skills = [{ id = 'a b' }]"]
        {
            assert!(rules(&text.replace('\'', "\"")).problem().is_some(), "{text}");
        }
        assert_eq!(rules("skills = [{ id = 'a' }]").problem(), None);
    }
}
