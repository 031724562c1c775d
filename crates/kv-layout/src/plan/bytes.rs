//! Which bytes of a block some units and tokens of a part are.

use std::sync::Arc;

use strided::{BlockCopy, Blocks, Dim, Pattern, RegionId};

use super::PlanError;
use super::assign::Take;
use super::pieces::{Piece, Slots};
use crate::{Part, PlacedLayer, Role, Tile};

/// A walk inside the blocks of a region.
#[derive(Clone, Copy, Debug)]
pub(super) struct Walked {
    pub(super) region: RegionId,
    pub(super) pattern: Pattern,
}

/// Pieces of a piece, each inside one kernel block of both sides unless these agree.
pub(super) fn cuts(take: &Take<'_>, wanted: &Part, slots: Slots) -> Vec<Slots> {
    let (from, to) = (take.part.tile, wanted.tile);
    let size = |tile: Option<Tile>| tile.map_or(u32::MAX, |tile| tile.tokens.max(1));
    let (from, to) = (size(from), size(to));
    let aligned = |at: u32, size: u32| at.is_multiple_of(size);
    let agree = from == to
        && aligned(slots.from, from)
        && aligned(slots.to, from)
        && aligned(slots.tokens, from);
    if agree {
        return vec![slots];
    }
    let mut cuts = Vec::new();
    let mut done = 0;
    while done < slots.tokens {
        let (at_from, at_to) = (slots.from + done, slots.to + done);
        let room = (from - at_from % from).min(to - at_to % to);
        let tokens = room.min(slots.tokens - done);
        cuts.push(Slots { from: at_from, to: at_to, tokens });
        done += tokens;
    }
    cuts
}

/// The bytes that a take moves of some slots, on both sides in the same order.
pub(super) fn pair(
    take: &Take<'_>,
    wanted: &PlacedLayer,
    part: &Part,
    piece: &Piece,
    slots: Slots,
) -> Result<(Walked, Walked), PlanError> {
    if wanted.packing.is_some() {
        whole_page(take, wanted, part, piece)?;
    }
    let count = take.units.end - take.units.start;
    // Either nesting does, as long as both sides walk alike; the source's gives longer pieces
    // there.
    let units_outside = take.part.unit_stride >= take.part.token_stride;
    let walk = |part: &Part, at: u32| {
        let first = take.units.start - part.units.start;
        walk(part, first, count, at, slots.tokens, units_outside)
    };
    Ok((walk(take.part, slots.from)?, walk(part, slots.to)?))
}

/// An opaque page is moved as it is or not at all.
fn whole_page(
    take: &Take<'_>,
    wanted: &PlacedLayer,
    part: &Part,
    piece: &Piece,
) -> Result<(), PlanError> {
    let refuse = |field, source_value, target_value| {
        let layer = wanted.name.clone();
        Err(PlanError::Opaque { layer, field, source_value, target_value })
    };
    let had = take.part;
    if had.units != part.units || take.units != part.units {
        let units = |part: &Part| format!("{:?}", part.units);
        return refuse("units", units(had), units(part));
    }
    // An equal packing that is described by other numbers is not equal.
    let strides = |part: &Part| (part.unit_stride, part.token_stride);
    if strides(had) != strides(part) {
        let both = |part| format!("{:?}", strides(part));
        return refuse("unit and token stride", both(had), both(part));
    }
    if had.tile != part.tile {
        let tokens = |part: &Part| part.tile.map_or(0, |tile| tile.tokens).to_string();
        return refuse("tokens of a kernel block", tokens(had), tokens(part));
    }
    if !piece.whole {
        let token = |at| format!("token {at} of a block");
        return refuse("block", token(piece.slots.from), token(piece.slots.to));
    }
    Ok(())
}

/// All units of some slots of the target's own.
pub(super) fn slots(part: &Part, piece: &Piece) -> Result<Vec<Walked>, PlanError> {
    let tile = part.tile.map_or(u32::MAX, |tile| tile.tokens.max(1));
    let mut walks = Vec::new();
    let (mut at, end) = (piece.slots.to, piece.slots.to + piece.slots.tokens);
    while at < end {
        let rest = end - at;
        // Whole kernel blocks are one walk, however many they are.
        let tokens = match at % tile {
            0 if rest >= tile => rest - rest % tile,
            within => (tile - within).min(rest),
        };
        walks.push(walk(part, 0, part.unit_count(), at, tokens, true)?);
        at += tokens;
    }
    Ok(walks)
}

/// Units `first ..` of tokens `at ..` in a block.
fn walk(
    part: &Part,
    first: u32,
    units: u32,
    at: u32,
    tokens: u32,
    units_outside: bool,
) -> Result<Walked, PlanError> {
    let (mut offset, mut at, mut tokens) = (Some(part.offset), at, tokens);
    let mut dims = Vec::with_capacity(3);
    if let Some(tile) = part.tile {
        let size = tile.tokens.max(1);
        offset = add(offset, at / size, tile.stride);
        at %= size;
        if tokens > size {
            // `cuts` saw to it that these are whole kernel blocks.
            dims.push(Dim { count: tokens / size, stride: tile.stride });
            tokens = size;
        }
    }
    let offset = add(add(offset, first, part.unit_stride), at, part.token_stride);
    let offset = offset.ok_or(strided::Error::TooLarge)?;
    let units = Dim { count: units, stride: part.unit_stride };
    let tokens = Dim { count: tokens, stride: part.token_stride };
    dims.extend(if units_outside { [units, tokens] } else { [tokens, units] });
    let pattern = Pattern::new(offset, &dims, u64::from(part.bytes))?;
    Ok(Walked { region: RegionId(part.region), pattern })
}

fn add(offset: Option<u64>, count: u32, stride: u64) -> Option<u64> {
    offset?.checked_add(u64::from(count).checked_mul(stride)?)
}

/// Adds a copy, as one with an earlier one (from `first` on) where its bytes continue that
/// one's on both sides: values that follow their keys, the parts of a state.
pub(super) fn push(
    copies: &mut Vec<BlockCopy>,
    first: usize,
    copy: BlockCopy,
) -> Result<(), PlanError> {
    if let Some(last) = copies[first..].last_mut()
        // Each element grows by one of the next copy: both sides must have as many of them.
        && last.source().pattern().elements() == last.target().pattern().elements()
        && let Some(source) = join(last.source(), copy.source())
        && let Some(target) = join(last.target(), copy.target())
    {
        *last = BlockCopy::new(source?, target?)?;
    } else {
        copies.push(copy);
    }
    Ok(())
}

/// Elements of `next` that each begin where one of `last` ends.
fn join(last: &Blocks, next: &Blocks) -> Option<Result<Blocks, strided::Error>> {
    let (a, b) = (last.pattern(), next.pattern());
    let continues = last.region() == next.region()
        && Arc::ptr_eq(last.ids(), next.ids())
        && a.dims() == b.dims()
        && a.offset() + a.element_len() == b.offset();
    continues.then(|| {
        let pattern = Pattern::new(a.offset(), a.dims(), a.element_len() + b.element_len())?;
        Blocks::new(last.region(), Arc::clone(last.ids()), pattern)
    })
}

/// The part of `wanted` that a take fills.
pub(super) fn filled(wanted: &PlacedLayer, role: Role) -> Option<&Part> {
    wanted.parts.iter().find(|part| part.role == role)
}
