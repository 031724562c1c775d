use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Mutex;

use rustix::event::{EventfdFlags, eventfd};

use crate::Event;
use crate::sync::lock;

/// What an endpoint has to tell, filled by its threads, with a descriptor that is readable
/// while something waits.
#[derive(Debug)]
pub(crate) struct Events {
    waiting: Mutex<Vec<Event>>,
    ready: OwnedFd,
}

impl Events {
    pub(crate) fn new() -> std::io::Result<Self> {
        let ready = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        Ok(Self { waiting: Mutex::default(), ready })
    }

    pub(crate) fn push(&self, event: Event) {
        self.extend([event]);
    }

    /// Adds all of `events` at once: no other thread's come between them.
    pub(crate) fn extend(&self, events: impl IntoIterator<Item = Event>) {
        let mut waiting = lock(&self.waiting);
        let before = waiting.len();
        waiting.extend(events);
        let first = before == 0 && !waiting.is_empty();
        // Whoever wakes up wants the lock. If the events are taken before, it wakes for nothing.
        drop(waiting);
        if first {
            self.wake();
        }
    }

    /// Makes the descriptor readable, although nothing may wait yet.
    pub(crate) fn wake(&self) {
        // It fails only when the counter is full, and then the descriptor is readable.
        let _ = rustix::io::write(&self.ready, &1_u64.to_ne_bytes());
    }

    /// Takes all, and makes the descriptor unreadable again.
    pub(crate) fn take(&self) -> Vec<Event> {
        let mut waiting = lock(&self.waiting);
        // It fails only when the counter is 0, which is what is wanted.
        let _ = rustix::io::read(&self.ready, &mut [0_u8; 8]);
        std::mem::take(&mut waiting)
    }

    pub(crate) fn ready_fd(&self) -> BorrowedFd<'_> {
        self.ready.as_fd()
    }
}
