//! Ends of the calls of a step.

use std::collections::BTreeSet;

/// Ends of the calls of a step, by position.
#[derive(Debug, Default)]
pub(super) struct EndedCalls {
    /// Those with a result.
    pub(super) succeeded: BTreeSet<usize>,
    /// Those that failed. The others were not made.
    pub(super) failed: BTreeSet<usize>,
}
