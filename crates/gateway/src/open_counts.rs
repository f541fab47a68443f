//! Numbers of open responses, for their limits.

use std::{collections::HashMap, sync::Arc};

use parking_lot::Mutex;

/// The number of open responses of each subject. Permits share it.
#[derive(Debug, Clone, Default)]
pub(crate) struct OpenCounts(Arc<Mutex<HashMap<Arc<str>, usize>>>);

/// Counts one open response until it is dropped.
#[derive(Debug)]
pub(crate) struct OpenPermit {
    counts: OpenCounts,
    subject: Arc<str>,
}

/// The limit that is reached.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum LimitReached {
    /// That of all subjects.
    Total,
    /// That of the subject.
    Subject,
}

impl OpenCounts {
    /// Counts a response of a subject, unless it has `max_own` open ones, or all together have `max_total`.
    pub(crate) fn admit(
        &self,
        subject: &Arc<str>,
        max_own: usize,
        max_total: usize,
    ) -> Result<OpenPermit, LimitReached> {
        let mut open = self.0.lock();
        if open.values().sum::<usize>() >= max_total {
            return Err(LimitReached::Total);
        }
        let own = open.entry(subject.clone()).or_default();
        if *own >= max_own {
            return Err(LimitReached::Subject);
        }
        *own += 1;
        Ok(OpenPermit { counts: self.clone(), subject: subject.clone() })
    }
}

#[cfg(test)]
impl OpenCounts {
    /// Returns whether no response is open.
    pub(crate) fn is_empty(&self) -> bool {
        self.0.lock().is_empty()
    }
}

impl Drop for OpenPermit {
    fn drop(&mut self) {
        let mut open = self.counts.0.lock();
        if let Some(own) = open.get_mut(&self.subject) {
            *own -= 1;
            if *own == 0 {
                open.remove(&self.subject);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn permits_are_limited_for_each_subject_and_in_total() {
        let counts = OpenCounts::default();
        let admit = |subject: &str| counts.admit(&Arc::from(subject), 2, 3);
        let first = admit("a").unwrap();
        let _others = [admit("a").unwrap(), admit("b").unwrap()];
        assert_eq!(admit("b").unwrap_err(), LimitReached::Total);
        drop(first);
        let again = admit("a").unwrap();
        assert_eq!(admit("c").unwrap_err(), LimitReached::Total);
        drop(again);
        let _b = admit("b").unwrap();
        assert_eq!(counts.admit(&Arc::from("b"), 2, 4).unwrap_err(), LimitReached::Subject);
    }
}
