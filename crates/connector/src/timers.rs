use std::collections::{BTreeMap, BTreeSet};

use crate::bounds::Time;

/// One moment per key, and which comes next.
#[derive(Debug)]
pub(crate) struct Timers<K> {
    due: BTreeMap<K, Time>,
    order: BTreeSet<(Time, K)>,
}

impl<K: Ord + Clone> Timers<K> {
    pub(crate) fn new() -> Self {
        Self { due: BTreeMap::new(), order: BTreeSet::new() }
    }

    /// Replaces the moment of `key`; `None` takes it away.
    pub(crate) fn set(&mut self, key: &K, at: Option<Time>) {
        let before = match at {
            Some(at) => self.due.insert(key.clone(), at),
            None => self.due.remove(key),
        };
        if before == at {
            return;
        }
        if let Some(before) = before {
            self.order.remove(&(before, key.clone()));
        }
        if let Some(at) = at {
            self.order.insert((at, key.clone()));
        }
    }

    /// The earliest moment.
    pub(crate) fn next(&self) -> Option<Time> {
        self.order.first().map(|(at, _)| *at)
    }

    /// Takes one key whose moment has come, the earliest first.
    pub(crate) fn pop(&mut self, now: Time) -> Option<K> {
        self.next().filter(|at| *at <= now)?;
        let (_, key) = self.order.pop_first()?;
        self.due.remove(&key);
        Some(key)
    }
}
