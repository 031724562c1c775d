use std::collections::HashMap;
use std::sync::Arc;
use std::time::Instant;

use super::incoming::Incoming;
use super::{MAX_OPEN_REQUEST_BYTES, MAX_OPEN_REQUESTS};
use crate::{SubmitErrorKind, TransferId};

/// Bytes that any socket buffer holds: while no more is owed, an answer may lie there until the
/// caller of the endpoint comes for it.
const FITS: u64 = 64 << 10;

/// What a source still owes, and who waits for it.
#[derive(Default)]
pub(super) struct Inbox {
    open: HashMap<u64, Arc<Incoming>>,
    request_bytes: usize,
    bytes: u64,
    pub(super) fencing: bool,
    closed: bool,
    /// Something has come in part: whoever takes it may have to wait.
    pub(super) in_part: bool,
    /// The thread of the first stream sleeps, and wants to be called.
    pub(super) away: bool,
}

impl Inbox {
    pub(super) fn enter(&mut self, incoming: Incoming) -> Result<(), SubmitErrorKind> {
        if self.closed {
            return Err(SubmitErrorKind::UnknownPeer);
        }
        let request_bytes = self.request_bytes + incoming.request_bytes;
        if self.open.len() >= MAX_OPEN_REQUESTS || request_bytes > MAX_OPEN_REQUEST_BYTES {
            return Err(SubmitErrorKind::QueueFull);
        }
        self.request_bytes = request_bytes;
        self.bytes += incoming.bytes();
        self.open.insert(incoming.id.0, Arc::new(incoming));
        Ok(())
    }

    pub(super) fn find(&self, transfer: u64) -> Option<Arc<Incoming>> {
        self.open.get(&transfer).map(Arc::clone)
    }

    /// Forgets a transfer; false if that was done.
    pub(super) fn remove(&mut self, incoming: &Incoming) -> bool {
        let open = self.open.remove(&incoming.id.0).is_some();
        if open {
            self.request_bytes -= incoming.request_bytes;
            self.bytes -= incoming.bytes();
        }
        open
    }

    pub(super) fn is_empty(&self) -> bool {
        self.open.is_empty()
    }

    /// Whether the first stream's thread has to receive.
    pub(super) fn wants_thread(&self) -> bool {
        self.in_part || self.bytes > FITS
    }

    /// Whether that thread may begin; if not, it is away.
    pub(super) fn takes_turn(&mut self) -> bool {
        self.away = !self.wants_thread();
        !self.away
    }

    pub(super) fn next_deadline(&self) -> Option<Instant> {
        self.open.values().map(|incoming| incoming.deadline).min()
    }

    pub(super) fn overdue(&self, now: Instant) -> Vec<TransferId> {
        let overdue = self.open.values().filter(|incoming| incoming.deadline <= now);
        sorted(overdue.map(|incoming| incoming.id).collect())
    }

    /// Lets nothing in any more, and forgets all there is.
    pub(super) fn close(&mut self) -> Vec<TransferId> {
        self.closed = true;
        sorted(self.open.drain().map(|(_, incoming)| incoming.id).collect())
    }
}

fn sorted(mut ids: Vec<TransferId>) -> Vec<TransferId> {
    ids.sort_unstable();
    ids
}
