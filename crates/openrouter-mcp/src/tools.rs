//! The tools, and what each asks OpenRouter.

use rmcp::model::{JsonObject, Tool, ToolAnnotations};
use serde_json::{Value, json};

use crate::question::{Identifier, InvalidIdentifier, Question};

/// A tool. None of them changes anything.
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

/// Arguments that do not fit a tool. The words are for the model.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum InvalidArguments {
    /// An argument that the tool needs.
    #[error("the argument {0} is missing, or is not a text")]
    Missing(&'static str),
    /// An argument with a value that can't be.
    #[error("the argument {name}: {problem}")]
    Invalid {
        /// Its name.
        name: &'static str,
        /// What is wrong.
        problem: InvalidIdentifier,
    },
    /// An argument that the tool does not know.
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

    /// The tool with this name.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|tool| tool.name() == name)
    }

    /// Its name.
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
                "Every model on OpenRouter with its context length, prices and abilities. The \
                 answer is long."
            }
            Self::ListApiKeys => {
                "The account's API keys: name, hash, limit and usage of each, never the key itself."
            }
            Self::GetApiKey => "Name, limit and usage of one of the account's API keys.",
            Self::GetGeneration => "Model, tokens, cost and timing of one generation.",
        }
    }

    fn asks(self) -> Asks {
        match self {
            Self::GetCredits => Asks::This(Question::Credits),
            Self::GetApiKeyInfo => Asks::This(Question::CurrentKey),
            Self::ListModels => Asks::This(Question::Models),
            Self::ListApiKeys => Asks::This(Question::Keys),
            Self::GetApiKey => Asks::About(Argument {
                name: "keyHash",
                description: "The key's hash, from list_api_keys.",
                question: Question::Key,
            }),
            Self::GetGeneration => Asks::About(Argument {
                name: "generationId",
                description: "The id that came with the answer, such as gen-1234567890.",
                question: Question::Generation,
            }),
        }
    }

    /// How it is listed.
    #[must_use]
    pub fn definition(self) -> Tool {
        let (properties, required) = match self.asks() {
            Asks::This(_) => (json!({}), json!([])),
            Asks::About(Argument { name, description, .. }) => {
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

    /// What it asks, with these arguments.
    ///
    /// # Errors
    /// When they do not fit.
    pub fn question(self, arguments: &JsonObject) -> Result<Question, InvalidArguments> {
        let asks = self.asks();
        let known = match &asks {
            Asks::This(_) => None,
            Asks::About(argument) => Some(argument.name),
        };
        if arguments.keys().any(|name| Some(name.as_str()) != known) {
            return Err(InvalidArguments::Unknown(known));
        }
        match asks {
            Asks::This(question) => Ok(question),
            Asks::About(argument) => argument.read(arguments).map(argument.question),
        }
    }
}

/// What a tool asks OpenRouter.
enum Asks {
    /// Always the same.
    This(Question),
    /// About the thing that its argument names.
    About(Argument),
}

struct Argument {
    name: &'static str,
    description: &'static str,
    question: fn(Identifier) -> Question,
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

    fn question(tool: AccountTool, arguments: Value) -> Result<Question, String> {
        let Value::Object(arguments) = arguments else { panic!("not an object") };
        tool.question(&arguments).map_err(|error| error.to_string())
    }

    #[test]
    fn arguments_fit_or_the_model_learns_why_not() {
        let hash = Identifier::new("abc").unwrap();
        assert_eq!(
            question(AccountTool::GetApiKey, json!({"keyHash": "abc"})),
            Ok(Question::Key(hash))
        );
        for (tool, arguments, expected) in [
            (AccountTool::GetCredits, json!({"a": 1}), "takes no arguments"),
            (AccountTool::GetApiKey, json!({}), "keyHash is missing"),
            (AccountTool::GetApiKey, json!({"keyHash": 7}), "is not a text"),
            (AccountTool::GetApiKey, json!({"keyHash": "../credits"}), "must be 1 to 128"),
            (AccountTool::GetGeneration, json!({"id": "a"}), "generationId and no other argument"),
        ] {
            let problem = question(tool, arguments).unwrap_err();
            assert!(problem.contains(expected), "{tool:?}: {problem}");
        }
    }

    #[test]
    fn every_tool_is_found_by_its_name_and_changes_nothing() {
        for tool in AccountTool::ALL {
            assert_eq!(AccountTool::named(tool.name()), Some(tool));
            let annotations = tool.definition().annotations.unwrap();
            assert_eq!(annotations.read_only_hint, Some(true), "{tool:?}");
        }
        assert_eq!(AccountTool::named("get_credit"), None);
    }
}
