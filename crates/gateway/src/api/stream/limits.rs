//! Limits on the number of open streams.

use std::sync::Arc;

use crate::{
    api::problem::Problem,
    open_counts::{LimitReached, OpenCounts, OpenPermit},
};

/// Largest number of streams.
const MAX_STREAMS: usize = 200;
/// Largest number of streams of one person.
const MAX_PER_PERSON: usize = 4;

/// The open streams.
#[derive(Debug, Default)]
pub(crate) struct StreamLimits(OpenCounts);

impl StreamLimits {
    /// Returns the permit for a stream of a person.
    pub(super) fn admit(&self, person: &Arc<str>) -> Result<OpenPermit, Problem> {
        self.0.admit(person, MAX_PER_PERSON, MAX_STREAMS).map_err(|reached| match reached {
            LimitReached::Total => {
                Problem::overloaded("too many streams are open; try again later")
            }
            LimitReached::Subject => {
                let detail = format!("{MAX_PER_PERSON} streams of this person are open; close one");
                Problem::rate_limited(detail)
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn streams_are_limited_per_person_and_in_all() {
        let limits = StreamLimits::default();
        let admit = |person: &str| limits.admit(&person.into());
        let own: Vec<_> = (0..MAX_PER_PERSON).map(|_| admit("ada").unwrap()).collect();
        assert!(admit("ada").is_err());
        let others: Vec<_> =
            (MAX_PER_PERSON..MAX_STREAMS).map(|n| admit(&format!("p{n}")).unwrap()).collect();
        assert!(admit("bob").is_err());
        drop(own);
        drop(others);
        assert!(limits.0.is_empty());
    }
}
