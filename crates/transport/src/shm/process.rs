use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags};
use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, pidfd_open};

use super::unusable::Unusable;
use crate::TransferError;
use crate::bell::sleep;
use crate::error::{hung_up, lost};

/// A process that keeps its number for as long as this says that it lives: a number that was
/// used again belongs to a process whose descriptor is another one.
pub(super) struct Process {
    pub(super) pid: i32,
    alive: OwnedFd,
}

impl Process {
    /// `None` for the number of processes that cannot be seen from here.
    pub(super) fn open(pid: i32) -> Result<Option<Self>, Unusable> {
        let Some(named) = Pid::from_raw(pid) else { return Ok(None) };
        match pidfd_open(named, PidfdFlags::empty()) {
            Ok(alive) => Ok(Some(Self { pid, alive })),
            Err(Errno::SRCH) => Err(ended().into()),
            Err(why) => Err(Unusable::system("see the source's process")(why)),
        }
    }
}

/// The other end of a connection: a socket, and the process behind it where it can be seen.
pub(super) struct Source {
    pub(super) socket: Arc<UnixStream>,
    pub(super) process: Option<Process>,
}

impl Source {
    /// What tells the end of the process, beside the socket.
    pub(super) fn death(&self) -> Option<PollFd<'_>> {
        let process = self.process.as_ref()?;
        Some(PollFd::from_borrowed_fd(process.alive.as_fd(), PollFlags::IN))
    }

    /// Whether it is still the process that was greeted. Asked after each copy: what was read
    /// before was read from that one's memory and no other's.
    ///
    /// A process that begins another program keeps its number and loses its sockets, as they are
    /// closed then.
    pub(super) fn is_there(&self) -> Result<(), TransferError> {
        let socket = PollFd::from_borrowed_fd(self.socket.as_fd(), PollFlags::RDHUP);
        let mut fds = [socket.clone(), self.death().unwrap_or(socket)];
        sleep(&mut fds, Some(Duration::ZERO)).map_err(|why| lost(&why))?;
        let [socket, process] = fds.map(|fd| !fd.revents().is_empty());
        match (process, socket) {
            (true, _) if self.process.is_some() => Err(ended()),
            (_, true) => Err(hung_up()),
            _ => Ok(()),
        }
    }
}

/// The process at the other end is no more.
pub(super) fn ended() -> TransferError {
    TransferError::Lost { why: "the source's process has ended".to_owned() }
}
