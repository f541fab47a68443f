//! The tools and their queries.

use rmcp::model::{JsonObject, Tool, ToolAnnotations};
use serde_json::{Value, json};

use crate::query::{Identifier, InvalidIdentifier, Query};

/// A tool. All of them are read-only.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AccountTool {
    /// `get_credits`.
    GetCredits,
    /// `get_api_key_info`.
    GetApiKeyInfo,
    /// `list_models`.
    ListModels,
    /// `list_api_keys`.
    ListApiKeys,
    /// `get_api_key(keyHash)`.
    GetApiKey,
    /// `get_generation(generationId)`.
    GetGeneration,
}

/// Invalid arguments of a tool. The messages are for the model.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum InvalidArguments {
    /// A required argument is missing.
    #[error("the argument {0} is missing or not a string")]
    Missing(&'static str),
    /// The value of an argument is invalid.
    #[error("the argument {name}: {problem}")]
    Invalid {
        /// Its name.
        name: &'static str,
        /// The cause.
        problem: InvalidIdentifier,
    },
    /// An argument is unknown.
    #[error("the tool takes {}", .0.map_or_else(|| "no arguments".to_owned(), |name| format!("{name} and no other argument")))]
    Unknown(Option<&'static str>),
}

impl AccountTool {
    /// All tools, in the order in which they are listed.
    pub const ALL: [Self; 6] = [
        Self::GetCredits,
        Self::GetApiKeyInfo,
        Self::ListModels,
        Self::ListApiKeys,
        Self::GetApiKey,
        Self::GetGeneration,
    ];

    /// Returns the tool with this name.
    #[must_use]
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|tool| tool.name() == name)
    }

    /// Returns its name.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::GetCredits => "get_credits",
            Self::GetApiKeyInfo => "get_api_key_info",
            Self::ListModels => "list_models",
            Self::ListApiKeys => "list_api_keys",
            Self::GetApiKey => "get_api_key",
            Self::GetGeneration => "get_generation",
        }
    }

    fn description(self) -> &'static str {
        match self {
            Self::GetCredits => "Credits that the OpenRouter account has bought and used, in USD.",
            Self::GetApiKeyInfo => "Limit, usage and rate limit of the API key in use.",
            Self::ListModels => {
                "Every model on OpenRouter with its context length, prices and capabilities. The \
                 result is long."
            }
            Self::ListApiKeys => {
                "The account's API keys: name, hash, limit and usage of each, never the key itself."
            }
            Self::GetApiKey => "Name, limit and usage of one of the account's API keys.",
            Self::GetGeneration => "Model, tokens, cost and timing of one generation.",
        }
    }

    fn query_source(self) -> QuerySource {
        match self {
            Self::GetCredits => QuerySource::Fixed(Query::Credits),
            Self::GetApiKeyInfo => QuerySource::Fixed(Query::CurrentKey),
            Self::ListModels => QuerySource::Fixed(Query::Models),
            Self::ListApiKeys => QuerySource::Fixed(Query::Keys),
            Self::GetApiKey => QuerySource::FromArgument(Argument {
                name: "keyHash",
                description: "The key's hash, from list_api_keys.",
                query: Query::Key,
            }),
            Self::GetGeneration => QuerySource::FromArgument(Argument {
                name: "generationId",
                description: "The id that came with the answer, such as gen-1234567890.",
                query: Query::Generation,
            }),
        }
    }

    /// Returns its MCP definition.
    #[must_use]
    pub fn definition(self) -> Tool {
        let (properties, required) = match self.query_source() {
            QuerySource::Fixed(_) => (json!({}), json!([])),
            QuerySource::FromArgument(Argument { name, description, .. }) => {
                (json!({ name: Identifier::schema(description) }), json!([name]))
            }
        };
        let schema = JsonObject::from_iter([
            ("type".to_owned(), "object".into()),
            ("properties".to_owned(), properties),
            ("required".to_owned(), required),
            ("additionalProperties".to_owned(), false.into()),
        ]);
        let annotations =
            ToolAnnotations::new().read_only(true).destructive(false).idempotent(true);
        Tool::new(self.name(), self.description(), schema).with_annotations(annotations)
    }

    /// Returns its query for these arguments.
    ///
    /// # Errors
    /// When the arguments are invalid.
    pub fn query(self, arguments: &JsonObject) -> Result<Query, InvalidArguments> {
        let query_source = self.query_source();
        let known = match &query_source {
            QuerySource::Fixed(_) => None,
            QuerySource::FromArgument(argument) => Some(argument.name),
        };
        if arguments.keys().any(|name| Some(name.as_str()) != known) {
            return Err(InvalidArguments::Unknown(known));
        }
        match query_source {
            QuerySource::Fixed(query) => Ok(query),
            QuerySource::FromArgument(argument) => argument.read(arguments).map(argument.query),
        }
    }
}

/// The source of a query.
enum QuerySource {
    /// Always the same query.
    Fixed(Query),
    /// A query about the object that the argument identifies.
    FromArgument(Argument),
}

struct Argument {
    name: &'static str,
    description: &'static str,
    query: fn(Identifier) -> Query,
}

impl Argument {
    fn read(&self, arguments: &JsonObject) -> Result<Identifier, InvalidArguments> {
        let value = arguments.get(self.name).and_then(Value::as_str);
        let text = value.ok_or(InvalidArguments::Missing(self.name))?;
        Identifier::new(text)
            .map_err(|problem| InvalidArguments::Invalid { name: self.name, problem })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn query(tool: AccountTool, arguments: Value) -> Result<Query, String> {
        let Value::Object(arguments) = arguments else { panic!("not an object") };
        tool.query(&arguments).map_err(|error| error.to_string())
    }

    #[test]
    fn invalid_arguments_are_explained_to_the_model() {
        let hash = Identifier::new("abc").unwrap();
        assert_eq!(query(AccountTool::GetApiKey, json!({"keyHash": "abc"})), Ok(Query::Key(hash)));
        for (tool, arguments, expected) in [
            (AccountTool::GetCredits, json!({"a": 1}), "takes no arguments"),
            (AccountTool::GetApiKey, json!({}), "keyHash is missing"),
            (AccountTool::GetApiKey, json!({"keyHash": 7}), "not a string"),
            (AccountTool::GetApiKey, json!({"keyHash": "../credits"}), "must be 1 to 128"),
            (AccountTool::GetGeneration, json!({"id": "a"}), "generationId and no other argument"),
        ] {
            let problem = query(tool, arguments).unwrap_err();
            assert!(problem.contains(expected), "{tool:?}: {problem}");
        }
    }

    #[test]
    fn every_tool_is_found_by_name_and_read_only() {
        for tool in AccountTool::ALL {
            assert_eq!(AccountTool::from_name(tool.name()), Some(tool));
            let annotations = tool.definition().annotations.unwrap();
            assert_eq!(annotations.read_only_hint, Some(true), "{tool:?}");
        }
        assert_eq!(AccountTool::from_name("get_credit"), None);
    }
}
