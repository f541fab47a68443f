//! The tasks of a remote agent that wait or run in this process.

use std::{collections::HashMap, sync::Arc};

use rockbot_contracts::AgentName;

use super::change::Change;

/// The tasks that wait or run, by their ids.
#[derive(Debug, Default)]
pub(super) struct Running(HashMap<String, Task>);

#[derive(Debug)]
struct Task {
    change: Arc<Change>,
    /// `None` until the record of a continued task was read.
    caller: Option<AgentName>,
}

impl Running {
    /// Returns the signal for changes of a task.
    pub(super) fn change(&self, id: &str) -> Option<&Change> {
        self.0.get(id).map(|task| &*task.change)
    }

    /// Adds a task, and returns the signal for its changes.
    pub(super) fn insert(&mut self, id: &str, caller: Option<&AgentName>) -> Arc<Change> {
        let change = Arc::new(Change::default());
        self.0.insert(id.to_owned(), Task { change: change.clone(), caller: caller.cloned() });
        change
    }

    /// Sets the caller of a task that has none.
    pub(super) fn set_caller(&mut self, id: &str, caller: &AgentName) {
        if let Some(task) = self.0.get_mut(id) {
            task.caller.get_or_insert_with(|| caller.clone());
        }
    }

    pub(super) fn remove(&mut self, id: &str) {
        self.0.remove(id);
    }

    pub(super) fn len(&self) -> usize {
        self.0.len()
    }

    /// Returns the number of tasks of a caller.
    pub(super) fn len_of(&self, caller: &AgentName) -> usize {
        self.0.values().filter(|task| task.caller.as_ref() == Some(caller)).count()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tasks_are_counted_by_caller() {
        let (a, b) = (AgentName::new("a").unwrap(), AgentName::new("b").unwrap());
        let mut running = Running::default();
        running.insert("1", Some(&a));
        running.insert("2", None);
        assert_eq!((running.len(), running.len_of(&a), running.len_of(&b)), (2, 1, 0));
        running.set_caller("2", &b);
        running.set_caller("1", &b);
        assert_eq!((running.len_of(&a), running.len_of(&b)), (1, 1));
        running.remove("1");
        assert!(running.change("1").is_none() && running.change("2").is_some());
        assert_eq!((running.len(), running.len_of(&a)), (1, 0));
    }
}
