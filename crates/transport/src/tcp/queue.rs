use std::collections::VecDeque;
use std::sync::{Arc, Condvar, Mutex, PoisonError, Weak};
use std::time::Duration;

use super::frame::{Status, ToReader};
use super::link::broken;
use super::wire::Portion;
use super::{MAX_OPEN_REQUEST_BYTES, MAX_OPEN_REQUESTS};
use crate::TransferError;
use crate::grants::Permit;
use crate::scatter::Scatter;
use crate::sync::lock;

/// A read that a source has begun to answer. Its permit ends when nobody sends of it any more,
/// which is when the last reference is dropped.
pub(super) struct Outgoing {
    pub(super) scatter: Scatter,
    pub(super) permit: Permit,
}

/// What a reader is owed: its transfers, from which the sender threads take portions in turn.
#[derive(Default)]
pub(super) struct SendQueue {
    state: Mutex<State>,
    work: Condvar,
}

#[derive(Default)]
struct State {
    items: VecDeque<Item>,
    request_bytes: usize,
    /// All that may be in the hands of a sender, to find those that are stuck.
    open: Vec<Weak<Outgoing>>,
    closed: bool,
}

struct Item {
    transfer: u64,
    request_bytes: usize,
    /// Portions that were taken.
    taken: u64,
    rest: Rest,
}

/// What is still to be done about a transfer.
pub(super) enum Rest {
    Send(Arc<Outgoing>),
    End(Status),
}

/// What a sender is to do next.
pub(super) enum Work {
    /// Send a portion; with the last one goes the end of the transfer.
    Portion { transfer: u64, index: u64, outgoing: Arc<Outgoing>, end: Option<ToReader> },
    /// Say that a transfer has ended.
    End(ToReader),
    /// There was nothing to do for the time that was given.
    Idle,
    /// The connection is down.
    Closed,
}

impl SendQueue {
    /// Adds a transfer.
    ///
    /// # Errors
    /// The reader has more open than the protocol allows.
    pub(super) fn push(
        &self,
        transfer: u64,
        request_bytes: usize,
        rest: Rest,
    ) -> Result<(), TransferError> {
        let mut state = lock(&self.state);
        if let Some(item) = state.admit(transfer, request_bytes, rest)? {
            state.items.push_back(item);
            self.work.notify_one();
        }
        Ok(())
    }

    /// The same, but if nothing waits to be sent, the caller gets the first work at once.
    ///
    /// # Errors
    /// The same.
    pub(super) fn push_or_take(
        &self,
        transfer: u64,
        request_bytes: usize,
        rest: Rest,
    ) -> Result<Option<Work>, TransferError> {
        let mut state = lock(&self.state);
        let Some(item) = state.admit(transfer, request_bytes, rest)? else { return Ok(None) };
        if state.items.is_empty() {
            let work = state.step(item);
            // Of a transfer of more than a portion.
            if !state.items.is_empty() {
                self.work.notify_one();
            }
            return Ok(Some(work));
        }
        state.items.push_back(item);
        self.work.notify_one();
        Ok(None)
    }

    /// Takes the next piece of work, waiting for at most `idle`, if that is given.
    pub(super) fn take(&self, idle: Option<Duration>) -> Work {
        let state = lock(&self.state);
        let nothing = |state: &mut State| state.items.is_empty() && !state.closed;
        let mut state = match idle {
            None => self.work.wait_while(state, nothing).unwrap_or_else(PoisonError::into_inner),
            Some(idle) => {
                let waited = self.work.wait_timeout_while(state, idle, nothing);
                waited.unwrap_or_else(PoisonError::into_inner).0
            }
        };
        if state.closed {
            return Work::Closed;
        }
        let Some(item) = state.items.pop_front() else { return Work::Idle };
        let work = state.step(item);
        if !state.items.is_empty() {
            self.work.notify_one();
        }
        work
    }

    /// Ends a transfer before its next portion, if it has any left.
    pub(super) fn cancel(&self, transfer: u64) {
        let mut state = lock(&self.state);
        let sending =
            |item: &&mut Item| item.transfer == transfer && matches!(item.rest, Rest::Send(_));
        if let Some(item) = state.items.iter_mut().find(sending) {
            item.rest = Rest::End(Status::Cancelled);
        }
    }

    /// Whether something is still being sent so long after its grant was revoked.
    pub(super) fn stuck_for(&self, limit: Duration) -> bool {
        let mut state = lock(&self.state);
        state.forget_sent();
        let late = |open: Arc<Outgoing>| open.permit.revoked_for().is_some_and(|time| time > limit);
        state.open.iter().filter_map(Weak::upgrade).any(late)
    }

    /// Whether nothing is waited for, and nobody sends.
    pub(super) fn is_idle(&self) -> bool {
        let mut state = lock(&self.state);
        state.forget_sent();
        state.items.is_empty() && state.open.is_empty()
    }

    /// Drops all there is, and sends the senders home.
    pub(super) fn close(&self) {
        let mut state = lock(&self.state);
        state.closed = true;
        state.items.clear();
        self.work.notify_all();
    }
}

impl State {
    /// Takes in a transfer, unless the connection is down.
    fn admit(
        &mut self,
        transfer: u64,
        request_bytes: usize,
        rest: Rest,
    ) -> Result<Option<Item>, TransferError> {
        if self.closed {
            return Ok(None);
        }
        self.request_bytes += request_bytes;
        if self.items.len() >= MAX_OPEN_REQUESTS || self.request_bytes > MAX_OPEN_REQUEST_BYTES {
            return Err(broken("too many open requests"));
        }
        if let Rest::Send(outgoing) = &rest {
            // Those that are over make room for others before there are more of them.
            if self.open.len() == self.open.capacity() {
                self.forget_sent();
            }
            self.open.push(Arc::downgrade(outgoing));
        }
        Ok(Some(Item { transfer, request_bytes, taken: 0, rest }))
    }

    fn forget_sent(&mut self) {
        self.open.retain(|open| open.strong_count() > 0);
    }

    /// One step of a transfer, which goes to the back of the queue unless it was the last one.
    fn step(&mut self, mut item: Item) -> Work {
        let outgoing = match &item.rest {
            Rest::End(status) => return Work::End(self.forget(&item, *status)),
            Rest::Send(outgoing) => Arc::clone(outgoing),
        };
        if outgoing.permit.revoked_for().is_some() {
            return Work::End(self.forget(&item, Status::NotGranted));
        }
        let (transfer, index, total) =
            (item.transfer, item.taken, Portion::count(&outgoing.scatter));
        if total == 0 {
            return Work::End(self.forget(&item, Status::Done));
        }
        item.taken += 1;
        let end = if item.taken == total {
            Some(self.forget(&item, Status::Done))
        } else {
            self.items.push_back(item);
            None
        };
        Work::Portion { transfer, index, outgoing, end }
    }

    /// Frees the room of a transfer, before the reader hears of the end and uses it again.
    fn forget(&mut self, item: &Item, status: Status) -> ToReader {
        self.request_bytes -= item.request_bytes;
        ToReader::End { transfer: item.transfer, portions: item.taken, status }
    }
}
