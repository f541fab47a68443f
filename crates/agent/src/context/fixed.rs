//! Parts that are the same in every turn.

use futures_util::future::{BoxFuture, ready};

use super::{ContextPart, ContextSource, Moment};

/// Always says the same.
#[derive(Debug)]
pub(crate) struct Fixed {
    part: ContextPart,
    text: String,
}

impl Fixed {
    pub(crate) fn new(part: ContextPart, text: impl Into<String>) -> Self {
        Self { part, text: text.into() }
    }
}

impl ContextSource for Fixed {
    fn part(&self) -> ContextPart {
        self.part
    }

    fn text<'a>(&'a self, _: Moment<'a>) -> BoxFuture<'a, Option<String>> {
        Box::pin(ready(Some(self.text.clone())))
    }
}
