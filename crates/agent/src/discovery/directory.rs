//! The agents of the bus that are known.

use std::{
    collections::BTreeMap,
    fmt,
    path::PathBuf,
    time::{Duration, SystemTime},
};

use parking_lot::Mutex;
use rockbot_contracts::{
    AgentCard, AgentName, AgentSkill,
    agent_card::MAX_SKILLS,
    agent_task::MAX_SKILL_BYTES,
    envelope::unix_ms,
    outside_text::{is_name, plain},
};
use rockbot_memory::Ranker;
use tokio::time::Instant;
use tracing::warn;

use super::{rules::MAX_WORDS, well_known};

/// Time after the last announcement at which an agent is forgotten.
const FORGET_AFTER: Duration = Duration::from_secs(24 * 3600);
/// Maximum number of agents that are known.
const MAX_AGENTS: usize = 1000;
/// Longest description, in characters.
const MAX_DESCRIPTION_CHARS: usize = 1000;
/// Longest name, tag or version, in characters.
const MAX_NAME_CHARS: usize = 128;
/// Maximum number of names that are suggested for an unknown one.
const MAX_SUGGESTED: usize = 10;

/// The agents that a process knows, from their announcements and from a file of well-known agents.
///
/// An agent is forgotten when it announces its stop, and 24 h after its last announcement. One of the file is
/// kept, and its announcements only set the time at which it was last seen.
pub struct AgentDirectory {
    own: AgentName,
    well_known: Option<PathBuf>,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    announced: BTreeMap<AgentName, Announced>,
    well_known: BTreeMap<AgentName, AgentCard>,
}

struct Announced {
    card: AgentCard,
    at: Instant,
    at_ms: u64,
}

/// A known agent. Its texts come from outside and are sanitized.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KnownAgent {
    /// Name and skills.
    pub card: AgentCard,
    /// Time of its last announcement in Unix milliseconds; `None` if it never announced itself.
    pub last_seen_ms: Option<u64>,
    /// It is in the file of well-known agents.
    pub is_well_known: bool,
}

impl KnownAgent {
    /// Returns the skill with this id.
    #[must_use]
    pub fn skill(&self, id: &str) -> Option<&AgentSkill> {
        self.card.skills.iter().find(|skill| skill.id == id)
    }
}

impl AgentDirectory {
    /// Creates the directory of the agent `own`, which it leaves out. `well_known` is a file in JSON: an array of
    /// cards. A file that cannot be read is logged.
    #[must_use]
    pub fn new(own: AgentName, well_known: Option<PathBuf>) -> Self {
        let directory = Self { own, well_known, state: Mutex::default() };
        directory.reload();
        directory
    }

    /// Reads the file of well-known agents again. An invalid file changes nothing.
    pub(super) fn reload(&self) {
        let Some(file) = &self.well_known else { return };
        match well_known::load(file) {
            Ok(cards) => {
                let cards = cards.into_iter().map(sanitized);
                let cards = cards.filter(|card| card.agent_name != self.own);
                let cards = cards.map(|card| (card.agent_name.clone(), card)).collect();
                self.state.lock().well_known = cards;
            }
            Err(error) => warn!(file = %file.display(), %error, "well-known agents not loaded"),
        }
    }

    /// Adds an announcement. The caller has checked that it comes from the agent.
    pub(super) fn add(&self, card: AgentCard) {
        if card.agent_name == self.own {
            return;
        }
        let mut state = self.state.lock();
        if card.is_deregistering {
            state.announced.remove(&card.agent_name);
            return;
        }
        state.announced.retain(|_, known| known.at.elapsed() < FORGET_AFTER);
        if state.announced.len() < MAX_AGENTS || state.announced.contains_key(&card.agent_name) {
            let (at, at_ms) = (Instant::now(), unix_ms(SystemTime::now()));
            let known = Announced { card: sanitized(card), at, at_ms };
            state.announced.insert(known.card.agent_name.clone(), known);
        }
    }

    /// Returns a known agent.
    #[must_use]
    pub fn get(&self, name: &AgentName) -> Option<KnownAgent> {
        let state = self.state.lock();
        let announced = state.announced.get(name);
        let announced = announced.filter(|known| known.at.elapsed() < FORGET_AFTER);
        let last_seen_ms = announced.map(|known| known.at_ms);
        match (state.well_known.get(name), announced) {
            (Some(card), _) => {
                Some(KnownAgent { card: card.clone(), last_seen_ms, is_well_known: true })
            }
            (None, Some(known)) => {
                Some(KnownAgent { card: known.card.clone(), last_seen_ms, is_well_known: false })
            }
            (None, None) => None,
        }
    }

    /// Returns all known agents, ordered by name.
    #[must_use]
    pub fn all(&self) -> Vec<KnownAgent> {
        let names: Vec<_> = {
            let state = self.state.lock();
            let mut names: Vec<_> = state.announced.keys().chain(state.well_known.keys()).collect();
            names.sort_unstable();
            names.dedup();
            names.into_iter().cloned().collect()
        };
        names.iter().filter_map(|name| self.get(name)).collect()
    }

    /// Returns the names of up to 10 agents for a name or words that are unknown, the most similar first.
    #[must_use]
    pub fn suggestions(&self, words: &str) -> Vec<String> {
        let known = self.all();
        let text = |one: &KnownAgent| format!("{} {}", one.card.agent_name, one.card.description);
        let ranked = Ranker::from_texts(known.iter().map(text)).search(words, MAX_SUGGESTED);
        let names = ranked.iter().filter_map(|found| known.get(found.text)).chain(&known);
        let mut suggested = Vec::new();
        for name in names.map(|one| one.card.agent_name.to_string()) {
            if suggested.len() < MAX_SUGGESTED && !suggested.contains(&name) {
                suggested.push(name);
            }
        }
        suggested
    }
}

/// Returns a card within the bounds, with one line of visible text in each field.
fn sanitized(card: AgentCard) -> AgentCard {
    let line = |text: &str, chars| plain(text, chars).replace(['\n', '\t'], " ");
    let lines = |texts: Vec<String>| -> Vec<String> {
        texts.iter().take(MAX_WORDS).map(|text| line(text, MAX_NAME_CHARS)).collect()
    };
    let fits = |skill: &AgentSkill| is_name(&skill.id) && skill.id.len() <= MAX_SKILL_BYTES;
    let skills = card.skills.into_iter().filter(fits).take(MAX_SKILLS);
    let skills = skills.map(|skill| AgentSkill {
        name: line(&skill.name, MAX_NAME_CHARS),
        description: line(&skill.description, MAX_DESCRIPTION_CHARS),
        tags: lines(skill.tags),
        examples: lines(skill.examples),
        id: skill.id,
    });
    AgentCard {
        description: line(&card.description, MAX_DESCRIPTION_CHARS),
        version: line(&card.version, MAX_NAME_CHARS),
        skills: skills.collect(),
        ..card
    }
}

impl fmt::Debug for AgentDirectory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let state = self.state.lock();
        f.debug_struct("AgentDirectory")
            .field("announced", &state.announced.len())
            .field("well_known", &state.well_known.len())
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use tokio::time::advance;

    use super::*;

    fn name(name: &str) -> AgentName {
        AgentName::new(name).unwrap()
    }

    fn card(agent: &str) -> AgentCard {
        let skill = AgentSkill {
            id: "write".to_owned(),
            name: "Write".to_owned(),
            description: "writes\u{1b}[31m\nreports".to_owned(),
            tags: Vec::new(),
            examples: Vec::new(),
        };
        AgentCard {
            agent_name: name(agent),
            description: "Writes\nreports".to_owned(),
            version: String::new(),
            skills: vec![AgentSkill { id: "two\nlines".to_owned(), ..skill.clone() }, skill],
            is_deregistering: false,
        }
    }

    fn names(directory: &AgentDirectory) -> Vec<String> {
        directory.all().iter().map(|one| one.card.agent_name.to_string()).collect()
    }

    #[tokio::test(start_paused = true)]
    async fn stopped_agent_is_forgotten_at_once_and_silent_one_after_a_day() {
        let directory = AgentDirectory::new(name("own"), None);
        for agent in ["a", "b", "own"] {
            directory.add(card(agent));
        }
        assert_eq!(names(&directory), ["a", "b"]);
        directory.add(AgentCard { is_deregistering: true, ..card("a") });
        assert_eq!(names(&directory), ["b"]);
        advance(FORGET_AFTER - Duration::from_secs(1)).await;
        assert_eq!(names(&directory), ["b"]);
        advance(Duration::from_secs(1)).await;
        assert!(names(&directory).is_empty());
    }

    #[tokio::test(start_paused = true)]
    async fn well_known_agent_stays_and_is_not_overwritten() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("well-known-agents.json");
        std::fs::write(&file, r#"[{"agentName": "a", "description": "Known", "skills": []}]"#)
            .unwrap();
        let directory = AgentDirectory::new(name("own"), Some(file.clone()));
        directory.add(card("a"));
        let known = directory.get(&name("a")).unwrap();
        assert_eq!(known.card.description, "Known");
        assert!(known.is_well_known && known.last_seen_ms.is_some());
        directory.add(AgentCard { is_deregistering: true, ..card("a") });
        assert_eq!(directory.get(&name("a")).unwrap().last_seen_ms, None);
        std::fs::write(&file, "not JSON").unwrap();
        directory.reload();
        assert_eq!(names(&directory), ["a"]);
        std::fs::write(&file, "[]").unwrap();
        directory.reload();
        assert!(names(&directory).is_empty());
    }

    #[tokio::test]
    async fn texts_of_cards_are_single_visible_lines() {
        let directory = AgentDirectory::new(name("own"), None);
        directory.add(card("a"));
        let KnownAgent { card, .. } = directory.get(&name("a")).unwrap();
        assert_eq!(card.description, "Writes reports");
        assert_eq!(card.skills.len(), 1, "an id with a line break is left out");
        assert!(!card.skills[0].description.contains(['\n', '\u{1b}']));
    }

    #[tokio::test]
    async fn similar_names_are_suggested_first() {
        let directory = AgentDirectory::new(name("own"), None);
        for agent in ["a", "reporter", "z"] {
            directory.add(AgentCard { description: String::new(), ..card(agent) });
        }
        assert_eq!(directory.suggestions("reporter")[0], "reporter");
        assert_eq!(directory.suggestions("nothing").len(), 3);
    }
}
