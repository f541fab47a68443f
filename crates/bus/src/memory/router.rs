//! The queues of the in-memory bus and their bindings.

use std::{collections::HashMap, sync::Arc};

use rockbot_contracts::{BindingPattern, QueueKind, QueueName, QueueSpec, RoutingKey};

use super::queue::{Queue, QueueConsumer};

/// The exchange of the in-memory bus.
#[derive(Debug, Default)]
pub(super) struct Router {
    queues: HashMap<QueueName, Arc<Queue>>,
    /// Bindings without wildcards, which most messages match with one lookup.
    exact: HashMap<Box<str>, Vec<Arc<Queue>>>,
    patterns: Vec<(BindingPattern, Arc<Queue>)>,
}

impl Router {
    /// Returns the queues that are bound for `key`, each once.
    pub(super) fn route(&self, key: &RoutingKey) -> Vec<Arc<Queue>> {
        let mut queues = self.exact.get(key.as_str()).cloned().unwrap_or_default();
        for (pattern, queue) in &self.patterns {
            if pattern.matches(key) && !queues.iter().any(|known| Arc::ptr_eq(known, queue)) {
                queues.push(queue.clone());
            }
        }
        queues
    }

    pub(super) fn find(&self, name: &QueueName) -> Option<&Arc<Queue>> {
        self.queues.get(name)
    }

    /// Declares a queue: creates it if needed and adds the bindings. As at a broker, this fails when the
    /// queue exists with another kind or length limit.
    pub(super) fn declare(&mut self, spec: &QueueSpec) -> Result<Arc<Queue>, String> {
        let queue = match self.queues.get(&spec.name) {
            Some(queue) => {
                queue.check_same(spec)?;
                queue.clone()
            }
            None => self.create(spec),
        };
        for pattern in &spec.bindings {
            self.bind(pattern, &queue);
        }
        Ok(queue)
    }

    fn create(&mut self, spec: &QueueSpec) -> Arc<Queue> {
        let dead_letters = (spec.kind == QueueKind::Work).then(|| {
            let spec = spec.dead_letters();
            self.queues
                .entry(spec.name.clone())
                .or_insert_with(|| Arc::new(Queue::new(&spec, None)))
                .clone()
        });
        let queue = Arc::new(Queue::new(spec, dead_letters));
        self.queues.insert(spec.name.clone(), queue.clone());
        queue
    }

    fn bind(&mut self, pattern: &BindingPattern, queue: &Arc<Queue>) {
        if pattern.is_exact() {
            let bound = self.exact.entry(pattern.as_str().into()).or_default();
            if !bound.iter().any(|known| Arc::ptr_eq(known, queue)) {
                bound.push(queue.clone());
            }
        } else if !self
            .patterns
            .iter()
            .any(|(known, bound)| known == pattern && Arc::ptr_eq(bound, queue))
        {
            self.patterns.push((pattern.clone(), queue.clone()));
        }
    }

    /// Removes a consumer. A reply or exclusive queue is deleted with its last consumer.
    pub(super) fn remove_consumer(&mut self, consumer: &QueueConsumer) {
        let queue = consumer.queue();
        let last = queue.unsubscribe();
        if last && matches!(queue.kind(), QueueKind::Reply | QueueKind::Exclusive) {
            self.queues.retain(|_, known| !Arc::ptr_eq(known, queue));
            self.patterns.retain(|(_, known)| !Arc::ptr_eq(known, queue));
            self.exact.retain(|_, bound| {
                bound.retain(|known| !Arc::ptr_eq(known, queue));
                !bound.is_empty()
            });
        }
    }

    pub(super) fn close(&mut self) {
        self.queues.values().for_each(|queue| queue.close());
        self.exact.clear();
        self.patterns.clear();
    }
}
