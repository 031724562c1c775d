use std::sync::{Arc, Mutex};
use std::time::Instant;

use super::frame::Status;
use super::link::broken;
use super::wire::Portion;
use crate::scatter::Scatter;
use crate::sync::lock;
use crate::{Outcome, TransferError, TransferId};

/// A transfer that a reader waits for.
pub(super) struct Incoming {
    pub(super) id: TransferId,
    pub(super) deadline: Instant,
    pub(super) request_bytes: usize,
    target: Arc<Scatter>,
    progress: Mutex<Progress>,
}

/// Portions come over any stream, in any order; the end says how many there are in all. When
/// so many have arrived, no other can be on its way.
#[derive(Default)]
struct Progress {
    /// One bit a portion.
    seen: Vec<u64>,
    begun: u64,
    arrived: u64,
    end: Option<(u64, Status)>,
    cancelled: bool,
}

impl Incoming {
    pub(super) fn new(
        id: TransferId,
        target: Arc<Scatter>,
        deadline: Instant,
        request_bytes: usize,
    ) -> Self {
        Self { id, deadline, request_bytes, target, progress: Mutex::default() }
    }

    pub(super) fn bytes(&self) -> u64 {
        self.target.bytes()
    }

    /// Notes that the transfer is not wanted any more; false if that was known.
    pub(super) fn cancel(&self) -> bool {
        !std::mem::replace(&mut lock(&self.progress).cancelled, true)
    }

    /// Where a portion goes; each comes once.
    pub(super) fn begin(&self, index: u64, len: u32) -> Result<Portion<'_>, TransferError> {
        let portion = Portion::nth(&self.target, index);
        let portion = portion.ok_or(broken("a portion beyond the end of its transfer"))?;
        if len != portion.len() {
            return Err(broken("a portion of the wrong length"));
        }
        let mut progress = lock(&self.progress);
        if !progress.mark(index) {
            return Err(broken("a portion for the second time"));
        }
        progress.begun += 1;
        if progress.end.is_some_and(|(portions, _)| progress.begun > portions) {
            return Err(broken("more portions than the end of the transfer said"));
        }
        Ok(portion)
    }

    /// A portion that was begun is in place. Says how the transfer ended, if it has.
    pub(super) fn arrived(&self) -> Option<Outcome> {
        let mut progress = lock(&self.progress);
        progress.arrived += 1;
        progress.outcome()
    }

    /// The source sends no more. Says how the transfer ended, if all of it is in place.
    pub(super) fn end(
        &self,
        portions: u64,
        status: Status,
    ) -> Result<Option<Outcome>, TransferError> {
        let mut progress = lock(&self.progress);
        let total = Portion::count(&self.target);
        if progress.end.is_some() {
            return Err(broken("a second end of a transfer"));
        }
        if portions < progress.begun || portions > total {
            return Err(broken("an end with a wrong number of portions"));
        }
        match status {
            Status::Done if portions != total => return Err(broken("an end too early")),
            Status::Cancelled if !progress.cancelled => {
                return Err(broken("a cancellation that nobody wished"));
            }
            _ => progress.end = Some((portions, status)),
        }
        Ok(progress.outcome())
    }
}

impl Progress {
    /// Sets the bit of a portion; false if it was set.
    fn mark(&mut self, index: u64) -> bool {
        let (word, bit) = (usize::try_from(index / 64).unwrap_or(usize::MAX), 1 << (index % 64));
        if self.seen.len() <= word {
            self.seen.resize(word + 1, 0);
        }
        let new = self.seen[word] & bit == 0;
        self.seen[word] |= bit;
        new
    }

    fn outcome(&self) -> Option<Outcome> {
        let (portions, status) = self.end?;
        (portions == self.arrived).then_some(match status {
            Status::Done => Outcome::Done,
            Status::NotGranted => Outcome::Failed(TransferError::NotGranted),
            Status::Cancelled => Outcome::Cancelled,
        })
    }
}

#[cfg(test)]
#[path = "incoming_tests.rs"]
mod tests;
