use std::fmt;

use crate::{Blocks, Error};

/// Names one region of a peer's KV cache. The number has no meaning beyond its owner's list.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RegionId(pub u32);

impl fmt::Display for RegionId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// Equally spaced blocks: block `id` starts at byte `id × block_stride` of the region.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Region {
    /// Bytes from the start of one block to the start of the next.
    pub block_stride: u64,
    /// How many blocks there are; valid ids are below it.
    pub block_count: u32,
}

impl Region {
    /// Bytes from the first block to the end of the last.
    ///
    /// # Errors
    /// [`Error::TooLarge`] when that does not fit 64 bits.
    pub fn bytes(&self) -> Result<u64, Error> {
        self.block_stride.checked_mul(u64::from(self.block_count)).ok_or(Error::TooLarge)
    }

    /// Checks that every byte of `blocks` lies inside this region, each within its own block.
    ///
    /// # Errors
    /// [`Error::BeyondBlock`] or [`Error::UnknownBlock`], naming the first offender.
    pub fn check(&self, blocks: &Blocks) -> Result<(), Error> {
        let region = blocks.region();
        let end = blocks.pattern().end();
        if end > self.block_stride {
            return Err(Error::BeyondBlock { region, end, block_stride: self.block_stride });
        }
        self.bytes()?;
        match blocks.ids().iter().find(|&&id| id >= self.block_count) {
            Some(&id) => Err(Error::UnknownBlock { region, id, count: self.block_count }),
            None => Ok(()),
        }
    }
}
