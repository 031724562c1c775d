//! Which bytes of a block some units and tokens of a part are.

use std::sync::Arc;

use strided::{BlockCopy, Blocks, Dim, Pattern};

use super::PlanError;
use super::pieces::Slots;
use super::shape::{Move, Reading};
use crate::{Part, Tile};

/// A walk inside the blocks of a region, both counted from where a layer's page begins.
#[derive(Clone, Copy, Debug)]
pub(super) struct Walked {
    pub(super) region: u32,
    pub(super) pattern: Pattern,
}

/// The bytes of one copy, on both sides in the same order.
#[derive(Clone, Copy, Debug)]
pub(super) struct Draft {
    pub(super) from: Walked,
    pub(super) to: Walked,
}

/// All that a reading moves of some slots, parts which follow each other in memory as one.
pub(super) fn drafts(reading: &Reading, slots: Slots) -> Result<Vec<Draft>, PlanError> {
    let mut drafts: Vec<Draft> = Vec::new();
    for each in &reading.moves {
        for slots in cuts(each, slots) {
            let next = draft(each, slots)?;
            match drafts.last_mut() {
                Some(last) => match last.join(&next) {
                    Some(both) => *last = both?,
                    None => drafts.push(next),
                },
                None => drafts.push(next),
            }
        }
    }
    Ok(drafts)
}

/// Pieces of a piece, each inside one kernel block of both sides unless these agree.
fn cuts(each: &Move, slots: Slots) -> Vec<Slots> {
    let (from, to) = (each.from.tile, each.to.tile);
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

/// The bytes of some slots that lie in one kernel block of both sides.
fn draft(each: &Move, slots: Slots) -> Result<Draft, PlanError> {
    let count = each.units.end - each.units.start;
    // Either nesting does, as long as both sides walk alike; the source's gives longer pieces
    // there.
    let units_outside = each.from.unit_stride >= each.from.token_stride;
    let walk = |part: &Part, at: u32| {
        let first = each.units.start - part.units.start;
        walk(part, first, count, at, slots.tokens, units_outside)
    };
    Ok(Draft { from: walk(&each.from, slots.from)?, to: walk(&each.to, slots.to)? })
}

/// All units of some slots of the target's own.
pub(super) fn holes(part: &Part, slots: Slots) -> Result<Vec<Walked>, PlanError> {
    let tile = part.tile.map_or(u32::MAX, |tile| tile.tokens.max(1));
    let mut walks = Vec::new();
    let (mut at, end) = (slots.to, slots.to + slots.tokens);
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
    Ok(Walked { region: part.region, pattern })
}

fn add(offset: Option<u64>, count: u32, stride: u64) -> Option<u64> {
    offset?.checked_add(u64::from(count).checked_mul(stride)?)
}

/// Makes the last copy one with the one before it where its bytes continue that one's on both
/// sides: in a row of pages, a layer continues the one before it.
pub(super) fn fuse_last(copies: &mut Vec<BlockCopy>) -> Result<(), PlanError> {
    let joined = match &copies[..] {
        [.., last, next] => join_copies(last, next),
        _ => None,
    };
    if let Some(both) = joined {
        copies.truncate(copies.len() - 2);
        copies.push(both?);
    }
    Ok(())
}

fn join_copies(last: &BlockCopy, next: &BlockCopy) -> Option<Result<BlockCopy, strided::Error>> {
    let same = |a: &Blocks, b: &Blocks| a.region() == b.region() && Arc::ptr_eq(a.ids(), b.ids());
    if !same(last.source(), next.source()) || !same(last.target(), next.target()) {
        return None;
    }
    let patterns = |copy: &BlockCopy| (*copy.source().pattern(), *copy.target().pattern());
    let joined = join(patterns(last), patterns(next))?;
    let blocks =
        |like: &Blocks, pattern| Blocks::new(like.region(), Arc::clone(like.ids()), pattern);
    Some(joined.and_then(|(source, target)| {
        BlockCopy::new(blocks(last.source(), source)?, blocks(last.target(), target)?)
    }))
}

impl Draft {
    /// Both as one, if `next` continues this one.
    fn join(&self, next: &Self) -> Option<Result<Self, strided::Error>> {
        let regions = |draft: &Self| (draft.from.region, draft.to.region);
        let patterns = |draft: &Self| (draft.from.pattern, draft.to.pattern);
        if regions(self) != regions(next) {
            return None;
        }
        let (from, to) = regions(self);
        let joined = join(patterns(self), patterns(next))?;
        Some(joined.map(|(source, target)| Self {
            from: Walked { region: from, pattern: source },
            to: Walked { region: to, pattern: target },
        }))
    }
}

/// Source and target of a copy.
type Pair = (Pattern, Pattern);

/// Two copies as one, where on both sides each element of `next` begins where one of `last` ends.
fn join(last: Pair, next: Pair) -> Option<Result<Pair, strided::Error>> {
    let continues = |a: &Pattern, b: &Pattern| {
        a.dims() == b.dims() && a.offset().checked_add(a.element_len()) == Some(b.offset())
    };
    let joined = |a: Pattern, b: Pattern| {
        Pattern::new(a.offset(), a.dims(), a.element_len().saturating_add(b.element_len()))
    };
    // Each element grows by one of the next copy: both sides must have as many of them.
    let pairs = last.0.elements() == last.1.elements()
        && continues(&last.0, &next.0)
        && continues(&last.1, &next.1);
    pairs.then(|| Ok((joined(last.0, next.0)?, joined(last.1, next.1)?)))
}
