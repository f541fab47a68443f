//! Parts that are the same in every turn.

use futures_util::future::{BoxFuture, ready};

use super::{ContextPart, ContextRequest, ContextSource};

/// A constant text.
#[derive(Debug)]
pub(crate) struct StaticText {
    part: ContextPart,
    text: String,
}

impl StaticText {
    pub(crate) fn new(part: ContextPart, text: impl Into<String>) -> Self {
        Self { part, text: text.into() }
    }
}

impl ContextSource for StaticText {
    fn part(&self) -> ContextPart {
        self.part
    }

    fn text<'a>(&'a self, _: ContextRequest<'a>) -> BoxFuture<'a, Option<String>> {
        Box::pin(ready(Some(self.text.clone())))
    }
}

/// The system prompt of the agent, unless the turn has another one.
#[derive(Debug)]
pub(crate) struct SystemPrompt(String);

impl SystemPrompt {
    pub(crate) fn new(text: impl Into<String>) -> Self {
        Self(text.into())
    }
}

impl ContextSource for SystemPrompt {
    fn part(&self) -> ContextPart {
        ContextPart::Profile
    }

    fn text<'a>(&'a self, request: ContextRequest<'a>) -> BoxFuture<'a, Option<String>> {
        Box::pin(ready(Some(request.prompt.unwrap_or(&self.0).to_owned())))
    }
}
