//! System calls on registered memory: vectored, by pointer, so that no Rust reference to bytes
//! that others write is ever made.

use std::io;
use std::net::TcpStream;
use std::os::fd::AsRawFd;
use std::sync::atomic::{AtomicU64, Ordering};

use super::PORTION;
use crate::scatter::{Cursor, Scatter};

/// Pieces that the kernel takes in one call.
const MAX_PIECES: usize = 1024;

/// Bytes of a transfer that go over one socket in one run.
#[derive(Clone, Copy)]
pub(super) struct Portion<'a> {
    scatter: &'a Scatter,
    /// Position of the first byte in the scatter.
    at: u64,
    len: u32,
}

impl<'a> Portion<'a> {
    /// How many portions there are.
    pub(super) fn count(scatter: &Scatter) -> u64 {
        scatter.bytes().div_ceil(u64::from(PORTION))
    }

    /// The portion of that index, if there are so many.
    pub(super) fn nth(scatter: &'a Scatter, index: u64) -> Option<Self> {
        let at = index.checked_mul(u64::from(PORTION))?;
        let rest = scatter.bytes().checked_sub(at).filter(|&rest| rest > 0)?;
        let len = u32::try_from(rest).map_or(PORTION, |rest| rest.min(PORTION));
        Some(Self { scatter, at, len })
    }

    pub(super) fn len(self) -> u32 {
        self.len
    }

    /// A cursor that stands at its first byte.
    pub(super) fn cursor(self) -> Cursor<'a> {
        self.scatter.cursor(self.at)
    }
}

/// Bytes that a receiver waits for before it wakes up, where so many are sure to come: fewer
/// wake-ups for the same bytes. A link that brings less than this within the heartbeats that
/// may be missed looks dead.
const MARK: usize = 256 << 10;

/// The pieces of one call; kept by a thread so as not to be allocated each time.
pub(super) struct Pieces {
    list: Vec<libc::iovec>,
    /// How many at the front are dealt with.
    done: usize,
}

impl Pieces {
    pub(super) fn new() -> Self {
        Self { list: Vec::with_capacity(MAX_PIECES), done: 0 }
    }

    fn clear(&mut self) {
        self.list.clear();
        self.done = 0;
    }

    fn is_empty(&self) -> bool {
        self.done == self.list.len()
    }

    fn push(&mut self, ptr: *mut u8, len: usize) {
        if len > 0 {
            self.list.push(libc::iovec { iov_base: ptr.cast(), iov_len: len });
        }
    }

    /// Lines up at most `limit` bytes from the cursor, leaves one piece free, and says how many
    /// it took.
    fn line_up(&mut self, cursor: &mut Cursor<'_>, limit: u64) -> u64 {
        let mut taken = 0;
        while self.list.len() < MAX_PIECES - 1
            && let Some(slice) = cursor.next_slice(limit - taken)
        {
            self.push(slice.ptr(), slice.len());
            taken += slice.len() as u64;
        }
        taken
    }

    /// Strikes off `bytes` from the front.
    fn advance(&mut self, mut bytes: usize) {
        while let Some(piece) = self.list.get_mut(self.done)
            && bytes > 0
        {
            if bytes < piece.iov_len {
                piece.iov_base = piece.iov_base.wrapping_byte_add(bytes);
                piece.iov_len -= bytes;
                return;
            }
            bytes -= piece.iov_len;
            self.done += 1;
        }
    }

    /// The message of what is not dealt with.
    fn message(&mut self) -> libc::msghdr {
        let rest = self.list.get_mut(self.done..).unwrap_or_default();
        // SAFETY: a `msghdr` is plain data, for which zeros mean "nothing".
        let mut message: libc::msghdr = unsafe { std::mem::zeroed() };
        message.msg_iov = rest.as_mut_ptr();
        message.msg_iovlen = rest.len();
        message
    }
}

/// Sends `head`, the portion and `tail`, waiting for room as long as it takes.
pub(super) fn send(
    socket: &TcpStream,
    pieces: &mut Pieces,
    head: &[u8],
    portion: Portion<'_>,
    tail: &[u8],
) -> io::Result<()> {
    let mut cursor = portion.cursor();
    let mut left = u64::from(portion.len);
    pieces.clear();
    pieces.push(head.as_ptr().cast_mut(), head.len());
    loop {
        left -= pieces.line_up(&mut cursor, left);
        if left == 0 {
            pieces.push(tail.as_ptr().cast_mut(), tail.len());
        }
        if pieces.is_empty() {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        while !pieces.is_empty() {
            let message = pieces.message();
            // SAFETY: the pieces point to `head`, `tail` and memory of `portion.scatter`, all
            // borrowed until this function returns; the kernel only reads from them.
            let sent = retried(|| unsafe {
                libc::sendmsg(socket.as_raw_fd(), &raw const message, libc::MSG_NOSIGNAL)
            });
            pieces.advance(sent?);
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
    let mut left = u64::from(portion.len);
    let mut missing = usize::try_from(portion.len).map_err(|_| io::ErrorKind::InvalidInput)?;
    let (next, next_len) = (next.as_mut_ptr(), next.len());
    let mut mark = Mark { socket, raised: false };
    pieces.clear();
    loop {
        mark.fit(missing)?;
        if pieces.is_empty() {
            pieces.clear();
            left -= pieces.line_up(&mut cursor, left);
            if left == 0 {
                pieces.push(next, next_len);
            }
        }
        let mut message = pieces.message();
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

/// The low-water mark of a socket.
struct Mark<'a> {
    socket: &'a TcpStream,
    raised: bool,
}

impl Mark<'_> {
    /// Raises the mark while it is safe: a call that has copied some bytes already sleeps until
    /// a whole mark of *further* bytes is queued, so two marks must still be to come.
    fn fit(&mut self, missing: usize) -> io::Result<()> {
        let raise = missing >= 2 * MARK;
        if raise == self.raised {
            return Ok(());
        }
        let mark = if raise { libc::c_int::try_from(MARK).unwrap_or(1) } else { 1 };
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
        self.raised = raise;
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
