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
    bytes: u64,
}

impl Blocks {
    /// The bytes of `pattern` in each block of `ids`, in the order of the list.
    ///
    /// # Errors
    /// [`Error::TooLarge`] when the byte count does not fit 64 bits.
    pub fn new(
        region: RegionId,
        ids: impl Into<Arc<[u32]>>,
        pattern: Pattern,
    ) -> Result<Self, Error> {
        let ids = ids.into();
        let count = u64::try_from(ids.len()).map_err(|_| Error::TooLarge)?;
        let bytes = pattern.bytes().checked_mul(count).ok_or(Error::TooLarge)?;
        Ok(Self { region, ids, pattern, bytes })
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
        self.bytes
    }

    /// Walks the byte ranges in copy order; `block_stride` is that of the region.
    #[must_use]
    pub fn walk(&self, block_stride: u64) -> Walk {
        Walk::new(self.clone(), block_stride)
    }
}
