//! System calls on registered memory: vectored, by pointer, so that no Rust reference to bytes
//! that others write is ever made.

use std::io;
use std::net::TcpStream;
use std::os::fd::AsRawFd;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::pieces::MAX_PIECES;
pub(super) use crate::pieces::Pieces;
use crate::registry::Bound;
use crate::scatter::Cursor;

/// Bytes that a receiver waits for before it wakes up, where so many are sure to come: fewer
/// wake-ups for the same bytes. A link that brings less than this within the heartbeats that
/// may be missed looks dead.
const MARK: usize = 256 << 10;

/// Missing bytes from which on that mark is safe, half of it is, and the least that is worth a
/// call: a packet over loopback has 64 KiB.
const WHOLE: usize = 2 * MARK;
const HALF: usize = MARK;
const LEAST: usize = MARK / 2;

/// A side of a transfer in registered memory.
pub(super) type Portion<'a> = crate::portion::Portion<'a, Bound>;

/// Lines up at most `limit` bytes from the cursor, leaves one piece free, and says how many it
/// took.
fn line_up(pieces: &mut Pieces, cursor: &mut Cursor<'_>, limit: u64) -> u64 {
    let mut taken = 0;
    while pieces.count() < MAX_PIECES - 1
        && let Some(slice) = cursor.next_slice(limit - taken)
    {
        pieces.push(slice.ptr(), slice.len());
        taken += slice.len() as u64;
    }
    taken
}

/// The message of what is not dealt with.
fn message(pieces: &mut Pieces) -> libc::msghdr {
    let rest = pieces.rest();
    // SAFETY: a `msghdr` is plain data, for which zeros mean "nothing".
    let mut message: libc::msghdr = unsafe { std::mem::zeroed() };
    message.msg_iov = rest.as_mut_ptr();
    message.msg_iovlen = rest.len();
    message
}

/// Sends `head`, the portion if there is one, and `tail`. Where the socket has no room, the kernel waits for it as
/// long as it takes, or `wait` does.
pub(super) fn send(
    socket: &TcpStream,
    pieces: &mut Pieces,
    head: &[u8],
    portion: Option<Portion<'_>>,
    tail: &[u8],
    mut wait: Option<&mut dyn FnMut() -> io::Result<()>>,
) -> io::Result<()> {
    let flags = libc::MSG_NOSIGNAL | if wait.is_some() { libc::MSG_DONTWAIT } else { 0 };
    let mut cursor = portion.map(Portion::cursor);
    let mut left = portion.map_or(0, |portion| u64::from(portion.len()));
    pieces.clear();
    pieces.push(head.as_ptr().cast_mut(), head.len());
    loop {
        left -= cursor.as_mut().map_or(0, |cursor| line_up(pieces, cursor, left));
        if left == 0 {
            pieces.push(tail.as_ptr().cast_mut(), tail.len());
        }
        if pieces.is_empty() {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        while !pieces.is_empty() {
            let message = message(pieces);
            // SAFETY: the pieces point to `head`, `tail` and memory of `portion.scatter`, all
            // borrowed until this function returns; the kernel only reads from them.
            let sent =
                retried(|| unsafe { libc::sendmsg(socket.as_raw_fd(), &raw const message, flags) });
            match (sent, &mut wait) {
                (Ok(sent), _) => pieces.advance(sent),
                (Err(why), Some(wait)) if why.kind() == io::ErrorKind::WouldBlock => wait()?,
                (Err(why), _) => return Err(why),
            }
        }
        if left == 0 {
            return Ok(());
        }
        pieces.clear();
    }
}

/// Receives the portion, and as much of `next` as has followed it already, whose length is
/// returned. Each call that brought something counts as a sign of life.
pub(super) fn receive(
    socket: &TcpStream,
    pieces: &mut Pieces,
    portion: Portion<'_>,
    next: &mut [u8],
    life: &AtomicU64,
) -> io::Result<usize> {
    let mut cursor = portion.cursor();
    let mut left = u64::from(portion.len());
    let mut missing = usize::try_from(portion.len()).map_err(|_| io::ErrorKind::InvalidInput)?;
    let (next, next_len) = (next.as_mut_ptr(), next.len());
    let mut mark = LowWater::new(socket);
    pieces.clear();
    loop {
        mark.fit(missing)?;
        if pieces.is_empty() {
            pieces.clear();
            left -= line_up(pieces, &mut cursor, left);
            if left == 0 {
                pieces.push(next, next_len);
            }
        }
        let mut message = message(pieces);
        // SAFETY: the pieces point to memory of `portion.scatter`, whose `Memory` promises that
        // it may be written at any time, and to `next`; both are borrowed until this function
        // returns, and `next` is not touched otherwise.
        let got = retried(|| unsafe { libc::recvmsg(socket.as_raw_fd(), &raw mut message, 0) })?;
        if got == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        life.fetch_add(1, Ordering::Relaxed);
        if got >= missing {
            mark.fit(0)?;
            return Ok(got - missing);
        }
        missing -= got;
        pieces.advance(got);
    }
}

/// Bytes of a C int, on every machine that this runs on.
const INT_LEN: libc::socklen_t = 4;

/// The receive low-water mark of a socket: a reader that sleeps is woken for 256 KiB, not for each
/// packet. `benches` and the command line use it for plain sockets, to be fair to them.
#[derive(Debug)]
pub struct LowWater<'a> {
    socket: &'a TcpStream,
    mark: usize,
}

impl<'a> LowWater<'a> {
    /// Leaves the mark where it is, which is a byte.
    #[must_use]
    pub fn new(socket: &'a TcpStream) -> Self {
        Self { socket, mark: 1 }
    }

    /// Raises the mark as far as is safe, and lowers it again towards the end: a call that has
    /// copied some bytes already sleeps until a whole mark of *further* bytes is queued, so two
    /// marks must still be to come of the `missing` bytes.
    ///
    /// # Errors
    /// The system's.
    pub fn fit(&mut self, missing: usize) -> io::Result<()> {
        let wanted = match missing {
            0..LEAST => 1,
            LEAST..HALF => LEAST / 2,
            HALF..WHOLE => HALF / 2,
            WHOLE.. => MARK,
        };
        if wanted == self.mark {
            return Ok(());
        }
        let mark = libc::c_int::try_from(wanted).unwrap_or(1);
        // SAFETY: the option is an int; its address and size are passed, and it outlives the
        // call.
        let failed = unsafe {
            libc::setsockopt(
                self.socket.as_raw_fd(),
                libc::SOL_SOCKET,
                libc::SO_RCVLOWAT,
                (&raw const mark).cast(),
                INT_LEN,
            )
        };
        if failed != 0 {
            return Err(io::Error::last_os_error());
        }
        self.mark = wanted;
        Ok(())
    }
}

/// Makes a system call again for as long as signals interrupt it.
fn retried(mut call: impl FnMut() -> isize) -> io::Result<usize> {
    loop {
        if let Ok(bytes) = usize::try_from(call()) {
            return Ok(bytes);
        }
        let error = io::Error::last_os_error();
        if error.kind() != io::ErrorKind::Interrupted {
            return Err(error);
        }
    }
}
