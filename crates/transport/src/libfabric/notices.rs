use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Mutex;

use super::{Counter, WorkError, WorkId};
use crate::bell::Bell;
use crate::sync::lock;

/// How a work ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// All bytes have moved: those of a read are in local memory, and those of a write may be
    /// reused here, though the target knows of them by a counter alone.
    Done,
    /// It was cancelled; some bytes may have moved, none will from now on.
    Cancelled,
    /// It failed; the same.
    Failed(WorkError),
}

/// What a driver tells.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Notice {
    /// The one report of a work: nothing of it touches local memory any more.
    Ended {
        /// The work.
        id: WorkId,
        /// How it ended.
        outcome: Outcome,
    },
    /// All writes that a counter waited for are in local memory. Its use is over.
    Arrived {
        /// The counter.
        counter: Counter,
    },
    /// The endpoint cannot be used any more. All works fail; a fence may mend it.
    Broken {
        /// What was seen.
        why: String,
    },
}

/// What waits to be told, with a descriptor that is readable while something does.
pub(super) struct Notices {
    waiting: Mutex<Vec<Notice>>,
    bell: Bell,
}

impl Notices {
    pub(super) fn new() -> std::io::Result<Self> {
        Ok(Self { waiting: Mutex::default(), bell: Bell::new()? })
    }

    pub(super) fn push(&self, notice: Notice) {
        let mut waiting = lock(&self.waiting);
        waiting.push(notice);
        if waiting.len() == 1 {
            self.bell.ring();
        }
    }

    pub(super) fn take(&self) -> Vec<Notice> {
        let mut waiting = lock(&self.waiting);
        self.bell.hush();
        std::mem::take(&mut waiting)
    }

    pub(super) fn ready_fd(&self) -> BorrowedFd<'_> {
        self.bell.as_fd()
    }
}
