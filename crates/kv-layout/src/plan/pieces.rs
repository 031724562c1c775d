//! Which blocks of two ranks hold the same tokens.

use std::collections::BTreeMap;
use std::ops::Range;
use std::rc::Rc;
use std::sync::Arc;

use super::assign::{Stripe, Take};
use super::{Holding, Plan, PlanError, Side, Target, blocks, bytes};
use crate::{BlockTable, CacheLayout, ContextShare, GroupLayout, PlacedLayer};

/// Tokens that lie in one block of each side.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Slots {
    /// First token within the source's block.
    pub(super) from: u32,
    /// First token within the target's block.
    pub(super) to: u32,
    /// How many tokens.
    pub(super) tokens: u32,
}

/// The same slots in each block of two lists.
#[derive(Clone, Debug)]
pub(super) struct Piece {
    pub(super) slots: Slots,
    /// Whether that is a whole block of both sides.
    pub(super) whole: bool,
    pub(super) source: Arc<[u32]>,
    pub(super) target: Arc<[u32]>,
}

/// Rank of the source, its group, the target's group, first token, share.
type Key = (usize, u32, u32, u64, Stripe);

/// The pieces of each pair of groups, made once and shared by all layers of the pair. The first
/// token is part of the key because layers of one group may see differently far.
pub(super) struct Lists<'a> {
    sources: &'a [Holding<'a>],
    own: &'a CacheLayout,
    target: Target<'a>,
    resume_at: u64,
    made: BTreeMap<Key, Rc<[Piece]>>,
    /// Those of each group that no copy writes, by their first and last token.
    holes: BTreeMap<(u32, u64, u64), Rc<[Piece]>>,
}

impl<'a> Lists<'a> {
    pub(super) fn new(
        sources: &'a [Holding<'a>],
        own: &'a CacheLayout,
        target: Target<'a>,
        resume_at: u64,
    ) -> Self {
        Self { sources, own, target, resume_at, made: BTreeMap::new(), holes: BTreeMap::new() }
    }

    /// The pieces of `wanted` that hold a needed token and that the source of `take` has.
    pub(super) fn pieces(
        &mut self,
        take: &Take<'_>,
        wanted: &PlacedLayer,
    ) -> Result<Rc<[Piece]>, PlanError> {
        let tokens = self.needed(wanted);
        let key = (take.source, take.had.group, wanted.group, tokens.start, take.stripe);
        if let Some(pieces) = self.made.get(&key) {
            return Ok(Rc::clone(pieces));
        }
        let source = self.sources[take.source];
        let from = Blocked::new(Side::Source, source.layout, source.tables, take.had)?;
        let to = Blocked::new(Side::Target, self.own, self.target.tables, wanted)?;
        if from.size != to.size && (from.context.ways > 1 || to.context.ways > 1) {
            return Err(PlanError::Interleave {
                layer: wanted.name.clone(),
                source_value: from.size,
                target_value: to.size,
            });
        }
        let mut pieces = pair(&from, &to, &tokens, Edge::Whole)?;
        for piece in &mut pieces {
            (piece.source, piece.target) = take.stripe.cut(&piece.source, &piece.target);
        }
        pieces.retain(|piece| !piece.target.is_empty());
        let pieces: Rc<[Piece]> = pieces.into();
        self.made.insert(key, Rc::clone(&pieces));
        Ok(pieces)
    }

    /// Adds the slots of `wanted` that no copy writes: of the target's blocks from the first one
    /// that is visible and not there already.
    pub(super) fn zero(
        &mut self,
        take: &Take<'_>,
        wanted: &PlacedLayer,
        plan: &mut Plan,
    ) -> Result<(), PlanError> {
        let source = self.sources[take.source];
        let from = Blocked::new(Side::Source, source.layout, source.tables, take.had)?;
        let to = Blocked::new(Side::Target, self.own, self.target.tables, wanted)?;
        let needed = self.needed(wanted);
        let visible = wanted.kind.visible_before(self.resume_at).start;
        let start = to.floor(visible).max(self.target.hit(wanted.group));
        let end = to.end().max(start);
        let moved = match needed.is_empty() {
            true => end..end,
            false => {
                let after = from.ceil(needed.end).min(to.ceil(needed.end));
                from.floor(needed.start).max(to.floor(needed.start))..after
            }
        };
        for hole in [start..moved.start, moved.end.max(start)..end] {
            for piece in self.hole(&to, &hole)?.iter() {
                for part in &wanted.parts {
                    for walk in bytes::slots(part, piece)? {
                        plan.zero.push(blocks(
                            self.own,
                            Side::Target,
                            wanted,
                            &walk,
                            &piece.target,
                        )?);
                    }
                }
            }
        }
        Ok(())
    }

    /// The pieces of a hole, made once and shared by all layers of the group.
    fn hole(&mut self, to: &Blocked<'_>, hole: &Range<u64>) -> Result<Rc<[Piece]>, PlanError> {
        let key = (to.group, hole.start, hole.end);
        if let Some(pieces) = self.holes.get(&key) {
            return Ok(Rc::clone(pieces));
        }
        let pieces: Rc<[Piece]> = pair(to, to, hole, Edge::Cut)?.into();
        self.holes.insert(key, Rc::clone(&pieces));
        Ok(pieces)
    }

    /// Tokens of a layer that the target does not have and will see.
    fn needed(&self, wanted: &PlacedLayer) -> Range<u64> {
        let visible = wanted.kind.visible_before(self.resume_at);
        let start = visible.start.max(self.target.hit(wanted.group)).min(visible.end);
        start..visible.end
    }
}

/// One side's blocks of one group.
struct Blocked<'a> {
    side: Side,
    group: u32,
    /// Tokens per block; never 0.
    size: u32,
    context: ContextShare,
    table: &'a BlockTable,
}

impl<'a> Blocked<'a> {
    fn new(
        side: Side,
        layout: &CacheLayout,
        tables: &'a [BlockTable],
        layer: &PlacedLayer,
    ) -> Result<Self, PlanError> {
        let group = layer.group;
        let found = layout.groups.get(group as usize).zip(tables.get(group as usize));
        let Some((&GroupLayout { block_size: size @ 1.., context }, table)) = found else {
            let layer = layer.name.clone();
            return Err(PlanError::Layout { side, layer, field: "group", value: group });
        };
        let ContextShare { ways, rank } = context;
        if rank >= ways {
            let layer = layer.name.clone();
            return Err(PlanError::Layout { side, layer, field: "context rank", value: rank });
        }
        let first_token = table.first_token;
        if !first_token.is_multiple_of(u64::from(size)) {
            return Err(PlanError::Misaligned { side, group, first_token, block_size: size });
        }
        Ok(Self { side, group, size, context, table })
    }

    /// The id of block `index` of the sequence, which is this rank's.
    fn id(&self, index: u64) -> Result<u32, PlanError> {
        let place = index.checked_sub(self.first()).map(|blocks| blocks / self.ways());
        let id = place
            .and_then(|place| usize::try_from(place).ok())
            .and_then(|place| self.table.ids.get(place));
        id.copied().ok_or_else(|| self.not_held(index))
    }

    fn ways(&self) -> u64 {
        self.context.ways.into()
    }

    /// Index of the first block from `index` on that is this rank's.
    fn next(&self, index: u64) -> u64 {
        let (ways, rank) = (self.ways(), u64::from(self.context.rank));
        index.saturating_add((rank + ways - index % ways) % ways)
    }

    /// First token from `token` on that is in a block of this rank's.
    fn next_token(&self, token: u64) -> u64 {
        let size = u64::from(self.size);
        self.next(token / size).saturating_mul(size).max(token)
    }

    /// Start of the block that holds `token`.
    fn floor(&self, token: u64) -> u64 {
        token - token % u64::from(self.size)
    }

    /// End of the block that holds the token before `token`.
    fn ceil(&self, token: u64) -> u64 {
        token.div_ceil(u64::from(self.size)).saturating_mul(u64::from(self.size))
    }

    /// Token after the last block of the table.
    fn end(&self) -> u64 {
        let Some(last) = (self.table.ids.len() as u64).checked_sub(1) else {
            return self.table.first_token;
        };
        let block = self.first().saturating_add(last.saturating_mul(self.ways()));
        block.saturating_add(1).saturating_mul(u64::from(self.size))
    }

    /// Refuses tokens behind the next block that the table would list: no walk over the blocks of
    /// a sequence is longer than the tables are.
    fn reaches(&self, token: u64) -> Result<(), PlanError> {
        let blocks = (self.table.ids.len() as u64).saturating_mul(self.ways());
        let next = self.first().saturating_add(blocks);
        if token <= next.saturating_mul(self.size.into()) {
            Ok(())
        } else {
            Err(self.not_held(next))
        }
    }

    /// Index of the first block of the table: the first one from its first token on that is
    /// this rank's.
    fn first(&self) -> u64 {
        self.next(self.table.first_token / u64::from(self.size))
    }

    fn not_held(&self, index: u64) -> PlanError {
        let size = u64::from(self.size);
        PlanError::NotHeld {
            side: self.side,
            group: self.group,
            wanted_start: index.saturating_mul(size),
            wanted_end: index.saturating_add(1).saturating_mul(size),
            held_start: self.table.first_token,
            held_end: self.end(),
        }
    }
}

/// What happens to the pieces that a range of tokens begins and ends in.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Edge {
    /// They belong to it.
    Whole,
    /// Only the tokens of the range do.
    Cut,
}

/// The pieces of `tokens` that both sides keep, by the slots that they have in their blocks.
fn pair(
    from: &Blocked<'_>,
    to: &Blocked<'_>,
    tokens: &Range<u64>,
    edge: Edge,
) -> Result<Vec<Piece>, PlanError> {
    from.reaches(tokens.end)?;
    to.reaches(tokens.end)?;
    let mut found: Vec<(Slots, Vec<u32>, Vec<u32>)> = Vec::new();
    let mut places: BTreeMap<Slots, usize> = BTreeMap::new();
    let mut at = match edge {
        // Without a needed token no piece is moved, also none that the empty range lies in.
        _ if tokens.is_empty() => tokens.end,
        Edge::Whole => from.floor(tokens.start).max(to.floor(tokens.start)),
        Edge::Cut => tokens.start,
    };
    while at < tokens.end {
        let next = from.next_token(at).max(to.next_token(at));
        if next > at {
            // In blocks of other ranks, however many these are.
            at = next;
            continue;
        }
        let end = from.ceil(at + 1).min(to.ceil(at + 1));
        let end = if edge == Edge::Cut { end.min(tokens.end) } else { end };
        let slots = Slots {
            from: offset(at, from.size),
            to: offset(at, to.size),
            tokens: offset(end - at - 1, u32::MAX) + 1,
        };
        let place = *places.entry(slots).or_insert_with(|| {
            found.push((slots, Vec::new(), Vec::new()));
            found.len() - 1
        });
        found[place].1.push(from.id(at / u64::from(from.size))?);
        found[place].2.push(to.id(at / u64::from(to.size))?);
        at = end;
    }
    let whole = |slots: Slots| slots.tokens == from.size && slots.tokens == to.size;
    let piece = |(slots, source, target): (Slots, Vec<u32>, Vec<u32>)| Piece {
        slots,
        whole: whole(slots),
        source: source.into(),
        target: target.into(),
    };
    Ok(found.into_iter().map(piece).collect())
}

/// Position of a token in its block.
fn offset(token: u64, size: u32) -> u32 {
    u32::try_from(token % u64::from(size)).unwrap_or(u32::MAX)
}
