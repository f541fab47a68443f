//! Budgets of the parts of the context.

use super::ContextPart;

/// Ends a truncated part.
const TRUNCATED: &str = "\n[… truncated]";

/// Maximum bytes of each part. With a known context window, the profile is limited to half of it and every
/// other part to an eighth. Rules are exempt: they apply with every model.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ContextBudget {
    /// The definition's prompt and its documents. Default 64 KiB.
    pub profile: usize,
    /// Date and time zone. Default 512 bytes.
    pub clock: usize,
    /// Rules. Default 8 KiB.
    pub rules: usize,
    /// Instructions for the model. Default 16 KiB.
    pub model: usize,
    /// Memories. Default 4 KiB.
    pub memories: usize,
    /// Skills. Default 4 KiB.
    pub skills: usize,
    /// Results of scheduled tasks. Default 4 KiB.
    pub scheduled_results: usize,
    /// Instructions of tool handlers and MCP servers. Default 8 KiB.
    pub instructions: usize,
    /// Services that may help. Default 2 KiB.
    pub services: usize,
    /// Keys in working memory. Default 4 KiB.
    pub working_memory: usize,
}

impl Default for ContextBudget {
    fn default() -> Self {
        const KIB: usize = 1024;
        Self {
            profile: 64 * KIB,
            clock: 512,
            rules: 8 * KIB,
            model: 16 * KIB,
            memories: 4 * KIB,
            skills: 4 * KIB,
            scheduled_results: 4 * KIB,
            instructions: 8 * KIB,
            services: 2 * KIB,
            working_memory: 4 * KIB,
        }
    }
}

impl ContextBudget {
    /// Returns the budget of a part, for a model with a context window of `window` tokens.
    #[must_use]
    pub fn max_bytes(&self, part: ContextPart, window: Option<u32>) -> usize {
        let own = match part {
            ContextPart::Profile => self.profile,
            ContextPart::Clock => self.clock,
            ContextPart::Rules => self.rules,
            ContextPart::Model => self.model,
            ContextPart::Memories => self.memories,
            ContextPart::Skills => self.skills,
            ContextPart::ScheduledResults => self.scheduled_results,
            ContextPart::Instructions => self.instructions,
            ContextPart::Services => self.services,
            ContextPart::WorkingMemory => self.working_memory,
        };
        let share = match part {
            ContextPart::Rules => return own,
            ContextPart::Profile => 2,
            _ => 8,
        };
        // About four bytes per token.
        let most = window.map_or(usize::MAX, |tokens| tokens as usize / share * 4);
        own.min(most)
    }
}

/// Truncates a text to `bytes`, preferably at a line break, and appends a note. Returns `true` if the text
/// was truncated.
pub(super) fn truncate(text: &mut String, bytes: usize) -> bool {
    if text.len() <= bytes {
        return false;
    }
    let end = text.floor_char_boundary(bytes.saturating_sub(TRUNCATED.len()));
    let line = text[..end].rfind('\n').filter(|line| *line > end / 2);
    text.truncate(line.unwrap_or(end));
    text.push_str(TRUNCATED);
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn small_window_limits_every_part_but_rules() {
        let budget = ContextBudget::default();
        assert_eq!(budget.max_bytes(ContextPart::Profile, None), 64 * 1024);
        assert_eq!(budget.max_bytes(ContextPart::Profile, Some(16_000)), 32_000);
        assert_eq!(budget.max_bytes(ContextPart::Model, Some(8_000)), 4_000);
        assert_eq!(
            budget.max_bytes(ContextPart::Rules, Some(8_000)),
            8 * 1024,
            "rules always apply"
        );
        assert_eq!(budget.max_bytes(ContextPart::Clock, Some(16_000)), 512);
    }

    #[test]
    fn part_is_truncated_at_a_line_with_a_note() {
        let mut text =
            "first line\nsecond line\nthird line that is longer than the others".to_owned();
        truncate(&mut text, 50);
        assert_eq!(text, "first line\nsecond line\n[… truncated]");
        let mut whole = "ü".repeat(10);
        truncate(&mut whole, 20);
        assert_eq!(whole, "ü".repeat(10));
        let mut unbroken = "ü".repeat(100);
        truncate(&mut unbroken, 101);
        assert!(unbroken.len() <= 101 && unbroken.ends_with(TRUNCATED), "{unbroken}");
    }
}
