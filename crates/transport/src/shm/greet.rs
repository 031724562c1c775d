use std::io;
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags};
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags, recv, send};

use super::ShmConfig;
use crate::bell::{Bell, sleep};
use crate::greet::Line;
use crate::session::{Channel, Hello, Role, VERSIONS};

/// What a thread looks after while it waits for the other side: gives the time until it wants
/// to look again, or why it waits no longer.
pub(super) type Look<'a> = &'a dyn Fn() -> io::Result<Option<Instant>>;

/// A socket whose first words are said and heard.
pub(super) struct Fresh<'a> {
    pub(super) socket: &'a UnixStream,
    /// Wakes the thread to look earlier.
    pub(super) bell: Option<&'a Bell>,
    pub(super) look: Look<'a>,
}

impl Fresh<'_> {
    /// Waits until the socket has something to tell.
    pub(super) fn wait(&self, wanted: PollFlags, deadline: Instant) -> io::Result<()> {
        loop {
            let next = (self.look)()?.map_or(deadline, |next| next.min(deadline));
            let now = Instant::now();
            if now >= deadline {
                return Err(io::ErrorKind::TimedOut.into());
            }
            let socket = PollFd::from_borrowed_fd(self.socket.as_fd(), wanted);
            let bell = self.bell.map_or(socket.clone(), |bell| {
                PollFd::from_borrowed_fd(bell.as_fd(), PollFlags::IN)
            });
            let mut fds = [socket, bell];
            sleep(&mut fds, Some(next.saturating_duration_since(now)))?;
            if let Some(bell) = self.bell {
                bell.hush();
            }
            if !fds[0].revents().is_empty() {
                return Ok(());
            }
        }
    }

    /// Sleeps a moment, looking after what there is.
    pub(super) fn pause(&self, time: Duration, deadline: Instant) -> io::Result<()> {
        (self.look)()?;
        if Instant::now() >= deadline {
            return Err(io::ErrorKind::TimedOut.into());
        }
        std::thread::sleep(time);
        Ok(())
    }
}

impl Line for Fresh<'_> {
    fn say(&self, bytes: &[u8]) -> io::Result<()> {
        let sent = send(self.socket, bytes, SendFlags::DONTWAIT | SendFlags::NOSIGNAL)?;
        // A fresh socket has room for all of it.
        if sent == bytes.len() { Ok(()) } else { Err(io::ErrorKind::WriteZero.into()) }
    }

    fn hear(&self, bytes: &mut [u8], deadline: Instant) -> io::Result<usize> {
        loop {
            self.wait(PollFlags::IN, deadline)?;
            match recv(self.socket, &mut *bytes, RecvFlags::DONTWAIT) {
                Ok((_, got)) => return Ok(got),
                Err(Errno::AGAIN | Errno::INTR) => {}
                Err(why) => return Err(why.into()),
            }
        }
    }
}

/// What this side says of itself.
pub(super) fn hello(config: &ShmConfig, role: Role) -> io::Result<Hello> {
    let mut random = [0; 16];
    getrandom::fill(&mut random).map_err(io::Error::other)?;
    Ok(Hello {
        versions: VERSIONS,
        role,
        channel: Channel::Data,
        stream: 0,
        streams: 1,
        engine: config.engine,
        agent: config.agent,
        random,
        proves: false,
    })
}
