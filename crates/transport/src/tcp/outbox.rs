use std::collections::VecDeque;
use std::net::{Shutdown, TcpStream};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::Instant;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::{SendFlags, send};

use super::stream::Stream;
use crate::sync::lock;

/// How long the pulse looks away while a socket has no room.
const ROOM: Timespec = Timespec { tv_sec: 0, tv_nsec: 20_000_000 };

/// What a reader has to say to a source. Whoever adds something urgent sends it at once if there is
/// room, and never blocks; all else waits for the pulse of the connection.
pub(super) struct Outbox {
    state: Mutex<State>,
    wake: Condvar,
}

struct State {
    /// None until the connection is made.
    stream: Option<Arc<Stream>>,
    /// As they go over the wire, once the connection is made.
    bytes: VecDeque<u8>,
    /// When the pulse wakes up by itself.
    alarm: Instant,
    closed: bool,
}

impl Outbox {
    pub(super) fn new() -> Self {
        let state =
            State { stream: None, bytes: VecDeque::new(), alarm: Instant::now(), closed: false };
        Self { state: Mutex::new(state), wake: Condvar::new() }
    }

    /// The connection is made: from now on, bytes leave.
    pub(super) fn attach(&self, stream: Arc<Stream>) {
        let mut state = lock(&self.state);
        let plain = Vec::from(std::mem::take(&mut state.bytes));
        state.stream = Some(stream);
        state.add(&plain);
        state.flush();
        self.wake.notify_one();
    }

    /// Adds `bytes`, and wakes the pulse if it would sleep beyond `deadline`. They leave from this
    /// thread if they are `urgent`: that takes longer than to wake the pulse, which sends them
    /// otherwise, but they are there earlier.
    pub(super) fn push(&self, bytes: &[u8], deadline: Option<Instant>, urgent: bool) {
        let mut state = lock(&self.state);
        if state.closed {
            return;
        }
        let idle = state.bytes.is_empty();
        state.add(bytes);
        if idle && urgent {
            state.flush();
        }
        if !state.bytes.is_empty() || deadline.is_some_and(|deadline| deadline < state.alarm) {
            drop(state);
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
        state.flush();
        if let Some(stream) = state.stuck_on() {
            drop(state);
            wait_for_room(stream.socket());
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
    /// Lines bytes up for the wire. What was said under TLS is encrypted in the order in which it
    /// leaves, for the other side counts.
    fn add(&mut self, bytes: &[u8]) {
        let seal = self.stream.as_ref().and_then(|stream| Some((stream.socket(), stream.seal()?)));
        let Some((socket, seal)) = seal else { return self.bytes.extend(bytes) };
        if seal.encrypt(bytes, &mut self.bytes).is_err() {
            // Something is missing from now on. The receivers see the end, and say so.
            let _ = socket.shutdown(Shutdown::Both);
        }
    }

    /// The socket, if there is something that waits for room on it.
    fn stuck_on(&self) -> Option<Arc<Stream>> {
        self.stream.as_ref().filter(|_| !self.bytes.is_empty()).map(Arc::clone)
    }

    /// Sends as much as there is room for.
    fn flush(&mut self) {
        let Some(stream) = &self.stream else { return };
        while !self.bytes.is_empty() {
            let (front, _) = self.bytes.as_slices();
            match send(stream.socket(), front, SendFlags::DONTWAIT | SendFlags::NOSIGNAL) {
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
