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
