//! Which bytes of a page a layer takes: heads, tokens, keys and values.

use std::ops::Range;
use std::sync::Arc;

use strided::{Blocks, Dim, Pattern, RegionId};

use super::{PlanError, Side};
use crate::{CacheLayout, Part, PlacedLayer};

/// Some heads of a part.
#[derive(Clone, Copy, Debug)]
pub(super) struct Heads {
    part: Part,
    first: u32,
    count: u32,
    /// Heads outside tokens, or tokens outside heads: both sides walk in the same order.
    heads_outside: bool,
}

/// Pairs what `wanted` keeps with the same heads of `had`: one pair where keys and values lie
/// side by side on both engines, else one of keys and one of values.
pub(super) fn pairs(
    had: &PlacedLayer,
    wanted: &PlacedLayer,
) -> Result<Vec<(Heads, Heads)>, PlanError> {
    let name = &wanted.name;
    PlanError::differs(name, "bytes of a key", had.key.bytes, wanted.key.bytes)?;
    let value_bytes = |layer: &PlacedLayer| layer.value.map_or(0, |part| part.bytes);
    PlanError::differs(name, "bytes of a value", value_bytes(had), value_bytes(wanted))?;
    let had_heads =
        offset_in(&had.heads, &wanted.heads).ok_or_else(|| heads_missing(had, wanted))?;
    let pair = |from: Part, to: Part| {
        let heads_outside = from.head_stride >= from.token_stride;
        let count = wanted.heads.end - wanted.heads.start;
        let from = Heads { part: from, first: had_heads, count, heads_outside };
        (from, Heads { part: to, first: 0, count, heads_outside })
    };
    if let (Some(from), Some(to)) = (side_by_side(had), side_by_side(wanted)) {
        return Ok(vec![pair(from, to)]);
    }
    let mut pairs = vec![pair(had.key, wanted.key)];
    pairs.extend(had.value.zip(wanted.value).map(|(from, to)| pair(from, to)));
    Ok(pairs)
}

/// Where the wanted heads start among those of the source.
fn offset_in(had: &Range<u32>, wanted: &Range<u32>) -> Option<u32> {
    (wanted.start < wanted.end && had.start <= wanted.start && wanted.end <= had.end)
        .then(|| wanted.start - had.start)
}

fn heads_missing(had: &PlacedLayer, wanted: &PlacedLayer) -> PlanError {
    PlanError::NotYet {
        layer: wanted.name.clone(),
        field: "heads",
        source_value: format!("{:?}", had.heads),
        target_value: format!("{:?}", wanted.heads),
    }
}

/// Keys and values as one part, where each value follows its key.
fn side_by_side(layer: &PlacedLayer) -> Option<Part> {
    let (key, Some(value)) = (layer.key, layer.value) else { return Some(layer.key) };
    let follows = value.region == key.region
        && key.offset.checked_add(u64::from(key.bytes)) == Some(value.offset)
        && value.head_stride == key.head_stride
        && value.token_stride == key.token_stride;
    let bytes = key.bytes.checked_add(value.bytes)?;
    follows.then_some(Part { bytes, ..key })
}

impl Heads {
    /// The bytes of these heads in whole pages of `tokens` tokens.
    pub(super) fn blocks(&self, tokens: u32, ids: &Arc<[u32]>) -> Result<Blocks, PlanError> {
        let part = &self.part;
        let skipped = u64::from(self.first).checked_mul(part.head_stride);
        let offset = skipped
            .and_then(|skipped| part.offset.checked_add(skipped))
            .ok_or(strided::Error::TooLarge)?;
        let heads = Dim { count: self.count, stride: part.head_stride };
        let tokens = Dim { count: tokens, stride: part.token_stride };
        let dims = if self.heads_outside { [heads, tokens] } else { [tokens, heads] };
        let pattern = Pattern::new(offset, &dims, u64::from(part.bytes))?;
        Ok(Blocks::new(RegionId(part.region), Arc::clone(ids), pattern)?)
    }
}

impl CacheLayout {
    /// Checks that every byte lies in its region.
    pub(super) fn check(&self, side: Side, layer: &str, blocks: &Blocks) -> Result<(), PlanError> {
        let RegionId(value) = blocks.region();
        let layer = layer.to_owned();
        match self.regions.get(value as usize) {
            None => Err(PlanError::Layout { side, layer, field: "region", value }),
            Some(region) => {
                region.check(blocks).map_err(|why| PlanError::Bytes { side, layer, why })
            }
        }
    }
}
