//! Ownership of a script's pod.

use std::sync::atomic::{AtomicBool, Ordering};

use k8s_openapi::api::core::v1::Pod;
use parking_lot::Mutex;
use rockbot_contracts::Executed;
use tracing::info;

use crate::deletions::{DeletionQueue, PodDeletion};

/// The pod of a run, with the execution state of its script. Deletes the pod when dropped, unless the
/// manager is detaching from running scripts.
pub(crate) struct PodGuard<'a> {
    deletions: &'a DeletionQueue,
    is_detaching: &'a AtomicBool,
    state: Mutex<GuardState>,
}

struct GuardState {
    pod: PodDeletion,
    executed: Executed,
    /// Set while the pod may exist.
    exists: bool,
    finished: bool,
}

impl<'a> PodGuard<'a> {
    pub(crate) fn new(
        deletions: &'a DeletionQueue,
        is_detaching: &'a AtomicBool,
        pod: &Pod,
    ) -> Self {
        let name = pod.metadata.name.clone().unwrap_or_default();
        let pod = PodDeletion { name, uid: None, forced: false };
        let state = GuardState { pod, executed: Executed::No, exists: false, finished: false };
        Self { deletions, is_detaching, state: Mutex::new(state) }
    }

    /// Records that the pod was requested, so that it may exist.
    pub(crate) fn mark_requested(&self) {
        let mut state = self.state.lock();
        state.exists = true;
        state.executed = Executed::Unknown;
    }

    /// Records that the pod does not exist or belongs to another script.
    pub(crate) fn mark_absent(&self) {
        let mut state = self.state.lock();
        state.exists = false;
        state.executed = Executed::No;
    }

    /// Records that the pod exists.
    pub(crate) fn mark_created(&self, pod: &Pod) {
        let mut state = self.state.lock();
        state.exists = true;
        state.pod.uid = pod.metadata.uid.clone();
    }

    /// Records whether the script ran.
    pub(crate) fn set_executed(&self, executed: Executed) {
        self.state.lock().executed = executed;
    }

    /// Returns whether the script ran, as far as known.
    pub(crate) fn executed(&self) -> Executed {
        self.state.lock().executed
    }

    /// Records that the run is over: its pod is deleted even while the manager detaches.
    pub(crate) fn mark_finished(&self) {
        self.state.lock().finished = true;
    }
}

impl Drop for PodGuard<'_> {
    fn drop(&mut self) {
        let GuardState { pod, exists, finished, .. } = &*self.state.lock();
        if *exists && (*finished || !self.is_detaching.load(Ordering::Relaxed)) {
            self.deletions.enqueue(pod.clone());
        } else if *exists {
            info!(pod = pod.name, "script left running for the next manager");
        }
    }
}
