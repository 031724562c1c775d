use std::fmt;

use crate::{Blocks, Error, Pattern};

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
        self.check_pattern(blocks.region(), blocks.pattern())?;
        self.check_ids(blocks.region(), blocks.ids())
    }

    /// The half of [`check`](Self::check) that asks whether a pattern stays within its block;
    /// `region` is the name to give in the error.
    ///
    /// # Errors
    /// [`Error::BeyondBlock`] or [`Error::TooLarge`].
    #[inline]
    pub fn check_pattern(&self, region: RegionId, pattern: &Pattern) -> Result<(), Error> {
        let (end, block_stride) = (pattern.end(), self.block_stride);
        if end > block_stride {
            return Err(Error::BeyondBlock { region, end, block_stride });
        }
        self.bytes().map(drop)
    }

    /// The half of [`check`](Self::check) that asks whether blocks exist: the only one that
    /// grows with their number, and the same for all patterns of a list.
    ///
    /// # Errors
    /// [`Error::UnknownBlock`], naming the first offender.
    #[inline]
    pub fn check_ids(&self, region: RegionId, ids: &[u32]) -> Result<(), Error> {
        match ids.iter().find(|&&id| id >= self.block_count) {
            Some(&id) => Err(Error::UnknownBlock { region, id, count: self.block_count }),
            None => Ok(()),
        }
    }
}
