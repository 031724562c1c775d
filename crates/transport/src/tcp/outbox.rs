use std::collections::VecDeque;
use std::net::TcpStream;
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::Instant;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::{SendFlags, send};

use crate::sync::lock;

/// How long the pulse looks away while a socket has no room.
const ROOM: Timespec = Timespec { tv_sec: 0, tv_nsec: 20_000_000 };

/// What a reader has to say to a source. Whoever adds something sends it at once if there is
/// room, and never blocks; the rest waits for the pulse of the connection.
pub(super) struct Outbox {
    state: Mutex<State>,
    wake: Condvar,
}

struct State {
    /// None until the connection is made.
    socket: Option<Arc<TcpStream>>,
    bytes: VecDeque<u8>,
    /// When the pulse wakes up by itself.
    alarm: Instant,
    closed: bool,
}

impl Outbox {
    pub(super) fn new() -> Self {
        let state =
            State { socket: None, bytes: VecDeque::new(), alarm: Instant::now(), closed: false };
        Self { state: Mutex::new(state), wake: Condvar::new() }
    }

    /// The connection is made: from now on, bytes leave.
    pub(super) fn attach(&self, socket: Arc<TcpStream>) {
        let mut state = lock(&self.state);
        state.socket = Some(socket);
        state.flush();
        self.wake.notify_one();
    }

    /// Adds `bytes`, and wakes the pulse if it would sleep beyond `deadline`.
    pub(super) fn push(&self, bytes: &[u8], deadline: Option<Instant>) {
        let mut state = lock(&self.state);
        if state.closed {
            return;
        }
        let idle = state.bytes.is_empty();
        state.bytes.extend(bytes);
        if idle {
            state.flush();
        }
        if !state.bytes.is_empty() || deadline.is_some_and(|deadline| deadline < state.alarm) {
            self.wake.notify_one();
        }
    }

    /// Sleeps until the alarm, or until somebody wakes the pulse, and sends what there is room
    /// for. False when the connection is down.
    ///
    /// The alarm is asked for under the lock that `push` takes, so that no deadline is missed
    /// between the two.
    pub(super) fn wait(&self, alarm: impl FnOnce() -> Instant) -> bool {
        let mut state = lock(&self.state);
        let alarm = alarm();
        state.alarm = alarm;
        if let Some(socket) = state.stuck_on() {
            drop(state);
            wait_for_room(&socket);
            state = lock(&self.state);
        } else {
            let left = alarm.saturating_duration_since(Instant::now());
            if !state.closed && !left.is_zero() {
                let waited = self.wake.wait_timeout(state, left);
                state = waited.unwrap_or_else(PoisonError::into_inner).0;
            }
        }
        state.flush();
        !state.closed
    }

    pub(super) fn close(&self) {
        let mut state = lock(&self.state);
        state.closed = true;
        state.bytes.clear();
        self.wake.notify_one();
    }
}

impl State {
    /// The socket, if there is something that waits for room on it.
    fn stuck_on(&self) -> Option<Arc<TcpStream>> {
        self.socket.as_ref().filter(|_| !self.bytes.is_empty()).map(Arc::clone)
    }

    /// Sends as much as there is room for.
    fn flush(&mut self) {
        let Some(socket) = &self.socket else { return };
        while !self.bytes.is_empty() {
            let (front, _) = self.bytes.as_slices();
            match send(socket, front, SendFlags::DONTWAIT | SendFlags::NOSIGNAL) {
                Ok(sent) => drop(self.bytes.drain(..sent)),
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => return,
                // The receivers see the same, and say why.
                Err(_) => return self.bytes.clear(),
            }
        }
    }
}

fn wait_for_room(socket: &TcpStream) {
    // Whatever this says, the next flush finds out.
    let _ = poll(&mut [PollFd::new(socket, PollFlags::OUT)], Some(&ROOM));
}
