//! Limits on the number of open streams.

use std::{collections::HashMap, sync::Arc};

use parking_lot::Mutex;

use crate::api::problem::Problem;

/// Largest number of streams.
const MAX_STREAMS: usize = 200;
/// Largest number of streams of one person.
const MAX_PER_PERSON: usize = 4;

/// The open streams. Clones share them.
#[derive(Debug, Clone, Default)]
pub(crate) struct StreamLimits(Arc<Mutex<HashMap<Arc<str>, usize>>>);

/// Permission for one open stream.
#[derive(Debug)]
pub(super) struct StreamPermit {
    limits: StreamLimits,
    person: Arc<str>,
}

impl StreamLimits {
    /// Returns the permission for a stream of a person.
    pub(super) fn admit(&self, person: &Arc<str>) -> Result<StreamPermit, Problem> {
        let mut open = self.0.lock();
        if open.values().sum::<usize>() >= MAX_STREAMS {
            return Err(Problem::overloaded("too many streams are open; try again later"));
        }
        let own = open.entry(person.clone()).or_default();
        if *own >= MAX_PER_PERSON {
            let detail = format!("{MAX_PER_PERSON} streams of this person are open; close one");
            return Err(Problem::rate_limited(detail));
        }
        *own += 1;
        Ok(StreamPermit { limits: self.clone(), person: person.clone() })
    }
}

impl Drop for StreamPermit {
    fn drop(&mut self) {
        let mut open = self.limits.0.lock();
        if let Some(own) = open.get_mut(&self.person) {
            *own -= 1;
            if *own == 0 {
                open.remove(&self.person);
            }
        }
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
        assert!(limits.0.lock().is_empty());
    }
}
