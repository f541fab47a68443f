//! Reports that wait to be shown.

use std::collections::HashMap;

use parking_lot::Mutex;
use rockbot_contracts::TaskId;

/// Reports that wait for the next interval. A task with an entry had a report in the current one.
#[derive(Debug, Default)]
pub(super) struct Reports(Mutex<HashMap<TaskId, Option<String>>>);

impl Reports {
    /// Adds a report. Returns `true` if none of the task is waiting, and none was just sent.
    pub(super) fn add(&self, task: &TaskId, text: String) -> bool {
        let mut reports = self.0.lock();
        let is_first = !reports.contains_key(task);
        reports.insert(task.clone(), Some(text));
        is_first
    }

    /// Takes the report to be sent; `None` ends the interval.
    pub(super) fn take(&self, task: &TaskId) -> Option<String> {
        let mut reports = self.0.lock();
        let text = reports.get_mut(task).and_then(Option::take);
        if text.is_none() {
            reports.remove(task);
        }
        text
    }
}
