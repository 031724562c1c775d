use std::collections::HashMap;
use std::sync::Arc;

use crate::registry::Registry;
use crate::scatter::Scatter;
use crate::{Event, Registration, SubmitErrorKind, Transfer, TransferId};

/// Bytes that one transfer may have, so that counts of its portions stay small.
pub(crate) const MAX_TRANSFER_BYTES: u64 = 1 << 40;

/// The transfers that an endpoint has accepted and not yet reported: what makes a completion
/// come exactly once, and pins the memory until its owner has heard it.
pub(crate) struct Ledger {
    limit: usize,
    open: HashMap<TransferId, Arc<Scatter>>,
}

impl Ledger {
    pub(crate) fn new(limit: usize) -> Self {
        Self { limit, open: HashMap::new() }
    }

    /// Checks a transfer and binds its targets.
    pub(crate) fn admit(
        &self,
        transfer: &Transfer,
        registry: &Registry,
    ) -> Result<Arc<Scatter>, SubmitErrorKind> {
        if self.open.len() >= self.limit {
            return Err(SubmitErrorKind::QueueFull);
        }
        if self.open.contains_key(&transfer.id) {
            return Err(SubmitErrorKind::IdInUse);
        }
        let mut parts = Vec::with_capacity(transfer.copies.len());
        for copy in &transfer.copies {
            parts.push((registry.bind(copy.target())?, copy.target().clone()));
        }
        let small = |scatter: &Scatter| scatter.bytes() <= MAX_TRANSFER_BYTES;
        let scatter = Scatter::new(parts).filter(small);
        scatter.map(Arc::new).ok_or(SubmitErrorKind::TooLarge { what: "bytes" })
    }

    pub(crate) fn enter(&mut self, id: TransferId, target: Arc<Scatter>) {
        self.open.insert(id, target);
    }

    /// Notes what is about to be reported; false for a completion that must not be.
    pub(crate) fn report(&mut self, event: &Event) -> bool {
        match event {
            Event::Completion { id, .. } => self.open.remove(id).is_some(),
            Event::Overdue { id } => self.open.contains_key(id),
            _ => true,
        }
    }

    pub(crate) fn uses(&self, registration: Registration) -> bool {
        self.open.values().any(|target| target.uses(registration))
    }
}
