use std::collections::VecDeque;
use std::io::{self, IoSlice};
use std::mem::MaybeUninit;
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::sync::{Arc, Mutex};

use rustix::io::Errno;
use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags, sendmsg};

use crate::Memory;
use crate::bell::Bell;
use crate::sync::lock;

/// What one side has to say to the other. Whoever adds something sends it at once if there is
/// room, and never blocks; the rest waits for the thread of the connection.
pub(super) struct Outbox {
    state: Mutex<State>,
    bell: Bell,
}

#[derive(Default)]
struct State {
    socket: Option<Arc<UnixStream>>,
    /// The greeting is over.
    open: bool,
    closed: bool,
    waiting: VecDeque<Message>,
    bytes: usize,
}

struct Message {
    bytes: Vec<u8>,
    sent: usize,
    /// Its file goes along with the first byte.
    memory: Option<Arc<dyn Memory>>,
}

impl Outbox {
    pub(super) fn new() -> io::Result<Self> {
        Ok(Self { state: Mutex::default(), bell: Bell::new()? })
    }

    /// Rings when the thread of the connection has something to look after.
    pub(super) fn bell(&self) -> &Bell {
        &self.bell
    }

    /// Takes in a socket, so that [`close`](Self::close) reaches it from any thread. False if it
    /// was closed before.
    pub(super) fn adopt(&self, socket: Arc<UnixStream>) -> bool {
        let mut state = lock(&self.state);
        state.socket = Some(socket);
        !state.closed
    }

    /// The peer is known: from now on, bytes leave.
    pub(super) fn open(&self) {
        let mut state = lock(&self.state);
        state.open = true;
        state.flush();
    }

    pub(super) fn push(&self, bytes: Vec<u8>, memory: Option<Arc<dyn Memory>>) {
        let mut state = lock(&self.state);
        if state.closed {
            return;
        }
        let idle = state.waiting.is_empty();
        state.bytes += bytes.len();
        state.waiting.push_back(Message { bytes, sent: 0, memory });
        if idle && state.open {
            state.flush();
            if !state.waiting.is_empty() {
                self.bell.ring();
            }
        }
    }

    /// Sends what there is room for, and says how many bytes are left.
    pub(super) fn flush(&self) -> usize {
        let mut state = lock(&self.state);
        if state.open {
            state.flush();
        }
        state.bytes
    }

    /// Ends the connection: the thread that waits on its socket wakes up.
    pub(super) fn close(&self) {
        let mut state = lock(&self.state);
        state.closed = true;
        state.forget();
        if let Some(socket) = state.socket.take() {
            // It fails only if the other side has shut it already.
            let _ = socket.shutdown(Shutdown::Both);
        }
        self.bell.ring();
    }
}

impl State {
    fn flush(&mut self) {
        let Some(socket) = self.socket.clone() else { return };
        while let Some(message) = self.waiting.front_mut() {
            match message.send(&socket) {
                Ok(sent) => self.bytes -= sent,
                Err(Errno::INTR) => continue,
                Err(Errno::AGAIN) => return,
                // Whoever hears sees the same, and says why.
                Err(_) => return self.forget(),
            }
            if message.sent == message.bytes.len() {
                self.waiting.pop_front();
            }
        }
    }

    fn forget(&mut self) {
        self.waiting.clear();
        self.bytes = 0;
    }
}

impl Message {
    fn send(&mut self, socket: &UnixStream) -> Result<usize, Errno> {
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut control = SendAncillaryBuffer::new(&mut space);
        let file = self.memory.as_ref().filter(|_| self.sent == 0);
        let file = file.and_then(|memory| memory.shared()).map(|file| [file]);
        if let Some(file) = &file {
            control.push(SendAncillaryMessage::ScmRights(file));
        }
        let rest = self.bytes.get(self.sent..).unwrap_or_default();
        let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
        let sent = sendmsg(socket, &[IoSlice::new(rest)], &mut control, flags)?;
        self.sent += sent;
        Ok(sent)
    }
}
