//! No secret gets to a model in the words of an error.

use std::{borrow::Cow, sync::Arc};

use rockbot_contracts::ContentBlock;

use super::{Call, CallService};
use crate::{failure::ToolFailure, redaction::Redactor, result::ToolResult};

/// Takes secrets out of failures, and out of results in which a tool says that it failed: such text
/// quotes requests, addresses and settings. It goes before the cut of a result, which would leave
/// half a secret that nobody recognises. What a tool returns when all is well is left as it is.
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
                result.content.iter_mut().for_each(|block| self.clean_block(block));
                Ok(result)
            }
            Ok(result) => Ok(result),
            Err(mut failure) => {
                if let Some(words) = failure.words_mut() {
                    self.clean(words);
                }
                Err(failure)
            }
        }
    }
}

impl<S> Redact<S> {
    fn clean_block(&self, block: &mut ContentBlock) {
        match block {
            ContentBlock::Text { text } => self.clean(text),
            ContentBlock::Resource { uri, text, .. } => {
                self.clean(uri);
                text.iter_mut().for_each(|text| self.clean(text));
            }
            ContentBlock::Image { .. } | ContentBlock::Audio { .. } => {}
        }
    }

    fn clean(&self, text: &mut String) {
        if let Cow::Owned(clean) = self.redactor.redact(text) {
            *text = clean;
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
    async fn failures_and_error_results_lose_their_secrets_and_good_results_nothing() {
        let failing = redacted(service(async |_| {
            Err(ToolFailure::failed_with_source(
                format!("refused {SECRET}"),
                format!("cause {SECRET}"),
            ))
        }));
        let failure = failing.call(call("fail", "{}")).await.unwrap_err();
        assert_eq!(failure.model_text(), "(tool failed: refused [secret])");
        let sad = redacted(service(async |_| Ok(ToolResult::error(format!("no {SECRET}")))));
        assert_eq!(sad.call(call("sad", "{}")).await.unwrap().to_text(), "no [secret]");
        let fine = redacted(service(async |_| Ok(ToolResult::text(SECRET))));
        assert_eq!(fine.call(call("fine", "{}")).await.unwrap().to_text(), SECRET);
    }

    #[tokio::test]
    async fn a_secret_that_the_cut_goes_through_is_gone_whole() {
        for before in 0..40 {
            let text = format!("{}{SECRET}{}", "x".repeat(before), "y".repeat(2000));
            let sad = service(move |_| {
                let text = text.clone();
                async { Ok(ToolResult::error(text)) }
            });
            let capped = SizeCap::new(100, None, redacted(sad));
            let result = capped.call(call("sad", "{}")).await.unwrap();
            assert!(!result.to_text().contains("hunt"), "{}", result.to_text());
        }
    }

    #[tokio::test]
    async fn a_secret_at_the_end_of_the_longest_message_is_gone_whole() {
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
