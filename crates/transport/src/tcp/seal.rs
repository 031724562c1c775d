use std::io::{self, BufRead, Read, Write};
use std::net::TcpStream;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use rustls::Connection;

use super::wire::Portion;
use crate::session::{Binding, binding};
use crate::sync::lock;

/// Bytes that are encrypted and sent at once, and asked of the socket at once.
const CHUNK: usize = 64 << 10;

/// Bytes that are asked of the socket at least: a hello or a frame, with what seals it.
const SIP: usize = 1 << 10;

/// TLS on one socket, whose handshake is over. One thread reads and one writes at a time.
pub(super) struct Seal {
    /// Held while something is computed, never while a call on the socket may sleep: whoever
    /// waits for the peer's next word is in nobody's way.
    session: Mutex<Connection>,
    /// What has come and is not decrypted yet; the reader's own.
    inward: Mutex<Inward>,
    /// The writer's own.
    outward: Mutex<Outward>,
}

/// As large as what was asked of it: of most streams a source hears one hello, and no more.
#[derive(Default)]
struct Inward {
    bytes: Vec<u8>,
    start: usize,
    end: usize,
}

#[derive(Default)]
struct Outward {
    /// Of a portion, as it is in memory.
    plain: Vec<u8>,
    sealed: Vec<u8>,
}

impl Seal {
    /// Shakes hands before `deadline`, however slowly the peer's bytes drip in.
    pub(super) fn open(
        socket: &TcpStream,
        mut session: Connection,
        deadline: Instant,
    ) -> io::Result<Self> {
        shake_hands(socket, &mut session, deadline)?;
        Ok(Self {
            session: Mutex::new(session),
            inward: Mutex::default(),
            outward: Mutex::default(),
        })
    }

    /// What names this session to both ends.
    pub(super) fn binding(&self) -> io::Result<Binding> {
        let session = lock(&self.session);
        let named = match &*session {
            Connection::Client(client) => binding(client),
            Connection::Server(server) => binding(server),
        };
        named.map_err(io::Error::other)
    }

    /// Encrypts `bytes` onto the end of `sealed`.
    pub(super) fn encrypt(&self, mut bytes: &[u8], sealed: &mut impl Write) -> io::Result<()> {
        let mut session = lock(&self.session);
        loop {
            while session.wants_write() {
                session.write_tls(sealed)?;
            }
            if bytes.is_empty() {
                return Ok(());
            }
            let taken = session.writer().write(bytes)?;
            bytes = &bytes[taken..];
        }
    }

    pub(super) fn write_all(&self, socket: &TcpStream, bytes: &[u8]) -> io::Result<()> {
        let Outward { sealed, .. } = &mut *lock(&self.outward);
        self.push(socket, bytes, sealed)
    }

    /// Sends `head`, the portion if there is one, and `tail`.
    pub(super) fn send(
        &self,
        socket: &TcpStream,
        head: &[u8],
        portion: Option<Portion<'_>>,
        tail: &[u8],
    ) -> io::Result<()> {
        let Outward { plain, sealed } = &mut *lock(&self.outward);
        let mut cursor = portion.map(Portion::cursor);
        let mut left = portion.map_or(0, |portion| u64::from(portion.len()));
        plain.resize(CHUNK, 0);
        let mut have = head.len();
        plain[..have].copy_from_slice(head);
        while left > 0 {
            let room = plain.len() - have;
            let slice = cursor.as_mut().and_then(|at| at.next_slice(left.min(room as u64)));
            let slice = slice.ok_or(io::ErrorKind::InvalidInput)?;
            let copied = slice.read_into(&mut plain[have..]);
            left -= copied as u64;
            have += copied;
            if have == plain.len() {
                self.push(socket, plain, sealed)?;
                have = 0;
            }
        }
        plain.truncate(have);
        plain.extend(tail);
        self.push(socket, plain, sealed)
    }

    fn push(&self, mut socket: &TcpStream, bytes: &[u8], sealed: &mut Vec<u8>) -> io::Result<()> {
        sealed.clear();
        self.encrypt(bytes, sealed)?;
        socket.write_all(sealed)
    }

    /// Some decrypted bytes; 0 where no more will come. `Interrupted` says to look at the clock
    /// and to come again: what the socket brought is nothing whole yet.
    pub(super) fn read(&self, socket: &TcpStream, bytes: &mut [u8]) -> io::Result<usize> {
        self.take(socket, bytes.len(), |plain| {
            let len = plain.len().min(bytes.len());
            bytes[..len].copy_from_slice(&plain[..len]);
            len
        })
    }

    /// Receives the portion.
    pub(super) fn receive(
        &self,
        socket: &TcpStream,
        portion: Portion<'_>,
        life: &AtomicU64,
    ) -> io::Result<()> {
        let (mut cursor, mut left) = (portion.cursor(), u64::from(portion.len()));
        while left > 0 {
            let mut short = false;
            let place = |plain: &[u8]| {
                let mut placed = 0;
                while placed < plain.len() && left > 0 {
                    let limit = left.min((plain.len() - placed) as u64);
                    let Some(slice) = cursor.next_slice(limit) else {
                        short = true;
                        break;
                    };
                    let copied = slice.write_from(&plain[placed..]);
                    placed += copied;
                    left -= copied as u64;
                }
                placed
            };
            match self.take(socket, CHUNK, place) {
                _ if short => return Err(io::ErrorKind::InvalidInput.into()),
                Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
                Ok(_) => {
                    life.fetch_add(1, Ordering::Relaxed);
                }
                Err(why) if why.kind() == io::ErrorKind::Interrupted => {}
                Err(why) => return Err(why),
            }
        }
        Ok(())
    }

    /// Shows `taker`, who wants about so many, the next decrypted bytes, and is told how many of
    /// them it took; gives 0 where no more will come. If there are none it waits for the socket
    /// once, and for no more than that: whoever drips a record that never ends, or sends empty
    /// ones, must not keep the caller from its deadlines.
    fn take(
        &self,
        mut socket: &TcpStream,
        wanted: usize,
        mut taker: impl FnMut(&[u8]) -> usize,
    ) -> io::Result<usize> {
        let mut inward = lock(&self.inward);
        if let Some(taken) = self.decrypted(&mut inward, &mut taker)? {
            return Ok(taken);
        }
        // All of what came is dealt with.
        let room = inward.bytes.len().max(wanted.clamp(SIP, CHUNK));
        inward.bytes.resize(room, 0);
        (inward.start, inward.end) = (0, socket.read(&mut inward.bytes)?);
        // Nobody says a last word here: what is cut off shows in what is missing.
        if inward.end == 0 {
            return Ok(0);
        }
        let taken = self.decrypted(&mut inward, &mut taker)?;
        taken.ok_or_else(|| io::ErrorKind::Interrupted.into())
    }

    /// The same, of what has come already; `None` if there is nothing whole among it.
    fn decrypted(
        &self,
        inward: &mut Inward,
        taker: &mut impl FnMut(&[u8]) -> usize,
    ) -> io::Result<Option<usize>> {
        let mut session = lock(&self.session);
        loop {
            match session.reader().fill_buf() {
                Ok(plain) => {
                    let taken = if plain.is_empty() { 0 } else { taker(plain) };
                    session.reader().consume(taken);
                    return Ok(Some(taken));
                }
                Err(why) if why.kind() == io::ErrorKind::WouldBlock => {}
                Err(why) => return Err(why),
            }
            let mut rest = &inward.bytes[inward.start..inward.end];
            if rest.is_empty() {
                return Ok(None);
            }
            inward.start += session.read_tls(&mut rest)?;
            session.process_new_packets().map_err(broken)?;
        }
    }
}

fn shake_hands(
    mut socket: &TcpStream,
    session: &mut Connection,
    deadline: Instant,
) -> io::Result<()> {
    loop {
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(io::ErrorKind::TimedOut.into());
        }
        socket.set_read_timeout(Some(left))?;
        socket.set_write_timeout(Some(left))?;
        let moved = if session.wants_write() {
            session.write_tls(&mut socket)
        } else if session.is_handshaking() {
            session.read_tls(&mut socket)
        } else {
            return socket.set_write_timeout(None);
        };
        match moved {
            Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
            Ok(_) => {}
            Err(why) => match why.kind() {
                io::ErrorKind::Interrupted => {}
                io::ErrorKind::WouldBlock => return Err(io::ErrorKind::TimedOut.into()),
                _ => return Err(why),
            },
        }
        session.process_new_packets().map_err(|why| {
            // So that the peer can tell its user what is wrong.
            let _ = session.write_tls(&mut socket);
            broken(why)
        })?;
    }
}

fn broken(why: rustls::Error) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, why)
}

#[cfg(test)]
#[path = "seal_tests.rs"]
mod tests;
