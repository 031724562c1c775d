use crate::{Blocks, Error, RegionId, Walk};

/// Bytes to copy from the blocks of one engine to those of another: the n-th byte that the
/// source walks goes to the n-th byte that the target walks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BlockCopy {
    source: Blocks,
    target: Blocks,
}

/// Contiguous bytes on both sides.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct RangePair {
    /// First byte, from the start of the source's region.
    pub source: u64,
    /// First byte, from the start of the target's region.
    pub target: u64,
    /// Length in bytes, never 0.
    pub len: u64,
}

impl BlockCopy {
    /// Pairs the ids one to one.
    ///
    /// # Errors
    /// [`Error::BlockCounts`] or [`Error::ByteCounts`] when the sides do not pair.
    #[inline]
    pub fn new(source: Blocks, target: Blocks) -> Result<Self, Error> {
        let (s, t) = (source.ids().len(), target.ids().len());
        if s != t {
            return Err(Error::BlockCounts { source: s, target: t });
        }
        let (s, t) = (source.pattern().bytes(), target.pattern().bytes());
        if s != t {
            return Err(Error::ByteCounts { source: s, target: t });
        }
        Ok(Self { source, target })
    }

    /// The same copy between other places: each a region and a first byte within the block.
    ///
    /// # Errors
    /// [`Error::TooLarge`].
    #[inline]
    pub fn at(&self, source: (RegionId, u64), target: (RegionId, u64)) -> Result<Self, Error> {
        let source = self.source.at(source.0, source.1)?;
        Ok(Self { source, target: self.target.at(target.0, target.1)? })
    }

    /// Where the bytes come from.
    #[must_use]
    pub fn source(&self) -> &Blocks {
        &self.source
    }

    /// Where the bytes go.
    #[must_use]
    pub fn target(&self) -> &Blocks {
        &self.target
    }

    /// Bytes over all blocks.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.source.bytes()
    }

    /// The contiguous pieces, lazily; the strides are those of the two regions.
    #[must_use]
    pub fn ranges(&self, source_stride: u64, target_stride: u64) -> RangePairs {
        RangePairs {
            source: self.source.walk(source_stride),
            target: self.target.walk(target_stride),
        }
    }
}

/// Iterator of [`BlockCopy::ranges`]; allocates nothing.
#[derive(Clone, Debug)]
pub struct RangePairs {
    source: Walk,
    target: Walk,
}

impl Iterator for RangePairs {
    type Item = RangePair;

    fn next(&mut self) -> Option<RangePair> {
        let len = self.source.peek()?.len.min(self.target.peek()?.len);
        let source = self.source.take_up_to(len)?;
        let target = self.target.take_up_to(len)?;
        Some(RangePair { source: source.offset, target: target.offset, len })
    }
}
