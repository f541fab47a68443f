//! Resources of a server that callers have read, and which of them have changed.

use std::{
    collections::{BTreeSet, VecDeque},
    time::Duration,
};

use parking_lot::Mutex;
use rockbot_contracts::mcp::McpResourcesChanged;
use tokio::{
    sync::Notify,
    time::{Instant, sleep_until},
};

/// The largest number of followed resources of a server. The oldest are dropped.
const MAX_FOLLOWED: usize = McpResourcesChanged::MAX_URIS;
/// Time between two reports of changes to callers. A server may send notifications without a pause.
const REPORT_INTERVAL: Duration = Duration::from_secs(1);

/// The followed resources of a session.
#[derive(Default)]
pub(crate) struct FollowedResources {
    state: Mutex<State>,
    following: Notify,
    changed: Notify,
}

#[derive(Default)]
struct State {
    /// Oldest first.
    followed: VecDeque<String>,
    changed: BTreeSet<String>,
    /// Time of the next report, after the first one.
    next_report: Option<Instant>,
}

/// The effect of following a resource.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Followed {
    /// It was followed already.
    Known,
    /// It is new; the oldest one is dropped for it when there were too many.
    Added { dropped: Option<String> },
}

impl FollowedResources {
    /// Follows a resource.
    pub(crate) fn follow(&self, uri: &str) -> Followed {
        let mut state = self.state.lock();
        if let Some(known) = state.followed.iter().position(|one| one == uri) {
            state.followed.remove(known);
            state.followed.push_back(uri.to_owned());
            return Followed::Known;
        }
        state.followed.push_back(uri.to_owned());
        let is_over = state.followed.len() > MAX_FOLLOWED;
        let dropped = if is_over { state.followed.pop_front() } else { None };
        drop(state);
        self.following.notify_one();
        Followed::Added { dropped }
    }

    /// Returns the followed resources.
    pub(crate) fn all(&self) -> Vec<String> {
        self.state.lock().followed.iter().cloned().collect()
    }

    /// Completes when another resource is followed.
    pub(crate) async fn following_changed(&self) {
        self.following.notified().await;
    }

    /// Records that the server reported a resource as changed, if it is followed.
    pub(crate) fn report(&self, uri: String) {
        let mut state = self.state.lock();
        if state.followed.contains(&uri) {
            state.changed.insert(uri);
            drop(state);
            self.changed.notify_one();
        }
    }

    /// Returns the resources that were reported since the last call of this function, once there are some, at
    /// most once in [`REPORT_INTERVAL`].
    ///
    /// # Cancellation
    /// Cancel-safe.
    pub(crate) async fn changed(&self) -> Vec<String> {
        loop {
            let (is_changed, next) = {
                let state = self.state.lock();
                (!state.changed.is_empty(), state.next_report)
            };
            if !is_changed {
                self.changed.notified().await;
                continue;
            }
            if let Some(next) = next {
                sleep_until(next).await;
            }
            let mut state = self.state.lock();
            state.next_report = Some(Instant::now() + REPORT_INTERVAL);
            return std::mem::take(&mut state.changed).into_iter().collect();
        }
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn followed_resources_are_bounded_and_reported_once() {
        let resources = FollowedResources::default();
        assert_eq!(resources.follow("a:first"), Followed::Added { dropped: None });
        assert_eq!(resources.follow("a:first"), Followed::Known);
        for at in 1..MAX_FOLLOWED {
            resources.follow(&format!("a:{at}"));
        }
        let dropped = Some("a:first".to_owned());
        assert_eq!(resources.follow("a:last"), Followed::Added { dropped });
        assert_eq!(resources.all().len(), MAX_FOLLOWED);
        for uri in ["a:first", "a:unknown", "a:last", "a:last", "a:1"] {
            resources.report(uri.to_owned());
        }
        assert_eq!(resources.changed().now_or_never().unwrap(), ["a:1", "a:last"]);
        assert_eq!(resources.changed().now_or_never(), None);
    }

    #[tokio::test(start_paused = true)]
    async fn changes_without_a_pause_are_reported_once_in_an_interval() {
        let resources = FollowedResources::default();
        resources.follow("a:1");
        resources.follow("a:2");
        resources.report("a:1".to_owned());
        assert_eq!(resources.changed().await, ["a:1"]);
        let since = Instant::now();
        for _ in 0..100 {
            resources.report("a:2".to_owned());
            assert_eq!(resources.changed().now_or_never(), None);
            resources.report("a:1".to_owned());
        }
        assert_eq!(resources.changed().await, ["a:1", "a:2"]);
        assert!(since.elapsed() >= REPORT_INTERVAL);
    }
}
