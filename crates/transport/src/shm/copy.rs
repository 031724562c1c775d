//! Bytes go from a source's memory into registered memory of this process.

use std::io;

use super::atlas::{Plot, Run, Way};
use super::process::{Process, ended};
use super::sys::{copy_bytes, read_process};
use super::unusable::Unusable;
use crate::TransferError;
use crate::pieces::Pieces;
use crate::portion::Portion;
use crate::registry::Bound;
use crate::scatter::Cursor;

/// Pieces of one call on either side: 16 to 1024 take the same time, for large blocks and small.
const PIECES: usize = 512;

/// Why a portion was not copied.
#[derive(Debug)]
pub(super) enum Fault {
    /// One side's memory is not there: this transfer ends.
    Unmapped,
    /// No more can be copied from this source.
    Source(TransferError),
}

/// The pieces of a thread's next call.
pub(super) struct Hands {
    near: Pieces,
    far: Pieces,
}

/// What is left of the far side of a portion.
struct Rest<'a> {
    cursor: Cursor<'a, Plot>,
    left: u64,
    /// Bytes that are had in another way than those before them.
    held: Option<Run>,
}

impl Hands {
    pub(super) fn new() -> Self {
        Self { near: Pieces::new(), far: Pieces::new() }
    }

    /// Copies a portion, whose two sides have equally many bytes.
    pub(super) fn copy(
        &mut self,
        process: Option<&Process>,
        near: Portion<'_, Bound>,
        far: Portion<'_, Plot>,
    ) -> Result<(), Fault> {
        let (mut to, mut missing) = (near.cursor(), u64::from(near.len()));
        let mut from = Rest { cursor: far.cursor(), left: u64::from(far.len()), held: None };
        self.near.clear();
        self.far.clear();
        let mut way = Way::Mapped;
        while missing > 0 {
            if self.far.is_empty() {
                way = from.line_up(&mut self.far).ok_or(Fault::Unmapped)?;
            }
            if self.near.is_empty() {
                line_up(&mut self.near, &mut to, missing);
            }
            let copied = match way {
                Way::Mapped => self.copy_mapped(),
                Way::Foreign => self.read(process)?,
            };
            if copied == 0 {
                return Err(Fault::Unmapped);
            }
            self.near.advance(copied);
            self.far.advance(copied);
            missing -= (copied as u64).min(missing);
        }
        Ok(())
    }

    /// Copies the first piece as far as both sides have it.
    fn copy_mapped(&mut self) -> usize {
        let (Some(near), Some(far)) = (self.near.rest().first(), self.far.rest().first()) else {
            return 0;
        };
        let len = near.iov_len.min(far.iov_len);
        // SAFETY: the near piece lies in registered memory and the far one in a mapping, both
        // proven by their cursors and held by the portions for as long as this call; both may be
        // used by others meanwhile, which `copy_bytes` allows. The mapping is this crate's own
        // and handed to nobody, so the two do not overlap as addresses.
        unsafe { copy_bytes(far.iov_base.cast(), near.iov_base.cast(), len) };
        len
    }

    fn read(&mut self, process: Option<&Process>) -> Result<usize, Fault> {
        let Some(process) = process else {
            return Err(Fault::Source(lost(&Unusable::NoSharedPids)));
        };
        loop {
            // SAFETY: the near pieces lie in registered memory, which the portion holds and
            // which may be written at any time by the contract of `Memory`.
            let read = unsafe { read_process(process.pid, &mut self.near, &mut self.far) };
            match read {
                Err(why) if why.kind() == io::ErrorKind::Interrupted => {}
                other => return other.map_err(|why| fault(&why)),
            }
        }
    }
}

fn fault(why: &io::Error) -> Fault {
    match why.raw_os_error() {
        Some(libc::EFAULT) => Fault::Unmapped,
        Some(libc::ESRCH) => Fault::Source(ended()),
        _ => Fault::Source(lost(&Unusable::refused(why))),
    }
}

fn lost(why: &Unusable) -> TransferError {
    TransferError::Lost { why: why.to_string() }
}

impl Rest<'_> {
    /// Lines up what comes next and is had in one way; `None` if nothing does.
    fn line_up(&mut self, pieces: &mut Pieces) -> Option<Way> {
        pieces.clear();
        let first = self.next()?;
        pieces.push(first.ptr, first.len);
        while pieces.count() < PIECES
            && let Some(run) = self.next()
        {
            if run.way != first.way {
                self.held = Some(run);
                break;
            }
            pieces.push(run.ptr, run.len);
        }
        Some(first.way)
    }

    fn next(&mut self) -> Option<Run> {
        self.held.take().or_else(|| {
            let run = self.cursor.next_slice(self.left)?;
            self.left -= run.len as u64;
            Some(run)
        })
    }
}

fn line_up(pieces: &mut Pieces, cursor: &mut Cursor<'_>, mut left: u64) {
    pieces.clear();
    while pieces.count() < PIECES
        && let Some(slice) = cursor.next_slice(left)
    {
        pieces.push(slice.ptr(), slice.len());
        left -= slice.len() as u64;
    }
}
