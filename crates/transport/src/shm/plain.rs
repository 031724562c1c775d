//! What the machine can do without this crate, to be measured beside it.

use std::io;

use super::sys::{copy_plainly, read_process};
use crate::Memory;
use crate::memory::Slice;
use crate::pieces::{MAX_PIECES, Pieces};

/// A block, from the start of its memory on either side.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Move {
    /// First byte in the source.
    pub from: u64,
    /// First byte in the target.
    pub to: u64,
    /// Bytes.
    pub len: u64,
}

/// Reads blocks out of another process's memory that begins at `base`, with as few calls of
/// `process_vm_readv` as there can be.
///
/// # Errors
/// The system's answer, or a block that a side does not have.
pub fn read(process: u32, base: u64, moves: &[Move], target: &dyn Memory) -> io::Result<()> {
    let process = i32::try_from(process).map_err(|_| io::ErrorKind::InvalidInput)?;
    let (mut near, mut far) = (Pieces::new(), Pieces::new());
    for moves in moves.chunks(MAX_PIECES) {
        near.clear();
        far.clear();
        let mut bytes = 0;
        for block in moves {
            let to = slice(target, block.to, block.len)?;
            let from = base.checked_add(block.from).ok_or(io::ErrorKind::InvalidInput)?;
            let from = usize::try_from(from).map_err(|_| io::ErrorKind::InvalidInput)?;
            near.push(to.ptr(), to.len());
            far.push(std::ptr::without_provenance_mut(from), to.len());
            bytes += to.len();
        }
        // SAFETY: the near pieces lie in `target`, as was just seen, which lives until the end
        // and may be written at any time by the contract of `Memory`.
        let read = unsafe { read_process(process, &mut near, &mut far) }?;
        if read != bytes {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
    }
    Ok(())
}

/// Copies blocks from one memory into another with `memcpy`.
///
/// # Errors
/// A block that a side does not have, or two sides that overlap.
pub fn copy(source: &dyn Memory, moves: &[Move], target: &dyn Memory) -> io::Result<()> {
    let (from, to) = (source.base().as_ptr().addr(), target.base().as_ptr().addr());
    if from < to.saturating_add(target.len()) && to < from.saturating_add(source.len()) {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    for block in moves {
        let (from, to) =
            (slice(source, block.from, block.len)?, slice(target, block.to, block.len)?);
        // SAFETY: both slices have so many bytes, as was just seen, of memories that do not
        // overlap and live until the end; others may use the bytes meanwhile, by the contract of
        // `Memory`, which is nothing to a function that the compiler does not know.
        unsafe { copy_plainly(from.ptr(), to.ptr(), to.len()) };
    }
    Ok(())
}

fn slice(memory: &dyn Memory, offset: u64, len: u64) -> io::Result<Slice<'_>> {
    Slice::of(memory, offset, len).ok_or_else(|| io::ErrorKind::InvalidInput.into())
}
