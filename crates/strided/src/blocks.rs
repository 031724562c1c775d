use std::sync::Arc;

use crate::{Error, Pattern, RegionId, Walk};

/// One side of a copy: the bytes that `pattern` visits in each block of a list.
///
/// The list is shared: all regions of a KV cache group name the same ids, so cloning costs a
/// reference count.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Blocks {
    region: RegionId,
    ids: Arc<[u32]>,
    pattern: Pattern,
}

impl Blocks {
    /// The bytes of `pattern` in each block of `ids`, in the order of the list.
    ///
    /// # Errors
    /// [`Error::TooLarge`] when the byte count does not fit 64 bits.
    #[inline]
    pub fn new(
        region: RegionId,
        ids: impl Into<Arc<[u32]>>,
        pattern: Pattern,
    ) -> Result<Self, Error> {
        let ids = ids.into();
        let count = u64::try_from(ids.len()).map_err(|_| Error::TooLarge)?;
        pattern.bytes().checked_mul(count).ok_or(Error::TooLarge)?;
        Ok(Self { region, ids, pattern })
    }

    /// The same walk in the same blocks, in another region and from another first byte on.
    ///
    /// # Errors
    /// [`Error::TooLarge`].
    #[inline]
    pub fn at(&self, region: RegionId, offset: u64) -> Result<Self, Error> {
        Ok(Self { region, pattern: self.pattern.at(offset)?, ids: Arc::clone(&self.ids) })
    }

    /// The region that the ids belong to.
    #[must_use]
    pub fn region(&self) -> RegionId {
        self.region
    }

    /// The block ids, in copy order.
    #[must_use]
    pub fn ids(&self) -> &Arc<[u32]> {
        &self.ids
    }

    /// The walk inside each block.
    #[must_use]
    pub fn pattern(&self) -> &Pattern {
        &self.pattern
    }

    /// Bytes over all blocks.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        // It was counted when the blocks were made.
        self.pattern.bytes() * self.ids.len() as u64
    }

    /// Walks the byte ranges in copy order; `block_stride` is that of the region.
    #[must_use]
    pub fn walk(&self, block_stride: u64) -> Walk {
        Walk::new(self.clone(), block_stride)
    }
}
