use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};

use strided::Blocks;

use super::atlas::Plot;
use crate::portion::{PORTION, Portion};
use crate::scatter::Scatter;
use crate::sync::lock;
use crate::tcp::{MAX_OPEN_REQUEST_BYTES, MAX_OPEN_REQUESTS};
use crate::{Outcome, SubmitErrorKind, TransferError, TransferId};

/// Bytes that wait to be copied for which another thread is woken.
const HELP: u64 = 512 << 10;

/// The transfers of one connection, from which its copiers take portions in turn.
pub(super) struct Desk {
    state: Mutex<State>,
    work: Condvar,
}

#[derive(Default)]
struct State {
    open: HashMap<u64, Entry>,
    turn: VecDeque<u64>,
    /// Bytes that nobody has taken yet.
    waiting: u64,
    request_bytes: usize,
    /// When the thread of the connection wakes up by itself.
    alarm: Option<Instant>,
    fencing: bool,
    closed: bool,
}

/// A transfer that is asked for.
pub(super) struct Asked {
    pub(super) id: TransferId,
    pub(super) deadline: Instant,
    pub(super) request_bytes: usize,
    pub(super) target: Arc<Scatter>,
    pub(super) sources: Arc<[Blocks]>,
}

struct Entry {
    asked: Asked,
    cancelled: bool,
    /// Once the source has allowed it.
    copying: Option<Copying>,
}

struct Copying {
    source: Arc<Scatter<Plot>>,
    /// Portions that were taken, and that are in somebody's hands.
    taken: u64,
    in_hand: usize,
    /// Why no more are taken, before the end of them.
    stop: Option<Outcome>,
}

/// A portion to copy.
pub(super) struct Job {
    pub(super) transfer: u64,
    pub(super) index: u64,
    pub(super) target: Arc<Scatter>,
    pub(super) source: Arc<Scatter<Plot>>,
}

/// A transfer that has ended. Nobody touches its memory any more.
pub(super) struct Ended {
    pub(super) id: TransferId,
    pub(super) outcome: Outcome,
    /// The source has allowed it, and waits to hear that it is over.
    pub(super) allowed: bool,
}

impl Desk {
    pub(super) fn new() -> Self {
        Self { state: Mutex::default(), work: Condvar::new() }
    }

    /// Takes in a transfer; true if the thread of the connection would sleep beyond its end.
    pub(super) fn enter(&self, asked: Asked) -> Result<bool, SubmitErrorKind> {
        let mut state = lock(&self.state);
        if state.closed {
            return Err(SubmitErrorKind::UnknownPeer);
        }
        let request_bytes = state.request_bytes + asked.request_bytes;
        if state.open.len() >= MAX_OPEN_REQUESTS || request_bytes > MAX_OPEN_REQUEST_BYTES {
            return Err(SubmitErrorKind::QueueFull);
        }
        state.request_bytes = request_bytes;
        let early = state.alarm.is_none_or(|alarm| asked.deadline < alarm);
        let entry = Entry { cancelled: false, copying: None, asked };
        state.open.insert(entry.asked.id.0, entry);
        Ok(early)
    }

    /// Notes that a transfer is not wanted any more.
    pub(super) fn cancel(&self, transfer: u64) -> Option<Ended> {
        let mut state = lock(&self.state);
        let entry = state.open.get_mut(&transfer)?;
        entry.cancelled = true;
        entry.copying.as_ref()?;
        state.stop(transfer, Outcome::Cancelled)
    }

    /// What a transfer that is asked for reads.
    pub(super) fn sources(&self, transfer: u64) -> Option<Arc<[Blocks]>> {
        let state = lock(&self.state);
        let entry = state.open.get(&transfer).filter(|entry| entry.copying.is_none())?;
        Some(Arc::clone(&entry.asked.sources))
    }

    /// The source refuses a transfer.
    pub(super) fn refused(&self, transfer: u64) -> Option<Ended> {
        lock(&self.state).end(transfer, Outcome::Failed(TransferError::NotGranted))
    }

    /// The source allows a transfer.
    pub(super) fn begin(&self, transfer: u64, source: Scatter<Plot>) -> Option<Ended> {
        let mut state = lock(&self.state);
        let entry = state.open.get_mut(&transfer)?;
        let bytes = source.bytes();
        let copying = Copying { source: Arc::new(source), taken: 0, in_hand: 0, stop: None };
        entry.copying = Some(copying);
        if entry.cancelled {
            return state.end(transfer, Outcome::Cancelled);
        }
        if bytes == 0 {
            return state.end(transfer, Outcome::Done);
        }
        state.waiting += bytes;
        state.turn.push_back(transfer);
        None
    }

    /// Ends a transfer before its next portion.
    pub(super) fn stop(&self, transfer: u64, outcome: Outcome) -> Option<Ended> {
        lock(&self.state).stop(transfer, outcome)
    }

    /// The next portion, if there is one.
    pub(super) fn take(&self) -> Option<Job> {
        let mut state = lock(&self.state);
        let job = state.take()?;
        if state.waiting >= HELP {
            self.work.notify_one();
        }
        Some(job)
    }

    /// The same for a thread that only helps: it waits until there is enough for one more, and
    /// gets `None` when the connection is down.
    pub(super) fn help(&self) -> Option<Job> {
        let state = lock(&self.state);
        let idle = |state: &mut State| !state.closed && state.waiting < HELP;
        let waited = self.work.wait_while(state, idle);
        let mut state = waited.unwrap_or_else(PoisonError::into_inner);
        let job = state.take()?;
        if state.waiting >= HELP {
            self.work.notify_one();
        }
        Some(job)
    }

    /// Whether another thread would have something to do.
    pub(super) fn wants_help(&self) -> bool {
        lock(&self.state).waiting >= u64::from(PORTION) + HELP
    }

    /// A portion is in its place, or will not be, for which the outcome is given.
    pub(super) fn done(&self, transfer: u64, failed: Option<Outcome>) -> Option<Ended> {
        let mut state = lock(&self.state);
        if let Some(outcome) = failed {
            // It cannot end here: this portion is still in hand.
            let _ = state.stop(transfer, outcome);
        }
        let copying = state.open.get_mut(&transfer)?.copying.as_mut()?;
        copying.in_hand -= 1;
        if copying.in_hand > 0 {
            return None;
        }
        let all = copying.taken == Portion::count(&copying.source);
        let outcome = match &copying.stop {
            Some(outcome) => outcome.clone(),
            None if all => Outcome::Done,
            None => return None,
        };
        state.end(transfer, outcome)
    }

    /// How long the thread of the connection may sleep: not at all while there is something to
    /// copy.
    pub(super) fn rest(&self, now: Instant) -> Option<Duration> {
        let mut state = lock(&self.state);
        if !state.turn.is_empty() {
            state.alarm = Some(now);
            return Some(Duration::ZERO);
        }
        let next = state.next_deadline();
        state.alarm = next;
        next.map(|alarm| alarm.saturating_duration_since(now))
    }

    pub(super) fn next_deadline(&self) -> Option<Instant> {
        lock(&self.state).next_deadline()
    }

    /// The transfers that are overdue, once.
    pub(super) fn overdue(&self, now: Instant) -> Vec<TransferId> {
        let mut state = lock(&self.state);
        if state.fencing {
            return Vec::new();
        }
        let overdue = state.open.values().filter(|entry| entry.asked.deadline <= now);
        let mut overdue: Vec<TransferId> = overdue.map(|entry| entry.asked.id).collect();
        state.fencing = !overdue.is_empty();
        overdue.sort_unstable();
        overdue
    }

    /// Takes nothing more in, and gives nothing more out.
    pub(super) fn close(&self) {
        let mut state = lock(&self.state);
        state.closed = true;
        state.turn.clear();
        state.waiting = 0;
        self.work.notify_all();
    }

    /// What was open, and whether something was overdue.
    pub(super) fn drain(&self) -> (Vec<TransferId>, bool) {
        let mut state = lock(&self.state);
        let mut open: Vec<TransferId> = state.open.drain().map(|(_, open)| open.asked.id).collect();
        open.sort_unstable();
        (open, state.fencing)
    }
}

impl State {
    fn next_deadline(&self) -> Option<Instant> {
        self.open.values().map(|entry| entry.asked.deadline).min()
    }

    /// One portion of a transfer, which goes to the back of the queue unless it was the last.
    fn take(&mut self) -> Option<Job> {
        let transfer = self.turn.pop_front()?;
        let entry = self.open.get_mut(&transfer)?;
        let copying = entry.copying.as_mut()?;
        let index = copying.taken;
        copying.taken += 1;
        copying.in_hand += 1;
        let source = Arc::clone(&copying.source);
        let len = Portion::nth(&source, index).map_or(0, Portion::len);
        self.waiting = self.waiting.saturating_sub(u64::from(len));
        if copying.taken < Portion::count(&source) {
            self.turn.push_back(transfer);
        }
        Some(Job { transfer, index, target: Arc::clone(&entry.asked.target), source })
    }

    fn stop(&mut self, transfer: u64, outcome: Outcome) -> Option<Ended> {
        let copying = self.open.get_mut(&transfer)?.copying.as_mut()?;
        let taken = copying.taken.saturating_mul(u64::from(PORTION));
        let left = copying.source.bytes().saturating_sub(taken);
        if copying.stop.is_none() {
            copying.stop = Some(outcome.clone());
            self.waiting = self.waiting.saturating_sub(left);
        }
        self.turn.retain(|&other| other != transfer);
        let in_hand = self.open.get(&transfer)?.copying.as_ref()?.in_hand;
        if in_hand > 0 { None } else { self.end(transfer, outcome) }
    }

    fn end(&mut self, transfer: u64, outcome: Outcome) -> Option<Ended> {
        let entry = self.open.remove(&transfer)?;
        self.request_bytes -= entry.asked.request_bytes;
        let allowed = entry.copying.is_some();
        Some(Ended { id: entry.asked.id, outcome, allowed })
    }
}
