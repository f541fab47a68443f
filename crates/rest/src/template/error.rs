//! Errors of templates.

/// A template that cannot be used. The message is for the operator.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub(crate) struct TemplateError(pub(crate) String);

impl TemplateError {
    pub(super) fn new(message: impl Into<String>) -> Self {
        Self(message.into())
    }
}
