//! The card of a remote agent.

use rockbot_contracts::{
    AgentCard, AgentName, AgentSkill, agent_card::MAX_SKILLS, agent_task::MAX_SKILL_BYTES,
    outside_text::is_name,
};
use serde::Deserialize;
use serde_json::Value;
use url::Url;

use super::{card_keys::CardKeys, wire::line};

/// Longest description, in characters.
const MAX_DESCRIPTION_CHARS: usize = 1000;
/// Longest name, tag or version, in characters.
const MAX_NAME_CHARS: usize = 128;
/// Maximum number of tags and of examples of a skill.
const MAX_WORDS: usize = 16;
/// The binding that is used.
const BINDING: &str = "JSONRPC";
/// The version of the protocol that is used.
const VERSION: &str = "1.0";
/// The skill of an agent that names none.
const DEFAULT_SKILL: &str = "ask";

/// A valid card: how to reach the agent, and how to announce it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct RemoteCard {
    /// Address of its requests.
    pub(super) endpoint: Url,
    pub(super) streams: bool,
    /// The announcement. Its texts are one line each.
    pub(super) announced: AgentCard,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct WireCard {
    #[serde(default)]
    description: String,
    #[serde(default)]
    version: String,
    supported_interfaces: Vec<Interface>,
    #[serde(default)]
    capabilities: Capabilities,
    #[serde(default)]
    skills: Vec<WireSkill>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Interface {
    url: String,
    protocol_binding: String,
    #[serde(default)]
    protocol_version: String,
}

#[derive(Debug, Default, Deserialize)]
struct Capabilities {
    #[serde(default)]
    streaming: bool,
}

#[derive(Debug, Deserialize)]
struct WireSkill {
    id: String,
    #[serde(default)]
    name: String,
    #[serde(default)]
    description: String,
    #[serde(default)]
    tags: Vec<String>,
    #[serde(default)]
    examples: Vec<String>,
}

/// Why a card is not used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(super) enum CardError {
    #[error("the card is not valid JSON of an A2A card")]
    Malformed,
    #[error(
        "the card names no interface JSONRPC of A2A 1.0; upgrade the agent, or ask its operator for one"
    )]
    NoInterface,
    #[error("the URL of the interface is invalid")]
    Url,
    #[error(
        "no signature of the card is valid for the keys of `card_keys_file`; ask the operator of the agent for its public key"
    )]
    Unsigned,
    /// The token must not go there.
    #[error(
        "the interface is at another origin than `url`; configure that origin if it is the right one"
    )]
    ForeignOrigin,
}

impl RemoteCard {
    /// Parses the card at `url` of the agent that the bus knows as `name`.
    pub(super) fn parse(
        name: &AgentName,
        url: &Url,
        keys: Option<&CardKeys>,
        bytes: &[u8],
    ) -> Result<Self, CardError> {
        let card: Value = serde_json::from_slice(bytes).map_err(|_| CardError::Malformed)?;
        if keys.is_some_and(|keys| !keys.verify(&card)) {
            return Err(CardError::Unsigned);
        }
        let card: WireCard = serde_json::from_value(card).map_err(|_| CardError::Malformed)?;
        let interface = card.supported_interfaces.iter().find(|interface| {
            interface.protocol_binding == BINDING && interface.protocol_version == VERSION
        });
        let interface = interface.ok_or(CardError::NoInterface)?;
        let endpoint: Url = interface.url.parse().map_err(|_| CardError::Url)?;
        if endpoint.origin() != url.origin() {
            return Err(CardError::ForeignOrigin);
        }
        let description = line(&card.description, MAX_DESCRIPTION_CHARS);
        let mut skills: Vec<_> =
            card.skills.into_iter().filter_map(WireSkill::announced).take(MAX_SKILLS).collect();
        if skills.is_empty() {
            skills.push(AgentSkill {
                id: DEFAULT_SKILL.to_owned(),
                name: DEFAULT_SKILL.to_owned(),
                description: description.clone(),
                tags: Vec::new(),
                examples: Vec::new(),
            });
        }
        let announced = AgentCard {
            agent_name: name.clone(),
            description,
            version: line(&card.version, MAX_NAME_CHARS),
            skills,
            is_deregistering: false,
        };
        Ok(Self { endpoint, streams: card.capabilities.streaming, announced })
    }
}

impl WireSkill {
    /// Returns the announced skill; `None` if callers could not name it.
    fn announced(self) -> Option<AgentSkill> {
        let Self { id, name, description, tags, examples } = self;
        if !is_name(&id) || id.len() > MAX_SKILL_BYTES {
            return None;
        }
        let words = |words: Vec<String>| {
            words.iter().take(MAX_WORDS).map(|word| line(word, MAX_NAME_CHARS)).collect()
        };
        Some(AgentSkill {
            name: line(if name.is_empty() { &id } else { &name }, MAX_NAME_CHARS),
            description: line(&description, MAX_DESCRIPTION_CHARS),
            tags: words(tags),
            examples: words(examples),
            id,
        })
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn parse(card: &Value) -> Result<RemoteCard, CardError> {
        let name = AgentName::new("partner").unwrap();
        let url = "https://a.example/agents/x".parse().unwrap();
        RemoteCard::parse(&name, &url, None, card.to_string().as_bytes())
    }

    fn card(url: &str, binding: &str, version: &str) -> Value {
        json!({
            "name": "x",
            "description": "Finds\nthings\u{1b}[31m",
            "supportedInterfaces": [
                {"url": "https://a.example/rest", "protocolBinding": "HTTP+JSON", "protocolVersion": "1.0"},
                {"url": url, "protocolBinding": binding, "protocolVersion": version},
            ],
            "capabilities": {"streaming": true},
            "skills": [{"id": "a\nb", "name": "x"}, {"id": "find", "name": "Find"}],
        })
    }

    #[test]
    fn card_is_announced_under_the_configured_name() {
        let read = parse(&card("https://a.example/rpc", "JSONRPC", "1.0")).unwrap();
        assert_eq!(read.endpoint.path(), "/rpc");
        assert!(read.streams);
        assert_eq!(read.announced.agent_name.as_str(), "partner");
        assert_eq!(read.announced.description, "Finds things");
        let skills: Vec<_> = read.announced.skills.iter().map(|skill| skill.id.as_str()).collect();
        assert_eq!(skills, ["find"]);
    }

    #[test]
    fn unusable_card_is_refused() {
        for (url, binding, version, error) in [
            ("https://a.example/rpc", "JSONRPC", "0.3", CardError::NoInterface),
            ("https://a.example/rpc", "GRPC", "1.0", CardError::NoInterface),
            ("no URL", "JSONRPC", "1.0", CardError::Url),
            ("https://b.example/rpc", "JSONRPC", "1.0", CardError::ForeignOrigin),
            ("http://a.example/rpc", "JSONRPC", "1.0", CardError::ForeignOrigin),
            ("http://169.254.169.254/", "JSONRPC", "1.0", CardError::ForeignOrigin),
        ] {
            assert_eq!(
                parse(&card(url, binding, version)),
                Err(error),
                "{url} {binding} {version}"
            );
        }
        assert_eq!(parse(&json!({"name": "x"})), Err(CardError::Malformed));
        assert_eq!(parse(&json!([])), Err(CardError::Malformed));
    }

    #[test]
    fn card_without_a_required_signature_is_refused() {
        let (name, url) =
            (AgentName::new("partner").unwrap(), "https://a.example/".parse().unwrap());
        let key = rcgen::KeyPair::generate().unwrap().public_key_pem();
        let keys = CardKeys::from_pem(key.as_bytes()).unwrap();
        let card = card("https://a.example/rpc", "JSONRPC", "1.0").to_string();
        let read = RemoteCard::parse(&name, &url, Some(&keys), card.as_bytes());
        assert_eq!(read, Err(CardError::Unsigned));
    }

    #[test]
    fn agent_without_skills_has_one() {
        let mut card = card("https://a.example/rpc", "JSONRPC", "1.0");
        card["skills"] = json!([]);
        assert_eq!(parse(&card).unwrap().announced.skills[0].id, "ask");
    }
}
