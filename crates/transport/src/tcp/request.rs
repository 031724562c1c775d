//! What a reader asks for, on the wire; integers little-endian:
//!
//! ```text
//! lists: u32, then for each   length: u32, ids: u32 × length
//! blocks: u32, then for each  region: u32, list: u32, offset: u64, element length: u64,
//!                             dimensions: u32, then for each  count: u32, stride: u64
//! ```
//!
//! Lists that blocks share are sent once, and stay shared on the other side.

use std::collections::HashMap;
use std::sync::Arc;

use strided::{Blocks, Dim, MAX_DIMS, Pattern, RegionId};

use super::MAX_REQUEST_BYTES;

/// The bytes of a request, or `None` if they are more than a source takes.
pub(crate) fn encode<'a>(blocks: impl Iterator<Item = &'a Blocks> + Clone) -> Option<Vec<u8>> {
    let mut lists: Vec<&Arc<[u32]>> = Vec::new();
    let mut known: HashMap<*const u32, usize> = HashMap::new();
    for blocks in blocks.clone() {
        known.entry(blocks.ids().as_ptr()).or_insert_with(|| {
            lists.push(blocks.ids());
            lists.len() - 1
        });
    }
    let ids: usize = lists.iter().map(|ids| ids.len()).sum();
    if ids > MAX_REQUEST_BYTES / 4 {
        return None;
    }
    let mut bytes = Vec::new();
    put_count(&mut bytes, lists.len())?;
    for ids in lists {
        put_count(&mut bytes, ids.len())?;
        bytes.extend(ids.iter().flat_map(|id| id.to_le_bytes()));
    }
    put_count(&mut bytes, blocks.clone().count())?;
    for blocks in blocks {
        let list = *known.get(&blocks.ids().as_ptr())?;
        put_blocks(&mut bytes, blocks, list)?;
    }
    (bytes.len() <= MAX_REQUEST_BYTES).then_some(bytes)
}

fn put_count(bytes: &mut Vec<u8>, count: usize) -> Option<()> {
    bytes.extend(u32::try_from(count).ok()?.to_le_bytes());
    Some(())
}

fn put_blocks(bytes: &mut Vec<u8>, blocks: &Blocks, list: usize) -> Option<()> {
    let pattern = blocks.pattern();
    bytes.extend(blocks.region().0.to_le_bytes());
    put_count(bytes, list)?;
    bytes.extend(pattern.offset().to_le_bytes());
    bytes.extend(pattern.element_len().to_le_bytes());
    put_count(bytes, pattern.dims().len())?;
    for dim in pattern.dims() {
        bytes.extend(dim.count.to_le_bytes());
        bytes.extend(dim.stride.to_le_bytes());
    }
    Some(())
}

/// Reads a request; `None` if it is not one. Nothing is allocated for more than was sent.
pub(crate) fn decode(bytes: &[u8]) -> Option<Vec<Blocks>> {
    let mut rest = Rest(bytes);
    let count = rest.count(4)?;
    let lists: Vec<Arc<[u32]>> = (0..count).map(|_| rest.ids()).collect::<Option<_>>()?;
    let count = rest.count(28)?;
    let blocks = (0..count).map(|_| rest.blocks(&lists)).collect::<Option<_>>()?;
    rest.0.is_empty().then_some(blocks)
}

/// What is left of a request.
struct Rest<'a>(&'a [u8]);

impl Rest<'_> {
    fn array<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (array, rest) = self.0.split_first_chunk()?;
        self.0 = rest;
        Some(*array)
    }

    fn u32(&mut self) -> Option<u32> {
        self.array().map(u32::from_le_bytes)
    }

    fn u64(&mut self) -> Option<u64> {
        self.array().map(u64::from_le_bytes)
    }

    /// A count of things that have at least `least` bytes each, and so must still be there.
    fn count(&mut self, least: usize) -> Option<usize> {
        let count = usize::try_from(self.u32()?).ok()?;
        (count.checked_mul(least)? <= self.0.len()).then_some(count)
    }

    fn ids(&mut self) -> Option<Arc<[u32]>> {
        let count = self.count(4)?;
        let (ids, rest) = self.0.split_at_checked(count * 4)?;
        self.0 = rest;
        let (ids, _) = ids.as_chunks();
        Some(ids.iter().map(|id| u32::from_le_bytes(*id)).collect())
    }

    fn blocks(&mut self, lists: &[Arc<[u32]>]) -> Option<Blocks> {
        let region = RegionId(self.u32()?);
        let ids = lists.get(usize::try_from(self.u32()?).ok()?)?;
        let (offset, len) = (self.u64()?, self.u64()?);
        let rank = self.count(12)?;
        if rank > MAX_DIMS {
            return None;
        }
        let mut dims = [Dim { count: 1, stride: 0 }; MAX_DIMS];
        for dim in dims.iter_mut().take(rank) {
            *dim = Dim { count: self.u32()?, stride: self.u64()? };
        }
        let pattern = Pattern::new(offset, &dims[..rank], len).ok()?;
        Blocks::new(region, Arc::clone(ids), pattern).ok()
    }
}

#[cfg(test)]
#[path = "request_tests.rs"]
mod tests;
