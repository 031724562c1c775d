//! Mistakes to plant between planner and mover; the inspection must catch each.

use kv_layout::{CacheLayout, Kind, Part, PlacedLayer};
use strided::{BlockCopy, Blocks, Dim, Error, Pattern};

/// One kind of mistake, made in one layer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Mutant {
    /// The last block is not moved.
    BlockDropped,
    /// The first two blocks land in each other's place.
    BlocksSwapped,
    /// The window starts one block late.
    WindowStartOff,
    /// Keys land where values belong and values where keys belong.
    KeyValueExchanged,
    /// The last block lands in a block that the request does not own.
    NeighbourWritten,
    /// Every head but the last lands one head further.
    HeadSliceShifted,
}

impl Mutant {
    /// Plants the mistake in a plan between two engines of `layout`, one copy a layer in the
    /// layout's order. Gives whether there was a layer to make it in.
    ///
    /// # Errors
    /// Those of `strided`, when the layout's pages cannot be walked as the mistake wants.
    pub fn plant(self, layout: &CacheLayout, copies: &mut Vec<BlockCopy>) -> Result<bool, Error> {
        let windowed = |layer: &PlacedLayer| matches!(layer.kind, Kind::SlidingWindow { .. });
        let Some(index) = layout.layers.iter().position(|layer| {
            windowed(layer) == (self == Self::WindowStartOff) && layer.parts.len() == 2
        }) else {
            return Ok(false);
        };
        let neighbour = unowned(copies);
        let copy = copies.remove(index);
        let (page, layer) = (*copy.source().pattern(), &layout.layers[index]);
        let block_size = layout.groups[layer.group as usize].block_size;
        let mistaken = match self {
            Self::BlockDropped => vec![with_ids(&copy, page, page, |ids| {
                ids.pop();
            })?],
            Self::WindowStartOff => vec![with_ids(&copy, page, page, |ids| {
                ids.remove(0);
            })?],
            Self::BlocksSwapped => vec![with_targets(&copy, |ids| ids.swap(0, 1))?],
            Self::NeighbourWritten => vec![with_targets(&copy, |ids| {
                ids.pop();
                ids.push(neighbour);
            })?],
            Self::KeyValueExchanged => {
                let (key, value) = halves(layer, block_size)?;
                vec![with_ids(&copy, key, value, |_| ())?, with_ids(&copy, value, key, |_| ())?]
            }
            Self::HeadSliceShifted => {
                let (from, to) = shifted(layer, block_size)?;
                vec![with_ids(&copy, from, to, |_| ())?]
            }
        };
        copies.splice(index..index, mistaken);
        Ok(true)
    }
}

/// The smallest id that no copy writes to and that is not the null block.
fn unowned(copies: &[BlockCopy]) -> u32 {
    let owned = |id: &u32| copies.iter().any(|copy| copy.target().ids().contains(id));
    (1..).find(|id| !owned(id)).unwrap_or(0)
}

/// The copy with both lists edited alike and other patterns.
fn with_ids(
    copy: &BlockCopy,
    from: Pattern,
    to: Pattern,
    edit: impl Fn(&mut Vec<u32>),
) -> Result<BlockCopy, Error> {
    let edited = |blocks: &Blocks, pattern| {
        let mut ids = blocks.ids().to_vec();
        edit(&mut ids);
        Blocks::new(blocks.region(), ids, pattern)
    };
    BlockCopy::new(edited(copy.source(), from)?, edited(copy.target(), to)?)
}

/// The copy with its target list edited.
fn with_targets(copy: &BlockCopy, edit: impl Fn(&mut Vec<u32>)) -> Result<BlockCopy, Error> {
    let target = copy.target();
    let mut ids = target.ids().to_vec();
    edit(&mut ids);
    BlockCopy::new(copy.source().clone(), Blocks::new(target.region(), ids, *target.pattern())?)
}

/// All keys, and all values, of a page.
fn halves(layer: &PlacedLayer, tokens: u32) -> Result<(Pattern, Pattern), Error> {
    let half = |part: &Part| rows(part, 0, part.unit_count(), tokens, part.bytes);
    Ok((half(&layer.parts[0])?, half(&layer.parts[1])?))
}

/// All heads but the last of a page, and all but the first.
fn shifted(layer: &PlacedLayer, tokens: u32) -> Result<(Pattern, Pattern), Error> {
    let key = &layer.parts[0];
    let bytes = layer.parts.iter().map(|part| part.bytes).sum();
    let slice = |first: u32| rows(key, first, key.unit_count() - 1, tokens, bytes);
    Ok((slice(0)?, slice(1)?))
}

fn rows(part: &Part, first: u32, units: u32, tokens: u32, bytes: u32) -> Result<Pattern, Error> {
    let dims = [
        Dim { count: units, stride: part.unit_stride },
        Dim { count: tokens, stride: part.token_stride },
    ];
    Pattern::new(part.offset + u64::from(first) * part.unit_stride, &dims, u64::from(bytes))
}
