//! Redaction of what leaves a call.

use std::sync::Arc;

use parking_lot::Mutex;
use rockbot_contracts::outside_text;
use rockbot_tools::{ContentBlock, ToolFailure, ToolResult};

use super::tokens::Token;
use crate::secrets::Secrets;

/// The secrets of one call: those of its tool, and the access tokens that its requests carried.
pub(super) struct Redaction<'a> {
    configured: &'a Secrets,
    tokens: Mutex<Vec<Arc<Token>>>,
}

impl<'a> Redaction<'a> {
    pub(super) fn new(configured: &'a Secrets) -> Self {
        Self { configured, tokens: Mutex::default() }
    }

    /// Adds the token of a request.
    pub(super) fn add(&self, token: &Arc<Token>) {
        let mut tokens = self.tokens.lock();
        if !tokens.iter().any(|known| Arc::ptr_eq(known, token)) {
            tokens.push(token.clone());
        }
    }

    /// Returns the tokens so far.
    pub(super) fn tokens(&self) -> Vec<Arc<Token>> {
        self.tokens.lock().clone()
    }

    /// Returns a result for a model: without hidden text first, which could separate the parts of a
    /// secret.
    pub(super) fn result(&self, result: ToolResult) -> ToolResult {
        let result = self.configured.redact_result(result.without_hidden_text());
        self.tokens().iter().fold(result, |result, token| token.secrets.redact_result(result))
    }

    /// Returns a failure for a model, as [`result`](Self::result) does.
    pub(super) fn failure(&self, failure: ToolFailure) -> ToolFailure {
        let failure = self.configured.redact_failure(failure.without_hidden_text());
        self.tokens().iter().fold(failure, |failure, token| token.secrets.redact_failure(failure))
    }

    /// Removes the beginning of a secret from the end of the first text of a result that was cut there.
    pub(super) fn trim_cut(&self, result: &mut ToolResult) {
        let Some(ContentBlock::Text { text }) = result.content.first_mut() else { return };
        let mut visible = outside_text::stripped(text).into_owned();
        let tokens = self.tokens();
        let secrets = tokens.iter().map(|token| &token.secrets).chain([self.configured]);
        let length = secrets.map(|secrets| secrets.without_beginning(&visible).len()).min();
        visible.truncate(length.unwrap_or(visible.len()));
        *text = visible;
    }
}
