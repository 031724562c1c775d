//! The planner: which blocks a decode engine must read from a prefill engine.

mod error;
mod pages;
mod parts;

use std::collections::BTreeMap;

use strided::BlockCopy;

pub use error::{PlanError, Side};
use pages::{PageLists, Pages};

use crate::{BlockTable, CacheLayout, Kind, PlacedLayer};

/// One engine's share of a request.
#[derive(Clone, Copy, Debug)]
pub struct Holding<'a> {
    /// Where the engine keeps its KV cache.
    pub layout: &'a CacheLayout,
    /// The request's blocks, one table for each group of the layout.
    pub tables: &'a [BlockTable],
}

/// Which tokens are to be had and which are wanted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Span {
    /// The source has keys and values of tokens `0 .. valid`.
    pub valid: u64,
    /// First position that the target computes itself. An engine that recomputes the last
    /// prompt token resumes at `prompt − 1`.
    pub resume_at: u64,
}

/// What to copy, in the order of the target's layers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Plan {
    /// The copies; those of a group share their lists of block ids.
    pub copies: Vec<BlockCopy>,
}

impl Plan {
    /// Bytes over all copies.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.copies.iter().map(BlockCopy::bytes).sum()
    }
}

/// Plans what `target` must read from `source` to compute from `span.resume_at` on.
///
/// Layers are paired by name, blocks by token position and bytes by head: never by index, list
/// length or shape. A page is moved whole if any of its tokens is visible to a query at
/// `resume_at` or later, and not at all otherwise.
///
/// # Errors
/// [`PlanError`], which names the field and both values. Nothing is ever half planned.
pub fn plan(source: Holding<'_>, target: Holding<'_>, span: Span) -> Result<Plan, PlanError> {
    if span.resume_at > span.valid {
        return Err(PlanError::NotValid { resume_at: span.resume_at, valid: span.valid });
    }
    check_tables(Side::Source, source)?;
    check_tables(Side::Target, target)?;
    let by_name: BTreeMap<&str, &PlacedLayer> =
        source.layout.layers.iter().map(|layer| (layer.name.as_str(), layer)).collect();
    let mut lists = PageLists::new(source, target, span.resume_at);
    let mut copies = Vec::with_capacity(target.layout.layers.len());
    for wanted in &target.layout.layers {
        let Some(&had) = by_name.get(wanted.name.as_str()) else {
            return Err(PlanError::MissingLayer { layer: wanted.name.clone() });
        };
        check_kind(had, wanted)?;
        if let Some(pages) = lists.of(had, wanted)? {
            copy_layer(source, target, had, wanted, &pages, &mut copies)?;
        }
    }
    Ok(Plan { copies })
}

fn check_tables(side: Side, holding: Holding<'_>) -> Result<(), PlanError> {
    let (groups, tables) = (holding.layout.groups.len(), holding.tables.len());
    if groups == tables { Ok(()) } else { Err(PlanError::Tables { side, groups, tables }) }
}

fn check_kind(had: &PlacedLayer, wanted: &PlacedLayer) -> Result<(), PlanError> {
    if matches!(wanted.kind, Kind::Recurrent { .. }) {
        return Err(PlanError::Recurrent { layer: wanted.name.clone() });
    }
    PlanError::differs(&wanted.name, "kind", had.kind, wanted.kind)
}

fn copy_layer(
    source: Holding<'_>,
    target: Holding<'_>,
    had: &PlacedLayer,
    wanted: &PlacedLayer,
    pages: &Pages,
    copies: &mut Vec<BlockCopy>,
) -> Result<(), PlanError> {
    for (from, to) in parts::pairs(had, wanted)? {
        let from = from.blocks(pages.block_size, &pages.source)?;
        let to = to.blocks(pages.block_size, &pages.target)?;
        source.layout.check(Side::Source, &wanted.name, &from)?;
        target.layout.check(Side::Target, &wanted.name, &to)?;
        copies.push(BlockCopy::new(from, to)?);
    }
    Ok(())
}
