//! The planner: which bytes a decode engine must read from a prefill engine.

mod assign;
mod blocked;
mod bytes;
mod error;
mod names;
mod pieces;
mod planner;
mod request;
mod shape;
mod state;

use std::collections::BTreeSet;

use strided::{BlockCopy, Blocks};

use assign::{Ranks, Row};
pub use error::{PlanError, Side};
pub use planner::Planner;

use crate::{BlockTable, CacheLayout};

/// One rank's share of a request.
#[derive(Clone, Copy, Debug)]
pub struct Holding<'a> {
    /// Where the rank keeps its KV cache.
    pub layout: &'a CacheLayout,
    /// The request's blocks, one table for each group of the layout.
    pub tables: &'a [BlockTable],
}

/// The rank that wants to read, among those of its engine.
#[derive(Clone, Copy, Debug)]
pub struct Target<'a> {
    /// All ranks of the engine, whose shapes decide who reads what from whom.
    pub ranks: &'a [&'a CacheLayout],
    /// Which of them this is.
    pub rank: usize,
    /// Its blocks, one table for each group and no block twice: those of tokens that it has
    /// already may be left out at the front.
    pub tables: &'a [BlockTable],
    /// Tokens that it has already, from position 0 on, one number for each group; none where
    /// the list is empty.
    pub hits: &'a [u64],
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

/// What one rank of the target engine must do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Plan {
    /// What to copy from each rank of the source, in its order; empty for ranks that have
    /// nothing for this one.
    pub reads: Vec<Vec<BlockCopy>>,
    /// Slots of the target's blocks, from the first page that is written on, that no copy
    /// writes: an engine whose kernels must not meet stale numbers there zeroes them.
    pub zero: Vec<Blocks>,
}

impl Plan {
    /// Bytes over all copies.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.copies().map(BlockCopy::bytes).fold(0, u64::saturating_add)
    }

    /// The copies from all ranks.
    pub fn copies(&self) -> impl Iterator<Item = &BlockCopy> {
        self.reads.iter().flatten()
    }
}

/// Plans what rank `target.rank` must read from the ranks of `sources` to compute from
/// `span.resume_at` on.
///
/// Layers are paired by name, blocks by token position, bytes by role and unit: never by index,
/// list length or shape. Between blocks of equal size a page is moved whole if any of its
/// tokens is visible to a query at `resume_at` or later, and not at all otherwise; between
/// blocks of different size the same holds for the pieces that lie in one block of each side.
/// A state is moved only if it has seen exactly `resume_at` tokens.
///
/// Whoever plans many requests between the same ranks makes a [`Planner`] once instead.
///
/// # Errors
/// [`PlanError`], which names the field and both values. Nothing is ever half planned.
pub fn plan(sources: &[Holding<'_>], target: Target<'_>, span: Span) -> Result<Plan, PlanError> {
    let layouts: Vec<&CacheLayout> = sources.iter().map(|source| source.layout).collect();
    let tables: Vec<&[BlockTable]> = sources.iter().map(|source| source.tables).collect();
    let planner = Planner::new(&layouts, target.ranks, target.rank)?;
    planner.plan(&tables, target.tables, target.hits, span)
}

/// Which ranks of the target engine read each rank of the source engine, from the shapes alone:
/// whoever is named sends its word when it is done, also where a request leaves it nothing to
/// read. A rank whose set is empty is told by somebody else that it may free.
///
/// # Errors
/// As [`plan`], for what the shapes alone decide.
pub fn readers(
    sources: &[&CacheLayout],
    targets: &[&CacheLayout],
) -> Result<Vec<BTreeSet<usize>>, PlanError> {
    let ranks = Ranks::new(sources, targets)?;
    let mut readers = vec![BTreeSet::new(); sources.len()];
    let mut row = Row::default();
    for (rank, layout) in targets.iter().enumerate() {
        let twins = planner::twins(&layout.layers);
        for index in (0..layout.layers.len()).filter(|index| !twins.contains_key(index)) {
            let wanted = ranks.fill(&mut row, rank, index);
            for take in ranks.takes(rank, wanted, &row)? {
                readers[take.source].insert(rank);
            }
        }
    }
    Ok(readers)
}
