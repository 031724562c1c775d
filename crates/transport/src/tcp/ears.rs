use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::event::{Timespec, epoll};
use rustix::io::Errno;

use super::stream::Stream;
use crate::PeerId;
use crate::events::Events;

/// Sockets that are looked at in one call.
const LOOK: usize = 64;

const NOW: Timespec = Timespec { tv_sec: 0, tv_nsec: 0 };

/// Where the caller of an endpoint waits: for its events, and for the first streams of the peers
/// from which it receives by itself. Of a small answer it is woken by the socket then, and not by a
/// thread that the socket has woken.
pub(super) struct Ears {
    epoll: OwnedFd,
}

impl Ears {
    pub(super) fn new(events: &Events) -> io::Result<Self> {
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        let no_peer = epoll::EventData::new_u64(u64::MAX);
        epoll::add(&epoll, events.ready_fd(), no_peer, epoll::EventFlags::IN)?;
        Ok(Self { epoll })
    }

    /// Knows a peer's stream from now on, for as long as that is open, and does not listen yet.
    pub(super) fn add(&self, peer: PeerId, stream: &Stream) -> io::Result<()> {
        let deaf = epoll::EventFlags::ONESHOT;
        Ok(epoll::add(&self.epoll, stream.socket(), epoll::EventData::new_u64(peer.0), deaf)?)
    }

    /// Listens until something comes, or has come.
    pub(super) fn listen(&self, peer: PeerId, stream: &Stream) {
        let once = epoll::EventFlags::IN | epoll::EventFlags::ONESHOT;
        let data = epoll::EventData::new_u64(peer.0);
        // It fails only if the stream was never added.
        let _ = epoll::modify(&self.epoll, stream.socket(), data, once);
    }

    /// The peers from which something has come, once each.
    pub(super) fn heard(&self) -> impl Iterator<Item = PeerId> + use<> {
        let mut events = Vec::with_capacity(LOOK);
        while let Err(Errno::INTR) =
            epoll::wait(&self.epoll, rustix::buffer::spare_capacity(&mut events), Some(&NOW))
        {
        }
        events.into_iter().map(|event| PeerId(event.data.u64()))
    }

    pub(super) fn ready_fd(&self) -> BorrowedFd<'_> {
        self.epoll.as_fd()
    }
}
