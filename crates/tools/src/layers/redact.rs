//! Redaction of secrets in errors.

use std::{borrow::Cow, sync::Arc};

use rockbot_contracts::ContentBlock;

use super::{Call, CallService};
use crate::{failure::ToolFailure, redaction::Redactor, result::ToolResult};

/// Removes secrets from failures, and from results that report an error: such text quotes requests,
/// addresses and settings. It runs before results are truncated, because half a secret cannot be
/// recognized. Successful results are unchanged.
#[derive(Debug, Clone)]
pub struct Redact<S> {
    redactor: Arc<Redactor>,
    inner: S,
}

impl<S> Redact<S> {
    pub(crate) fn new(redactor: Arc<Redactor>, inner: S) -> Self {
        Self { redactor, inner }
    }
}

impl<S: CallService<Call>> CallService<Call> for Redact<S> {
    async fn call(&self, call: Call) -> Result<ToolResult, ToolFailure> {
        match self.inner.call(call).await {
            Ok(mut result) if result.is_error => {
                result.content.iter_mut().for_each(|block| self.redact_block(block));
                Ok(result)
            }
            Ok(result) => Ok(result),
            Err(mut failure) => {
                if let Some(message) = failure.message_mut() {
                    self.redact(message);
                }
                Err(failure)
            }
        }
    }
}

impl<S> Redact<S> {
    fn redact_block(&self, block: &mut ContentBlock) {
        match block {
            ContentBlock::Text { text } => self.redact(text),
            ContentBlock::Resource { uri, text, .. } => {
                self.redact(uri);
                text.iter_mut().for_each(|text| self.redact(text));
            }
            ContentBlock::Image { .. } | ContentBlock::Audio { .. } => {}
        }
    }

    fn redact(&self, text: &mut String) {
        if let Cow::Owned(redacted) = self.redactor.redact(text) {
            *text = redacted;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        layers::SizeCap,
        testing::{call, service},
    };

    const SECRET: &str = "hunter2hunter2";

    fn redacted<S>(inner: S) -> Redact<S> {
        Redact::new(Redactor::with_secrets([SECRET.to_owned()]), inner)
    }

    #[tokio::test]
    async fn errors_are_redacted_and_successes_unchanged() {
        let failing = redacted(service(async |_| {
            Err(ToolFailure::failed_with_source(
                format!("refused {SECRET}"),
                format!("cause {SECRET}"),
            ))
        }));
        let failure = failing.call(call("fail", "{}")).await.unwrap_err();
        assert_eq!(failure.model_text(), "(tool failed: refused [secret])");
        let reporting = redacted(service(async |_| Ok(ToolResult::error(format!("no {SECRET}")))));
        assert_eq!(reporting.call(call("sad", "{}")).await.unwrap().to_text(), "no [secret]");
        let succeeding = redacted(service(async |_| Ok(ToolResult::text(SECRET))));
        assert_eq!(succeeding.call(call("fine", "{}")).await.unwrap().to_text(), SECRET);
    }

    #[tokio::test]
    async fn secret_at_truncation_is_removed() {
        for before in 0..40 {
            let text = format!("{}{SECRET}{}", "x".repeat(before), "y".repeat(2000));
            let reporting = service(move |_| {
                let text = text.clone();
                async { Ok(ToolResult::error(text)) }
            });
            let capped = SizeCap::new(100, None, redacted(reporting));
            let result = capped.call(call("sad", "{}")).await.unwrap();
            assert!(!result.to_text().contains("hunt"), "{}", result.to_text());
        }
    }

    #[tokio::test]
    async fn secret_at_end_of_longest_message_is_removed() {
        for before in 1980..2005 {
            let message = format!("{}{SECRET}", "x".repeat(before));
            let failing = redacted(service(move |_| {
                let message = message.clone();
                async { Err(ToolFailure::failed(message)) }
            }));
            let failure = failing.call(call("fail", "{}")).await.unwrap_err();
            assert!(!failure.model_text().contains("hunt"));
        }
    }
}
