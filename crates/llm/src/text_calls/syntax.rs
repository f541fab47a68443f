//! The marks of calls in texts.

use super::{
    json_call::{ParsedCall, marked_calls},
    marker_call::{MISTRAL_MARK, deepseek_calls, mistral_calls},
    tool_set::ToolSet,
    xml_call::{function_calls, invoke_calls, key_value_call},
};

/// The marks of a block of calls.
#[derive(Debug)]
pub(super) struct Syntax {
    pub(super) open: &'static str,
    /// Any of them ends the block, as does the end of the answer.
    pub(super) close: &'static [&'static str],
    /// The opening mark is part of the content.
    keeps_open: bool,
    parse: fn(&str, &ToolSet) -> Vec<ParsedCall>,
}

/// All blocks of calls.
pub(super) static SYNTAXES: [Syntax; 7] = [
    Syntax::new("<tool_call>", &["</tool_call>"], tagged_calls),
    Syntax::new("<function=", &["</function>"], function_calls).keeping_open(),
    Syntax::new("<function_calls>", &["</function_calls>"], invoke_calls),
    Syntax::new("<invoke name=", &["</invoke>"], invoke_calls).keeping_open(),
    Syntax::new("<|python_tag|>", &["<|eom_id|>", "<|eot_id|>"], |text, _| marked_calls(text)),
    Syntax::new(MISTRAL_MARK, &["</s>"], |text, _| mistral_calls(text)),
    Syntax::new("<｜tool▁calls▁begin｜>", &["<｜tool▁calls▁end｜>"], |text, _| {
        deepseek_calls(text)
    }),
];

/// Marks of results. A model that writes one after a call invents the result.
pub(super) const RESULT_MARKS: [&str; 3] =
    ["<tool_response", "[TOOL_RESULTS]", "<｜tool▁outputs▁begin｜>"];

impl Syntax {
    const fn new(
        open: &'static str,
        close: &'static [&'static str],
        parse: fn(&str, &ToolSet) -> Vec<ParsedCall>,
    ) -> Self {
        Self { open, close, keeps_open: false, parse }
    }

    const fn keeping_open(mut self) -> Self {
        self.keeps_open = true;
        self
    }

    /// Returns the calls of a block, given the text between its marks.
    pub(super) fn calls(&self, content: &str, tools: &ToolSet) -> Vec<ParsedCall> {
        if self.keeps_open {
            (self.parse)(&format!("{}{content}", self.open), tools)
        } else {
            (self.parse)(content, tools)
        }
    }
}

/// Returns the calls of a `<tool_call>`: JSON in most models, XML-like tags in some.
fn tagged_calls(text: &str, tools: &ToolSet) -> Vec<ParsedCall> {
    let text = text.trim();
    if text.starts_with(['{', '[']) {
        marked_calls(text)
    } else if text.contains("<function=") {
        function_calls(text, tools)
    } else if text.contains("<arg_key>") {
        key_value_call(text, tools).into_iter().collect()
    } else if text.contains('{') {
        mistral_calls(text)
    } else {
        // A name alone calls a tool without arguments.
        ParsedCall::new(text, "{}".to_owned())
            .filter(|call| tools.contains(&call.name))
            .into_iter()
            .collect()
    }
}
