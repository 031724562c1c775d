use std::io;
use std::sync::{Arc, Mutex, MutexGuard, TryLockError};

use rustix::event::{PollFd, PollFlags};

use super::receiver::Receiver;
use super::stream::Stream;
use crate::bell::{Bell, sleep};
use crate::sync::lock;

/// The first stream of a peer, from which two may receive: its thread, and the caller of the
/// endpoint while little is owed. Whoever holds the receiver has the turn.
pub(super) struct First {
    pub(super) stream: Arc<Stream>,
    receiver: Mutex<Receiver>,
    bell: Bell,
}

impl First {
    pub(super) fn new(stream: Arc<Stream>) -> io::Result<Self> {
        let receiver = Mutex::new(Receiver::new(Arc::clone(&stream)));
        Ok(Self { stream, receiver, bell: Bell::new()? })
    }

    pub(super) fn receiver(&self) -> MutexGuard<'_, Receiver> {
        lock(&self.receiver)
    }

    /// The receiver, unless somebody is at it.
    pub(super) fn free_receiver(&self) -> Option<MutexGuard<'_, Receiver>> {
        match self.receiver.try_lock() {
            Ok(receiver) => Some(receiver),
            Err(TryLockError::Poisoned(poisoned)) => Some(poisoned.into_inner()),
            Err(TryLockError::WouldBlock) => None,
        }
    }

    /// Wakes the thread that sleeps here.
    pub(super) fn ring(&self) {
        self.bell.ring();
    }

    /// Sleeps until somebody rings, whatever comes on the stream; true if the source hung up.
    pub(super) fn sleep(&self) -> io::Result<bool> {
        let mut fds = [
            PollFd::new(self.stream.socket(), PollFlags::RDHUP),
            PollFd::new(&self.bell, PollFlags::IN),
        ];
        sleep(&mut fds, None)?;
        let [socket, bell] = fds.map(|fd| !fd.revents().is_empty());
        if bell {
            self.bell.hush();
        }
        Ok(socket)
    }
}
