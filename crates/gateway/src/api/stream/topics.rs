//! Topics of a stream.

use rockbot_monitor::Filter;

use crate::{
    api::{
        Api, body::QueryMap, calls::parse_filter, conversations::Conversation, problem::Problem,
    },
    identity::{Identity, Right},
};

/// Largest number of topics.
const MAX_TOPICS: usize = 16;

/// A conversation that a stream shows.
#[derive(Debug)]
pub(super) struct ConversationTopic {
    /// The topic as it was requested.
    pub(super) name: String,
    pub(super) conversation: Conversation,
    /// The share through which it is shown.
    pub(super) share: Option<String>,
}

/// The topics of a stream.
#[derive(Debug, Default)]
pub(super) struct Topics {
    pub(super) conversations: Vec<ConversationTopic>,
    /// The filter of the calls, if they are shown.
    pub(super) calls: Option<Filter>,
    pub(super) fleet: bool,
    pub(super) letters: bool,
}

impl Topics {
    /// Reads the topics of a request, and checks that the identity may see each.
    pub(super) async fn read(
        api: &Api,
        identity: &Identity,
        query: &QueryMap,
    ) -> Result<Self, Problem> {
        let names = query.get("topics").unwrap_or_default();
        let names: Vec<_> =
            names.split(',').map(str::trim).filter(|name| !name.is_empty()).collect();
        if names.is_empty() || names.len() > MAX_TOPICS {
            return Err(Problem::invalid(format!("topics must name 1 to {MAX_TOPICS} topics")));
        }
        let mut topics = Self::default();
        for name in names {
            topics.add(api, identity, query, name).await?;
        }
        Ok(topics)
    }

    async fn add(
        &mut self,
        api: &Api,
        identity: &Identity,
        query: &QueryMap,
        name: &str,
    ) -> Result<(), Problem> {
        match name.split_once(':') {
            Some(("conversation", id)) => {
                require(identity, Right::Talk)?;
                let (conversation, _) = api.conversation(identity, id).await?;
                self.add_conversation(name, conversation, None);
            }
            Some(("shared", share)) => {
                require(identity, Right::Talk)?;
                let (conversation, _) = api.shared(share).await?;
                self.add_conversation(name, conversation, Some(share.to_owned()));
            }
            None if name == "calls" => {
                require(identity, Right::Watch)?;
                api.calls()?;
                self.calls = Some(parse_filter(query.get("filter").unwrap_or_default())?);
            }
            None if name == "fleet" => {
                require(identity, Right::Watch)?;
                api.calls()?;
                self.fleet = true;
            }
            None if name == "letters" => {
                require(identity, Right::Letters)?;
                api.letters()?;
                self.letters = true;
            }
            _ => {
                return Err(Problem::invalid(
                    "unknown topic; expected conversation:ID, shared:ID, calls, fleet or letters",
                ));
            }
        }
        Ok(())
    }

    fn add_conversation(&mut self, name: &str, conversation: Conversation, share: Option<String>) {
        if self.conversations.iter().all(|topic| topic.name != name) {
            let name = name.to_owned();
            self.conversations.push(ConversationTopic { name, conversation, share });
        }
    }
}

fn require(identity: &Identity, right: Right) -> Result<(), Problem> {
    if identity.has(right) {
        return Ok(());
    }
    Err(Problem::forbidden(format!("this topic needs the right {}", right.as_str())))
}
