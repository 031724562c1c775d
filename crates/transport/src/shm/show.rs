//! What a source tells of a registration, on the wire; integers little-endian:
//!
//! ```text
//! address of the first byte: u64, bytes: u64, 1 if the file comes along, else 0: u64,
//! then for each region  id: u32, blocks: u32, offset: u64, block stride: u64
//! ```

use strided::{Region, RegionId};

use super::{BoundRegion, Memory};

/// Bytes in front of the regions, and of a region.
const HEAD: usize = 24;
pub(super) const REGION_LEN: usize = 24;

/// A registration of a source. Its regions lie inside it.
pub(super) struct Show {
    pub(super) base: u64,
    pub(super) len: u64,
    /// The file of the memory came along.
    pub(super) shared: bool,
    /// With the offset of block 0.
    pub(super) regions: Vec<(RegionId, u64, Region)>,
}

pub(super) fn encode(memory: &dyn Memory, regions: &[BoundRegion]) -> Vec<u8> {
    let base = memory.base().as_ptr().addr() as u64;
    let head = [base, memory.len() as u64, u64::from(memory.shared().is_some())];
    let mut bytes = Vec::with_capacity(HEAD + regions.len() * REGION_LEN);
    bytes.extend(head.iter().flat_map(|word| word.to_le_bytes()));
    for BoundRegion { id, offset, region } in regions {
        bytes.extend(id.0.to_le_bytes());
        bytes.extend(region.block_count.to_le_bytes());
        bytes.extend(offset.to_le_bytes());
        bytes.extend(region.block_stride.to_le_bytes());
    }
    bytes
}

/// Reads it; `None` if it is not one, or a region reaches beyond the memory, or the memory
/// beyond the address space.
pub(super) fn decode(bytes: &[u8]) -> Option<Show> {
    let (head, rest) = bytes.split_first_chunk::<HEAD>()?;
    let (base, len, shared) = (word(head, 0)?, word(head, 8)?, word(head, 16)?);
    let (regions, rest) = rest.as_chunks::<REGION_LEN>();
    if shared > 1 || !rest.is_empty() || base.checked_add(len)? > u64::MAX >> 1 {
        return None;
    }
    let regions = regions.iter().map(|bytes| region(bytes, len)).collect::<Option<_>>()?;
    Some(Show { base, len, shared: shared == 1, regions })
}

fn region(bytes: &[u8; REGION_LEN], len: u64) -> Option<(RegionId, u64, Region)> {
    let (id, count) = bytes.first_chunk::<8>()?.split_at_checked(4)?;
    let id = RegionId(u32::from_le_bytes(id.try_into().ok()?));
    let block_count = u32::from_le_bytes(count.try_into().ok()?);
    let (offset, block_stride) = (word(bytes, 8)?, word(bytes, 16)?);
    let region = Region { block_stride, block_count };
    let inside = offset.checked_add(region.bytes().ok()?)? <= len;
    inside.then_some((id, offset, region))
}

fn word(bytes: &[u8], at: usize) -> Option<u64> {
    Some(u64::from_le_bytes(*bytes.get(at..)?.first_chunk()?))
}

#[cfg(test)]
#[path = "show_tests.rs"]
mod tests;
