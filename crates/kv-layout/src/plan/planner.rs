//! What two engines' shapes decide, once for all requests.

use std::collections::BTreeMap;
use std::ops::Range;

use strided::Region;

use super::assign::{Ranks, Row};
use super::pieces::Pairing;
use super::shape::{Anchor, Shape};
use super::{Plan, PlanError, Side, Span, request};
use crate::{BlockTable, CacheLayout, GroupLayout, Part, PlacedLayer};

/// What one rank of the target reads of every layer, worked out from the layouts alone: make it
/// when a peer has shown its layouts, and ask it for a [`Plan`] for each request.
#[derive(Clone, Debug)]
pub struct Planner {
    pub(super) sources: Vec<Rank>,
    pub(super) own: Rank,
    pub(super) shapes: Vec<Shape>,
    pub(super) pairings: Vec<Pairing>,
    pub(super) batches: Vec<Batch>,
    /// Every layer of the target that is not another name of one before it.
    pub(super) layers: Vec<Reader>,
    /// Layer after layer, one for each reading of its shape.
    pub(super) hads: Vec<Had>,
    /// The names of all layers, one behind the other.
    names: String,
}

/// What is asked of a rank's layout when bytes are moved.
#[derive(Clone, Debug)]
pub(super) struct Rank {
    pub(super) regions: Vec<Region>,
    pub(super) groups: Vec<GroupLayout>,
    /// How often it is read for a layer.
    pub(super) readings: usize,
}

/// Layers that are read alike and in the same blocks: their copies differ by where they lie.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Batch {
    /// Index of their shape, and of one of its readings.
    pub(super) shape: usize,
    pub(super) reading: usize,
    /// Index of the pairing of their groups.
    pub(super) pairing: usize,
}

/// One layer of the target.
#[derive(Clone, Debug)]
pub(super) struct Reader {
    /// Where its name stands in the planner's.
    name: Range<usize>,
    pub(super) at: Anchor,
    /// Indices of what is read for it.
    pub(super) hads: Range<usize>,
}

/// The layer at one rank of the source.
#[derive(Clone, Copy, Debug)]
pub(super) struct Had {
    /// Index of its batch.
    pub(super) batch: usize,
    pub(super) at: Anchor,
}

/// What a request brings.
#[derive(Clone, Copy)]
pub(super) struct Asked<'a> {
    pub(super) sources: &'a [&'a [BlockTable]],
    pub(super) tables: &'a [BlockTable],
    pub(super) hits: &'a [u64],
    pub(super) resume_at: u64,
}

impl Asked<'_> {
    /// Tokens of a group that the target has already.
    pub(super) fn hit(&self, group: u32) -> u64 {
        self.hits.get(group as usize).copied().unwrap_or(0)
    }
}

impl Planner {
    /// Works out what rank `rank` of `targets` reads of the ranks of `sources`.
    ///
    /// # Errors
    /// As [`plan`](super::plan), for what the shapes alone decide.
    pub fn new(
        sources: &[&CacheLayout],
        targets: &[&CacheLayout],
        rank: usize,
    ) -> Result<Self, PlanError> {
        let no_rank = PlanError::Rank { rank, ranks: targets.len() };
        let own = *targets.get(rank).ok_or(no_rank)?;
        let ranks = Ranks::new(sources, targets)?;
        let mut builder = Builder::new(&ranks, sources, own, rank);
        let twins = twins(&own.layers);
        for (index, layer) in own.layers.iter().enumerate() {
            match twins.get(&index) {
                // Layers that share their bytes are moved once.
                Some(&twin) => ranks.share_too(layer, &own.layers[twin])?,
                None => builder.push(index)?,
            }
        }
        Ok(builder.planner)
    }

    /// Tokens of a block of both groups of a pairing; 0 of a group that is not there.
    pub(super) fn block_sizes(&self, pairing: usize) -> (u32, u32) {
        let Pairing { source, from, to, kind, .. } = self.pairings[pairing];
        let size = |rank: &Rank, group: u32| {
            let group = rank.groups.get(group as usize);
            group.map_or(0, |group| kind.tokens_a_block(group.block_size))
        };
        (size(&self.sources[source], from), size(&self.own, to))
    }

    /// Plans one request: `sources` are its block tables at each rank of the source, `tables` and
    /// `hits` those of [`Target`](super::Target).
    ///
    /// # Errors
    /// As [`plan`](super::plan).
    pub fn plan(
        &self,
        sources: &[&[BlockTable]],
        tables: &[BlockTable],
        hits: &[u64],
        span: Span,
    ) -> Result<Plan, PlanError> {
        let Span { valid, resume_at } = span;
        if resume_at > valid {
            return Err(PlanError::NotValid { resume_at, valid });
        }
        if sources.len() != self.sources.len() {
            let (ranks, given) = (self.sources.len(), sources.len());
            return Err(PlanError::Sources { ranks, given });
        }
        for (rank, tables) in self.sources.iter().zip(sources) {
            rank.check_tables(Side::Source, tables)?;
        }
        self.own.check_tables(Side::Target, tables)?;
        request::plan(self, Asked { sources, tables, hits, resume_at })
    }

    /// What an error calls a layer.
    pub(super) fn name(&self, layer: &Reader) -> &str {
        self.names.get(layer.name.clone()).unwrap_or_default()
    }
}

impl Rank {
    fn new(layout: &CacheLayout) -> Self {
        let (regions, groups) = (layout.regions.clone(), layout.groups.clone());
        Self { regions, groups, readings: 0 }
    }

    fn check_tables(&self, side: Side, tables: &[BlockTable]) -> Result<(), PlanError> {
        let (groups, tables) = (self.groups.len(), tables.len());
        if groups == tables { Ok(()) } else { Err(PlanError::Tables { side, groups, tables }) }
    }
}

/// Layers that lie in the same place as one before them, and that one: two names of the same
/// bytes.
pub(super) fn twins(layers: &[PlacedLayer]) -> BTreeMap<usize, usize> {
    if layers.is_sorted_by(|a, b| by_place(a, b).is_lt()) {
        return BTreeMap::new();
    }
    let mut order: Vec<usize> = (0..layers.len()).collect();
    order.sort_by(|&a, &b| by_place(&layers[a], &layers[b]));
    let same = order.chunk_by(|&a, &b| by_place(&layers[a], &layers[b]).is_eq());
    same.flat_map(|same| same[1..].iter().map(|&twin| (twin, same[0]))).collect()
}

fn by_place(a: &PlacedLayer, b: &PlacedLayer) -> std::cmp::Ordering {
    let spot = |part: &Part| (part.region, part.offset);
    let spots = || a.parts.iter().map(spot).cmp(b.parts.iter().map(spot));
    a.group.cmp(&b.group).then_with(spots)
}

/// How many shapes back a layer's own is looked for: models have a few, in turns.
const LOOK_BACK: usize = 8;

struct Builder<'a> {
    ranks: &'a Ranks<'a>,
    rank: usize,
    /// The layer being pushed.
    row: Row<'a>,
    /// The first layer of each shape.
    examples: Vec<Row<'a>>,
    pairings: Places<Pairing>,
    batches: Places<Batch>,
    planner: Planner,
}

impl<'a> Builder<'a> {
    fn new(ranks: &'a Ranks<'a>, sources: &[&CacheLayout], own: &CacheLayout, rank: usize) -> Self {
        let letters = own.layers.iter().map(|layer| layer.name.len()).sum();
        let planner = Planner {
            sources: sources.iter().map(|layout| Rank::new(layout)).collect(),
            own: Rank::new(own),
            shapes: Vec::new(),
            pairings: Vec::new(),
            batches: Vec::new(),
            layers: Vec::with_capacity(own.layers.len()),
            hads: Vec::with_capacity(own.layers.len()),
            names: String::with_capacity(letters),
        };
        let (pairings, batches) = (Places::default(), Places::default());
        Self { ranks, rank, row: Row::default(), examples: Vec::new(), pairings, batches, planner }
    }

    /// Adds layer `index` of the target.
    fn push(&mut self, index: usize) -> Result<(), PlanError> {
        let wanted = self.ranks.fill(&mut self.row, self.rank, index);
        let shape = self.shape(wanted)?;
        let first = self.planner.hads.len();
        for (reading, read) in self.planner.shapes[shape].readings.iter().enumerate() {
            // Layers of one shape are at the same ranks: one left out here would never be read.
            let missing = || PlanError::MissingLayer { layer: wanted.name.clone() };
            let had = self.row.sources[read.source].ok_or_else(missing)?;
            let pairing = Pairing {
                source: read.source,
                from: had.group,
                to: wanted.group,
                kind: wanted.kind,
                stripe: read.stripe,
            };
            let pairing = self.pairings.index(&mut self.planner.pairings, pairing);
            let batch = Batch { shape, reading, pairing };
            let batch = self.batches.index(&mut self.planner.batches, batch);
            self.planner.hads.push(Had { batch, at: Anchor::of(had) });
            self.planner.sources[read.source].readings += 1;
        }
        let Planner { names, hads, layers, .. } = &mut self.planner;
        let name = names.len()..names.len() + wanted.name.len();
        names.push_str(&wanted.name);
        let (at, hads) = (Anchor::of(wanted), first..hads.len());
        layers.push(Reader { name, at, hads });
        Ok(())
    }

    /// Index of the shape of the layer in `self.row`.
    fn shape(&mut self, wanted: &'a PlacedLayer) -> Result<usize, PlanError> {
        let alike = |example: &Row<'a>| self.ranks.alike(self.rank, example, &self.row);
        let shapes = self.examples.len();
        if let Some(back) = self.examples.iter().rev().take(LOOK_BACK).position(alike) {
            return Ok(shapes - 1 - back);
        }
        let takes = self.ranks.takes(self.rank, wanted, &self.row)?;
        self.planner.shapes.push(Shape::new(wanted, takes));
        self.examples.push(self.row.clone());
        Ok(shapes)
    }
}

/// Where the items of a list without doubles are.
struct Places<T> {
    all: BTreeMap<T, usize>,
    /// The one that was looked for last, and mostly is again.
    last: Option<(T, usize)>,
}

impl<T> Default for Places<T> {
    fn default() -> Self {
        Self { all: BTreeMap::new(), last: None }
    }
}

impl<T: Ord + Copy> Places<T> {
    /// Index of `item` in `list`, to which it is added if it is not there.
    fn index(&mut self, list: &mut Vec<T>, item: T) -> usize {
        if let Some((_, index)) = self.last.filter(|(last, _)| *last == item) {
            return index;
        }
        let index = *self.all.entry(item).or_insert_with(|| {
            list.push(item);
            list.len() - 1
        });
        self.last = Some((item, index));
        index
    }
}
