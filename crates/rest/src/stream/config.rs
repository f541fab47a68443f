//! Format of a stream.

use serde::Deserialize;

/// Format of a stream, and which of its messages matter.
///
/// A field is the name of a member, or a JSON pointer if it begins with a slash.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct StreamConfig {
    /// Separation of messages.
    pub(crate) mode: StreamMode,
    /// In `json-stream`: prefix of the lines that are messages. Other lines are ignored.
    pub(crate) line_prefix: Option<String>,
    /// Field with the kind of a message.
    pub(crate) discriminator_field: Option<String>,
    /// Value of that field in the last message, or the whole text of the last message.
    pub(crate) done_value: Option<String>,
    /// Field of the last message that is the result. Default: the tokens.
    pub(crate) answer_field: Option<String>,
    /// Value of the discriminator in messages with a token. Default: any.
    pub(crate) token_value: Option<String>,
    /// Field with a part of the text. Without it, the messages themselves are the result.
    pub(crate) token_field: Option<String>,
}

/// Separations of messages.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum StreamMode {
    /// One message on each line that has the prefix.
    #[default]
    JsonStream,
    /// Server-sent events.
    Sse,
    /// One message on each line.
    Ndjson,
}
