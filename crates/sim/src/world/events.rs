//! What is still to happen, in the order of time.

use std::cmp::Ordering;
use std::collections::BinaryHeap;
use std::fmt;
use std::rc::Rc;

use connector::params::Address;
use connector::{Order, ReadToken, RequestId};

use super::faults::Mishap;
use super::router::Delivery;

/// One life of one worker.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Who {
    pub(crate) engine: usize,
    pub(crate) rank: usize,
    pub(crate) life: u32,
}

impl fmt::Debug for Who {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { engine, rank, life } = self;
        write!(f, "engine {engine} rank {rank} life {life}")
    }
}

/// The two ends of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum End {
    D,
    P,
}

#[derive(Debug)]
pub(crate) enum What {
    /// An engine's scheduler makes a step.
    Step {
        engine: usize,
        life: u32,
    },
    /// What a step decided reaches one worker.
    Orders {
        who: Who,
        orders: Rc<[Order]>,
    },
    /// An engine takes its memory away.
    Withdraw {
        who: Who,
    },
    Wake {
        who: Who,
        due: u64,
    },
    Frame {
        conn: usize,
        to: End,
        bytes: Rc<[u8]>,
    },
    /// One side learns that a connection is gone.
    Lost {
        conn: usize,
        at: End,
    },
    Greeted {
        who: Who,
        address: Rc<Address>,
        reached: bool,
    },
    /// The next part of a read moves.
    Piece {
        read: u64,
    },
    /// A read ends without being complete.
    Broken {
        read: u64,
    },
    Overdue {
        read: u64,
    },
    Fence {
        read: u64,
    },
    Revoked {
        who: Who,
        token: ReadToken,
    },
    Prompt {
        request: u32,
    },
    Params(Box<Delivery>),
    Abort {
        engine: usize,
        life: u32,
        name: RequestId,
    },
    /// The last token of a request is there.
    Decoded {
        engine: usize,
        life: u32,
        name: RequestId,
    },
    Mishap(Mishap),
}

#[derive(Debug)]
pub(crate) struct Entry {
    pub(crate) at: u64,
    /// When it would have happened, if nobody had stood still.
    due: u64,
    number: u64,
    pub(crate) what: What,
}

impl PartialEq for Entry {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for Entry {}

impl PartialOrd for Entry {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Entry {
    /// The heap gives the greatest first: that is the earliest.
    fn cmp(&self, other: &Self) -> Ordering {
        (other.at, other.due, other.number).cmp(&(self.at, self.due, self.number))
    }
}

#[derive(Debug, Default)]
pub(crate) struct Queue {
    heap: BinaryHeap<Entry>,
    pushed: u64,
}

impl Queue {
    pub(crate) fn push(&mut self, at: u64, what: What) {
        self.pushed += 1;
        self.heap.push(Entry { at, due: at, number: self.pushed, what });
    }

    pub(crate) fn pop(&mut self) -> Option<Entry> {
        self.heap.pop()
    }

    /// Puts off what concerns somebody who stands still until then: whatever comes for him
    /// meanwhile waits as well, and happens behind it.
    pub(crate) fn put_off(&mut self, until: u64, entry: Entry) {
        self.heap.push(Entry { at: until, ..entry });
    }

    /// Nobody stands still any more: what was put off happens now.
    pub(crate) fn go_on(&mut self, now: u64) {
        let soon = |entry: Entry| Entry { at: entry.due.max(now), ..entry };
        self.heap = std::mem::take(&mut self.heap).into_iter().map(soon).collect();
    }

    pub(crate) fn pushed(&self) -> u64 {
        self.pushed
    }
}
