//! Tool calls in the text of a conversation, for models and servers without native calls.
//!
//! - [`prompt`](self::prompt): a request without tools, which describes them in its texts;
//! - [`answer`](self::answer): the calls in a streamed answer, found by [`scanner`](self::scanner);
//! - [`format`](self::format): the format in which a model is asked to call; answers may use any known one.

mod answer;
mod block_end;
mod candidate;
mod format;
mod json_call;
mod marker_call;
mod prompt;
mod scanner;
mod syntax;
mod tool_set;
mod xml_call;

pub(crate) use self::{answer::read_calls, format::TextCallFormat, prompt::describe_tools};
pub(crate) use tool_set::ToolSet;
