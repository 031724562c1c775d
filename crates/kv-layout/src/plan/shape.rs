//! What layers have in common that differ only in where they lie: who reads which bytes of a
//! page. It is worked out once for all of them.

use std::ops::Range;

use super::PlanError;
use super::assign::{Stripe, Take};
use super::pieces::Piece;
use crate::{Part, PlacedLayer};

/// Layers of one page, read alike.
#[derive(Clone, Debug)]
pub(super) struct Shape {
    /// The target's parts, from where its page begins.
    pub(super) parts: Vec<Part>,
    /// By rank of the source and stripe.
    pub(super) readings: Vec<Reading>,
}

/// What is read of one rank of the source, in the same blocks.
#[derive(Clone, Debug)]
pub(super) struct Reading {
    pub(super) source: usize,
    pub(super) stripe: Stripe,
    pub(super) moves: Vec<Move>,
    /// Whether the inside of a page is its backend's affair.
    opaque: bool,
}

/// Some units of a part, and both places of the part, from where the pages begin.
#[derive(Clone, Debug)]
pub(super) struct Move {
    pub(super) from: Part,
    pub(super) to: Part,
    pub(super) units: Range<u32>,
}

/// Where the page of a layer begins: the least region and the least offset of its parts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Anchor {
    pub(super) region: u32,
    pub(super) offset: u64,
}

impl Anchor {
    pub(super) fn of(layer: &PlacedLayer) -> Self {
        let region = layer.parts.iter().map(|part| part.region).min().unwrap_or(0);
        let offset = layer.parts.iter().map(|part| part.offset).min().unwrap_or(0);
        Self { region, offset }
    }

    /// The part, counted from here.
    fn relative(self, part: &Part) -> Part {
        let (region, offset) = (part.region - self.region, part.offset - self.offset);
        Part { region, offset, ..part.clone() }
    }
}

/// Whether the pages of two layers are alike, wherever they begin.
pub(super) fn same_page(a: &PlacedLayer, b: &PlacedLayer) -> bool {
    let pairs = || a.parts.iter().zip(&b.parts);
    let inside = |part: &Part| (part.bytes, part.unit_stride, part.token_stride, part.tile);
    let moved = |(p, q): (&Part, &Part)| {
        let regions = i64::from(q.region) - i64::from(p.region);
        (regions, i128::from(q.offset) - i128::from(p.offset))
    };
    let first = pairs().next().map(moved);
    let same = |(p, q): (&Part, &Part)| {
        (p.role, &p.units) == (q.role, &q.units)
            && inside(p) == inside(q)
            && Some(moved((p, q))) == first
    };
    a.kind.is_recurrent() == b.kind.is_recurrent()
        && a.packing == b.packing
        && a.parts.len() == b.parts.len()
        && pairs().all(same)
}

impl Shape {
    /// The shape of `wanted`, of which `takes` are taken.
    pub(super) fn new(wanted: &PlacedLayer, mut takes: Vec<Take<'_>>) -> Self {
        let at = Anchor::of(wanted);
        takes.sort_by_key(|take| (take.source, take.stripe));
        let readings =
            takes.chunk_by(|a, b| (a.source, a.stripe) == (b.source, b.stripe)).map(|same| {
                Reading {
                    source: same[0].source,
                    stripe: same[0].stripe,
                    moves: same.iter().map(|take| Move::new(take, at)).collect(),
                    opaque: wanted.packing.is_some(),
                }
            });
        Self {
            parts: wanted.parts.iter().map(|part| at.relative(part)).collect(),
            readings: readings.collect(),
        }
    }
}

impl Move {
    fn new(take: &Take<'_>, at: Anchor) -> Self {
        let from = Anchor::of(take.had).relative(take.part);
        Self { from, to: at.relative(take.fills), units: take.units.clone() }
    }
}

impl Reading {
    /// An opaque page is moved as it is or not at all. `block_sizes` are those of source and
    /// target: where they differ, all else does, and only they mean something to an operator.
    pub(super) fn allows(
        &self,
        layer: &str,
        piece: &Piece,
        block_sizes: (u32, u32),
    ) -> Result<(), PlanError> {
        if !self.opaque {
            return Ok(());
        }
        let (from, to) = block_sizes;
        if from != to {
            let (layer, field) = (layer.to_owned(), "block size");
            let (source_value, target_value) = (from.to_string(), to.to_string());
            return Err(PlanError::Opaque { layer, field, source_value, target_value });
        }
        self.moves.iter().try_for_each(|each| each.whole_page(layer, piece))
    }
}

impl Move {
    fn whole_page(&self, layer: &str, piece: &Piece) -> Result<(), PlanError> {
        let refuse = |field, source_value, target_value| {
            let layer = layer.to_owned();
            Err(PlanError::Opaque { layer, field, source_value, target_value })
        };
        let (from, to) = (&self.from, &self.to);
        if from.units != to.units || self.units != to.units {
            let units = |part: &Part| format!("{:?}", part.units);
            return refuse("units", units(from), units(to));
        }
        // An equal packing that is described by other numbers is not equal.
        let strides = |part: &Part| (part.unit_stride, part.token_stride);
        if strides(from) != strides(to) {
            let both = |part| format!("{:?}", strides(part));
            return refuse("unit and token stride", both(from), both(to));
        }
        if from.tile != to.tile {
            let tokens = |part: &Part| part.tile.map_or(0, |tile| tile.tokens).to_string();
            return refuse("tokens of a kernel block", tokens(from), tokens(to));
        }
        if !piece.whole {
            let token = |at| format!("token {at} of a block");
            return refuse("block", token(piece.slots.from), token(piece.slots.to));
        }
        Ok(())
    }
}
