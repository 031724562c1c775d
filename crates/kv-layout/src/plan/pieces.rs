//! Which blocks of two ranks hold the same tokens.

use std::ops::Range;
use std::sync::Arc;

use super::assign::{Stripe, gcd};
use super::blocked::Blocked;
use super::planner::{Asked, Planner};
use super::{PlanError, Side, state};
use crate::Kind;

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
    pub(super) source: List,
    pub(super) target: List,
}

/// Block ids, and the largest of them: it stands for all where a region is asked whether it has
/// them, so that a list is looked through once and not once for each layer.
#[derive(Clone, Debug)]
pub(super) struct List {
    pub(super) ids: Arc<[u32]>,
    pub(super) largest: u32,
}

impl From<Arc<[u32]>> for List {
    fn from(ids: Arc<[u32]>) -> Self {
        let largest = ids.iter().fold(0, |largest, &id| id.max(largest));
        Self { ids, largest }
    }
}

/// Two groups whose blocks are paired: all their layers that see equally far share the lists.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Pairing {
    /// Rank of the source.
    pub(super) source: usize,
    /// Its group.
    pub(super) from: u32,
    /// The target's group.
    pub(super) to: u32,
    pub(super) kind: Kind,
    pub(super) stripe: Stripe,
}

/// What is done with the blocks of a pairing.
#[derive(Clone, Debug, Default)]
pub(super) struct Paired {
    /// The pieces that hold a needed token and that the source has.
    pub(super) pieces: Vec<Piece>,
    /// The slots that no copy writes: of the target's blocks from the first one that is visible
    /// and not there already.
    pub(super) holes: Vec<Piece>,
}

/// Every pairing, worked out when the first of its layers asks for it.
pub(super) struct Lists<'a> {
    planner: &'a Planner,
    asked: Asked<'a>,
    made: Vec<Option<Paired>>,
}

impl<'a> Lists<'a> {
    pub(super) fn new(planner: &'a Planner, asked: Asked<'a>) -> Self {
        Self { planner, asked, made: vec![None; planner.pairings.len()] }
    }

    /// Pairing `index`, for the sake of a layer called `layer`.
    pub(super) fn of(&mut self, index: usize, layer: &str) -> Result<&Paired, PlanError> {
        Ok(match &mut self.made[index] {
            Some(made) => made,
            none => {
                let pair = &self.planner.pairings[index];
                none.insert(match pair.kind.is_recurrent() {
                    true => state(self.planner, self.asked, pair, layer)?,
                    false => blocks(self.planner, self.asked, pair, layer)?,
                })
            }
        })
    }
}

fn state(
    planner: &Planner,
    asked: Asked<'_>,
    pair: &Pairing,
    layer: &str,
) -> Result<Paired, PlanError> {
    let mut paired = Paired::default();
    // At the start there is no state; what is there already is not applied again.
    if asked.resume_at == 0 || asked.hit(pair.to) == asked.resume_at {
        return Ok(paired);
    }
    let state =
        |side, rank, tables, group| state::ids(side, rank, tables, group, asked.resume_at, layer);
    let to = state(Side::Target, &planner.own, asked.tables, pair.to)?;
    let source = &planner.sources[pair.source];
    let from = state(Side::Source, source, asked.sources[pair.source], pair.from)?;
    let slots = Slots { from: 0, to: 0, tokens: 1 };
    paired.pieces.extend(Piece::of_stripe(pair.stripe, slots, true, &from, &to));
    Ok(paired)
}

fn blocks(
    planner: &Planner,
    asked: Asked<'_>,
    pair: &Pairing,
    layer: &str,
) -> Result<Paired, PlanError> {
    let (tables, groups) = (asked.sources[pair.source], &planner.sources[pair.source].groups);
    let from = Blocked::new(Side::Source, groups, tables, pair.from, layer)?;
    let groups = &planner.own.groups;
    let to = Blocked::new(Side::Target, groups, asked.tables, pair.to, layer)?;
    if from.size != to.size && (from.context.ways > 1 || to.context.ways > 1) {
        return Err(PlanError::Interleave {
            layer: layer.to_owned(),
            source_value: from.size,
            target_value: to.size,
        });
    }
    let visible = pair.kind.visible_before(asked.resume_at);
    let hit = asked.hit(pair.to);
    let needed = visible.start.max(hit).min(visible.end)..visible.end;
    let pieces = common(&from, &to, &needed, pair.stripe)?;
    let start = to.floor(visible.start).max(hit);
    Ok(Paired { pieces, holes: unwritten(&from, &to, &needed, start)? })
}

/// The slots from token `start` on that the pieces of `needed` do not fill.
fn unwritten(
    from: &Blocked<'_>,
    to: &Blocked<'_>,
    needed: &Range<u64>,
    start: u64,
) -> Result<Vec<Piece>, PlanError> {
    let end = to.end().max(start);
    let moved = match needed.is_empty() {
        true => end..end,
        false => {
            let after = from.ceil(needed.end).min(to.ceil(needed.end));
            from.floor(needed.start).max(to.floor(needed.start))..after
        }
    };
    let mut holes = cut(to, &(start..moved.start))?;
    holes.append(&mut cut(to, &(moved.end.max(start)..end))?);
    Ok(holes)
}

impl Piece {
    /// One stripe of two lists, unless there is nothing in it.
    fn of_stripe(
        stripe: Stripe,
        slots: Slots,
        whole: bool,
        source: &Arc<[u32]>,
        target: &Arc<[u32]>,
    ) -> Option<Self> {
        let (source, target) = stripe.cut(source, target);
        let some = !target.is_empty();
        some.then(|| Self { slots, whole, source: source.into(), target: target.into() })
    }
}

/// The pieces of `tokens` that both sides keep, by the slots that they have in their blocks: the
/// blocks of both sides lie to each other in one period as they do in the next.
fn common(
    from: &Blocked<'_>,
    to: &Blocked<'_>,
    tokens: &Range<u64>,
    stripe: Stripe,
) -> Result<Vec<Piece>, PlanError> {
    from.reaches(tokens.end)?;
    to.reaches(tokens.end)?;
    let mut pieces = Vec::new();
    if tokens.is_empty() {
        // Without a needed token no piece is moved, also none that the empty range lies in.
        return Ok(pieces);
    }
    let ways = lcm(from.context.ways, to.context.ways);
    let period = lcm(from.size, to.size).saturating_mul(ways);
    let start = from.floor(tokens.start).max(to.floor(tokens.start));
    let end = tokens.end.min(start.saturating_add(period));
    let mut at = start;
    while at < end {
        let next = from.next_token(at).max(to.next_token(at));
        if next > at {
            // In blocks of other ranks, however many these are.
            at = next;
            continue;
        }
        let next = from.ceil(at + 1).min(to.ceil(at + 1));
        let slots = slots(from.size, to.size, at, next);
        let whole = slots.tokens == from.size && slots.tokens == to.size;
        let count = (tokens.end - at).div_ceil(period);
        let (source, target) = (from.ids(at, period, count)?, to.ids(at, period, count)?);
        pieces.extend(Piece::of_stripe(stripe, slots, whole, &source, &target));
        at = next;
    }
    Ok(pieces)
}

/// The blocks of `tokens` that one side keeps; of the first and the last one only what lies in
/// the range. At most three pieces: the blocks between the two are whole.
fn cut(of: &Blocked<'_>, tokens: &Range<u64>) -> Result<Vec<Piece>, PlanError> {
    of.reaches(tokens.end)?;
    let size = u64::from(of.size);
    let period = size.saturating_mul(of.context.ways.into());
    let mut pieces = Vec::new();
    let mut at = of.next_token(tokens.start);
    while at < tokens.end {
        let end = of.ceil(at + 1).min(tokens.end);
        let whole = end - at == size;
        let more = if whole { (tokens.end - end) / period } else { 0 };
        let list = List::from(of.ids(at, period, more + 1)?);
        let slots = slots(of.size, of.size, at, end);
        pieces.push(Piece { slots, whole, source: list.clone(), target: list });
        at = of.next_token(end.saturating_add(more.saturating_mul(period)));
    }
    Ok(pieces)
}

/// Tokens `at .. end`, which lie in one block of both sides.
fn slots(from: u32, to: u32, at: u64, end: u64) -> Slots {
    let offset = |size: u32| u32::try_from(at % u64::from(size)).unwrap_or(u32::MAX);
    let tokens = u32::try_from(end - at).unwrap_or(u32::MAX);
    Slots { from: offset(from), to: offset(to), tokens }
}

/// Least common multiple of two numbers that are not 0.
fn lcm(a: u32, b: u32) -> u64 {
    u64::from(a / gcd(a, b)) * u64::from(b)
}
