//! The planner: which bytes a decode engine must read from a prefill engine.

mod assign;
mod bytes;
mod error;
mod pieces;
mod state;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use strided::{BlockCopy, Blocks};

use assign::{Sources, Take};
pub use error::{PlanError, Side};
use pieces::Lists;

use crate::{BlockTable, CacheLayout, PlacedLayer};

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
        self.copies().map(BlockCopy::bytes).sum()
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
/// # Errors
/// [`PlanError`], which names the field and both values. Nothing is ever half planned.
pub fn plan(sources: &[Holding<'_>], target: Target<'_>, span: Span) -> Result<Plan, PlanError> {
    if span.resume_at > span.valid {
        return Err(PlanError::NotValid { resume_at: span.resume_at, valid: span.valid });
    }
    let own = target.own()?;
    for source in sources {
        check_tables(Side::Source, source.layout, source.tables)?;
    }
    check_tables(Side::Target, own, target.tables)?;
    let layouts: Vec<&CacheLayout> = sources.iter().map(|source| source.layout).collect();
    let assigned = Sources::new(&layouts, target.ranks)?;
    let mut lists = Lists::new(sources, own, target, span.resume_at);
    let mut plan = Plan { reads: vec![Vec::new(); sources.len()], zero: Vec::new() };
    let mut places = BTreeMap::new();
    for wanted in &own.layers {
        if let Some(other) = places.insert(place(wanted), wanted) {
            // Layers that share their bytes are moved once.
            assigned.share_too(wanted, other)?;
            continue;
        }
        let takes = assigned.of(target.rank, wanted)?;
        if wanted.kind.is_recurrent() {
            state::copy(sources, target, own, wanted, &takes, span.resume_at, &mut plan)?;
        } else {
            copy_layer(&layouts, own, wanted, &takes, &mut lists, &mut plan)?;
        }
    }
    Ok(plan)
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
    let assigned = Sources::new(sources, targets)?;
    let mut readers = vec![BTreeSet::new(); sources.len()];
    for (rank, layout) in targets.iter().enumerate() {
        for wanted in &layout.layers {
            for take in assigned.of(rank, wanted)? {
                readers[take.source].insert(rank);
            }
        }
    }
    Ok(readers)
}

impl<'a> Target<'a> {
    fn own(&self) -> Result<&'a CacheLayout, PlanError> {
        let (rank, ranks) = (self.rank, self.ranks.len());
        self.ranks.get(rank).copied().ok_or(PlanError::Rank { rank, ranks })
    }

    /// Tokens of a group that are there already.
    fn hit(&self, group: u32) -> u64 {
        self.hits.get(group as usize).copied().unwrap_or(0)
    }
}

/// Where a layer lies; two layers of one place are two names of the same bytes.
fn place(layer: &PlacedLayer) -> (u32, Vec<(u32, u64)>) {
    (layer.group, layer.parts.iter().map(|part| (part.region, part.offset)).collect())
}

fn check_tables(side: Side, layout: &CacheLayout, tables: &[BlockTable]) -> Result<(), PlanError> {
    let (groups, tables) = (layout.groups.len(), tables.len());
    if groups == tables { Ok(()) } else { Err(PlanError::Tables { side, groups, tables }) }
}

/// Copies what `takes` say of one layer's pages: piece by piece, so that parts which follow each
/// other in memory become one.
fn copy_layer(
    layouts: &[&CacheLayout],
    own: &CacheLayout,
    wanted: &PlacedLayer,
    takes: &[Take<'_>],
    lists: &mut Lists<'_>,
    plan: &mut Plan,
) -> Result<(), PlanError> {
    let mut takes: Vec<&Take<'_>> = takes.iter().collect();
    takes.sort_by_key(|take| (take.source, take.stripe));
    for same in takes.chunk_by(|a, b| (a.source, a.stripe) == (b.source, b.stripe)) {
        let (source, layout) = (same[0].source, layouts[same[0].source]);
        let copies = &mut plan.reads[source];
        // From the last one on: in a row of pages, a layer continues the one before it.
        let first = copies.len().saturating_sub(1);
        for piece in lists.pieces(same[0], wanted)?.iter() {
            for take in same {
                let Some(part) = bytes::filled(wanted, take.part.role) else { continue };
                for slots in bytes::cuts(take, part, piece.slots) {
                    let (from, to) = bytes::pair(take, wanted, part, piece, slots)?;
                    let from = blocks(layout, Side::Source, wanted, &from, &piece.source)?;
                    let to = blocks(own, Side::Target, wanted, &to, &piece.target)?;
                    bytes::push(copies, first, BlockCopy::new(from, to)?)?;
                }
            }
        }
    }
    match takes.first() {
        Some(take) => lists.zero(take, wanted, plan),
        None => Ok(()),
    }
}

/// Binds a walk to its region and checks that every byte lies in it.
fn blocks(
    layout: &CacheLayout,
    side: Side,
    layer: &PlacedLayer,
    walk: &bytes::Walked,
    ids: &Arc<[u32]>,
) -> Result<Blocks, PlanError> {
    let name = || layer.name.clone();
    let blocks = Blocks::new(walk.region, Arc::clone(ids), walk.pattern)?;
    match layout.regions.get(walk.region.0 as usize) {
        None => {
            Err(PlanError::Layout { side, layer: name(), field: "region", value: walk.region.0 })
        }
        Some(region) => match region.check(&blocks) {
            Ok(()) => Ok(blocks),
            Err(why) => Err(PlanError::Bytes { side, layer: name(), why }),
        },
    }
}
