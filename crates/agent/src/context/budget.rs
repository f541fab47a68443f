//! How much of each part a model is found.

use super::ContextPart;

/// What stands at the end of a part that was cut.
const CUT: &str = "\n[… left out for room]";

/// Most bytes of each part. With a known context window, the profile takes at most half of it, and no
/// other part more than an eighth, except for the rules: all of them hold, whatever the model.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ContextBudget {
    /// The definition's prompt and the profile's documents. Default 64 KiB.
    pub profile: usize,
    /// Date and time zone. Default 512 bytes.
    pub clock: usize,
    /// Rules. Default 8 KiB.
    pub rules: usize,
    /// Additions for the model. Default 16 KiB.
    pub model: usize,
    /// Memories. Default 4 KiB.
    pub memories: usize,
    /// Skills. Default 4 KiB.
    pub skills: usize,
    /// Services that may help. Default 2 KiB.
    pub services: usize,
    /// What is in working memory. Default 4 KiB.
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
            services: 2 * KIB,
            working_memory: 4 * KIB,
        }
    }
}

impl ContextBudget {
    /// The bytes of a part, for a model with a window of so many tokens.
    #[must_use]
    pub fn max_bytes(&self, part: ContextPart, window: Option<u32>) -> usize {
        let own = match part {
            ContextPart::Profile => self.profile,
            ContextPart::Clock => self.clock,
            ContextPart::Rules => self.rules,
            ContextPart::Model => self.model,
            ContextPart::Memories => self.memories,
            ContextPart::Skills => self.skills,
            ContextPart::Services => self.services,
            ContextPart::WorkingMemory => self.working_memory,
        };
        let share = match part {
            ContextPart::Rules => return own,
            ContextPart::Profile => 2,
            _ => 8,
        };
        // About four bytes a token.
        let most = window.map_or(usize::MAX, |tokens| tokens as usize / share * 4);
        own.min(most)
    }
}

/// Keeps a text truncate so many bytes: cut at a line where there is one near, and saying so. Whether
/// it had to be cut.
pub(super) fn truncate(text: &mut String, bytes: usize) -> bool {
    if text.len() <= bytes {
        return false;
    }
    let end = text.floor_char_boundary(bytes.saturating_sub(CUT.len()));
    let line = text[..end].rfind('\n').filter(|line| *line > end / 2);
    text.truncate(line.unwrap_or(end));
    text.push_str(CUT);
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_small_window_leaves_room_for_the_conversation() {
        let budget = ContextBudget::default();
        assert_eq!(budget.max_bytes(ContextPart::Profile, None), 64 * 1024);
        assert_eq!(budget.max_bytes(ContextPart::Profile, Some(16_000)), 32_000);
        assert_eq!(budget.max_bytes(ContextPart::Model, Some(8_000)), 4_000);
        assert_eq!(
            budget.max_bytes(ContextPart::Rules, Some(8_000)),
            8 * 1024,
            "rules hold always"
        );
        assert_eq!(budget.max_bytes(ContextPart::Clock, Some(16_000)), 512);
    }

    #[test]
    fn a_part_is_cut_at_a_line_and_says_so() {
        let mut text =
            "first line\nsecond line\nthird line that is longer than the others".to_owned();
        truncate(&mut text, 50);
        assert_eq!(text, "first line\nsecond line\n[… left out for room]");
        let mut whole = "ü".repeat(10);
        truncate(&mut whole, 20);
        assert_eq!(whole, "ü".repeat(10));
        let mut unbroken = "ü".repeat(100);
        truncate(&mut unbroken, 101);
        assert!(unbroken.len() <= 101 && unbroken.ends_with(CUT), "{unbroken}");
    }
}
