//! Context windows with little space for the conversation.

use std::fmt;

/// A context window of which less than a quarter is left for the conversation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct NarrowWindow {
    /// Tokens of the window.
    window: usize,
    /// Tokens of the instructions and tools; an estimate.
    fixed: usize,
    /// Tokens reserved for the answer.
    answer: usize,
}

impl NarrowWindow {
    /// Returns a description of a window if less than a quarter of it is left.
    pub(super) fn detect(window: usize, fixed: usize, answer: usize) -> Option<Self> {
        let narrow = Self { window, fixed, answer };
        (narrow.left() < window / 4).then_some(narrow)
    }

    /// Returns the tokens that are left for the conversation.
    fn left(self) -> usize {
        self.window.saturating_sub(self.fixed + self.answer)
    }
}

impl fmt::Display for NarrowWindow {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { window, fixed, answer } = self;
        let left = self.left();
        write!(
            f,
            "the context window is small: of {window} tokens, instructions and tools take about {fixed}, the \
             answer up to {answer}, and {left} are left for the conversation; shorten the prompt and the \
             documents, deny tools, or set context_window of [models] if the model has a larger one"
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn window_is_narrow_below_a_quarter_for_the_conversation() {
        assert_eq!(NarrowWindow::detect(16_000, 8000, 4000), None);
        let narrow = NarrowWindow::detect(16_000, 8001, 4000).unwrap();
        assert_eq!(narrow.left(), 3999);
        assert_eq!(NarrowWindow::detect(4096, 90_000, 1024).unwrap().left(), 0);
        assert!(narrow.to_string().contains("of 16000 tokens"), "{narrow}");
    }
}
