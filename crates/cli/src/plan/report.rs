//! The figures of one plan. What moves is read off the planner's copies: nothing here decides it.

use std::sync::Arc;

use kv_layout::baseline::{self, Moved};
use kv_layout::{
    BlockTable, CacheLayout, Group, Grouping, Holding, Kind, Model, PageOrder, PlacedLayer, Plan,
    Span, Target, kept, plan,
};
use serde::Serialize;
use strided::{BlockCopy, Blocks, MergeRuns};

use crate::failure::{Code, Failure};
use crate::output;

/// All that `kvferry plan` tells.
#[derive(Debug, Serialize)]
pub(crate) struct Report {
    pub(crate) model_type: String,
    pub(crate) dtype: String,
    pub(crate) tokens: u64,
    pub(crate) resume_at: u64,
    pub(crate) block_size: u32,
    pub(crate) layers: Vec<LayerRow>,
    pub(crate) groups: Vec<GroupRow>,
    pub(crate) regions: Vec<RegionRow>,
    pub(crate) schemes: Schemes,
}

/// One layer: blocks are counted from the start of the sequence.
#[derive(Debug, Serialize)]
pub(crate) struct LayerRow {
    pub(crate) name: String,
    #[serde(flatten)]
    pub(crate) kind: Kind,
    pub(crate) group: u32,
    /// Tokens per block; models with states have larger blocks than were asked for.
    pub(crate) block_size: u32,
    pub(crate) blocks: u64,
    pub(crate) first_moved: u64,
    pub(crate) moved: u64,
}

#[derive(Debug, Serialize)]
pub(crate) struct GroupRow {
    #[serde(flatten)]
    pub(crate) kind: Kind,
    pub(crate) layers: usize,
    pub(crate) block_size: u32,
    /// Blocks that each side keeps of the prompt.
    pub(crate) kept: u64,
    /// Blocks that move.
    pub(crate) moved: u64,
    /// Index of the first of them, from the start of the sequence.
    pub(crate) first_moved: u64,
}

#[derive(Debug, Serialize)]
pub(crate) struct RegionRow {
    pub(crate) page_bytes: u64,
    /// Layers that keep their pages here, one for each group at most.
    pub(crate) layers: usize,
}

/// The three ways side by side.
#[derive(Debug, Serialize)]
pub(crate) struct Schemes {
    pub(crate) all_full: Scheme,
    pub(crate) flat_hybrid: Scheme,
    pub(crate) exact: Scheme,
    /// Ranges of the exact plan once runs are merged, when block ids are contiguous.
    pub(crate) exact_merged: Scheme,
}

#[derive(Clone, Copy, Debug, Serialize)]
pub(crate) struct Scheme {
    pub(crate) ranges_joint: u64,
    pub(crate) ranges_apart: u64,
    pub(crate) bytes: u64,
}

impl From<Moved> for Scheme {
    fn from(moved: Moved) -> Self {
        let Moved { ranges_joint, ranges_apart, bytes, .. } = moved;
        Self { ranges_joint, ranges_apart, bytes }
    }
}

impl Report {
    pub(crate) fn new(model: &Model, block_size: u32, tokens: u64) -> Result<Self, Failure> {
        let grouping = Grouping::new(model, block_size).map_err(Failure::input)?;
        let resume_at = tokens - 1;
        let joint = Planned::new(model, &grouping, PageOrder::Joint, tokens)?;
        let apart = Planned::new(model, &grouping, PageOrder::Apart, tokens)?;
        let groups: Vec<GroupRow> = grouping
            .groups
            .iter()
            .zip(0..)
            .map(|(group, at)| group_row(group, at, &joint))
            .collect();
        let scheme = |count: fn(&Planned) -> u64| Scheme {
            ranges_joint: count(&joint),
            ranges_apart: count(&apart),
            bytes: joint.plan.bytes(),
        };
        let schemes = Schemes {
            all_full: baseline::all_full(model, &grouping, tokens).into(),
            flat_hybrid: baseline::flat_hybrid(model, &grouping, tokens).into(),
            exact: scheme(Planned::ranges),
            exact_merged: scheme(Planned::merged_ranges),
        };
        Ok(Self {
            model_type: model.model_type.clone(),
            dtype: model.dtype.to_string(),
            tokens,
            resume_at,
            block_size,
            layers: layer_rows(model, &groups, &joint, tokens),
            regions: region_rows(&grouping),
            groups,
            schemes,
        })
    }
}

/// A plan between two equal engines whose block ids are contiguous.
struct Planned {
    layout: CacheLayout,
    tables: Vec<BlockTable>,
    plan: Plan,
}

/// Blocks that the plan moves, counted from the start of the sequence.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct MovedBlocks {
    first: u64,
    count: u64,
}

impl Planned {
    fn new(
        model: &Model,
        grouping: &Grouping,
        order: PageOrder,
        tokens: u64,
    ) -> Result<Self, Failure> {
        let mut tables = Vec::new();
        let mut next = 1_u32;
        for group in &grouping.groups {
            let kept = kept(group.kind, group.block_size, tokens - 1, tokens);
            let end = after(next, kept.blocks).ok_or_else(|| too_many(tokens))?;
            let ids: Vec<u32> = (next..end).collect();
            tables.push(BlockTable { first_token: kept.first_token, ids: ids.into() });
            next = end;
        }
        let layout = CacheLayout::new(model, grouping, order, next);
        let source = Holding { layout: &layout, tables: &tables };
        let target = Target { ranks: &[&layout], rank: 0, tables: &tables, hits: &[] };
        let span = Span { valid: tokens, resume_at: tokens - 1 };
        let plan = plan(&[source], target, span).map_err(|why| Failure::new(Code::Failed, why))?;
        Ok(Self { layout, tables, plan })
    }

    fn copies(&self) -> impl Iterator<Item = strided::RangePairs> + '_ {
        self.plan.copies().map(|copy| {
            let stride = |blocks: &strided::Blocks| {
                self.layout.regions[blocks.region().0 as usize].block_stride
            };
            copy.ranges(stride(copy.source()), stride(copy.target()))
        })
    }

    /// Blocks of a group that the copies from these regions name. Ids are contiguous within a
    /// group and no two groups share one, so an id says its place in the table.
    fn moved(&self, group: u32, from: impl Fn(u32) -> bool) -> MovedBlocks {
        let table = &self.tables[group as usize].ids;
        let (Some(first), Some(last)) = (table.first(), table.last()) else {
            return MovedBlocks::default();
        };
        let sources = self.plan.copies().map(BlockCopy::source);
        let mut lists: Vec<&Arc<[u32]>> =
            sources.filter(|blocks| from(blocks.region().0)).map(Blocks::ids).collect();
        // The regions of a group share one list, which may be long.
        lists.dedup_by(|a, b| Arc::ptr_eq(a, b));
        let ids = lists.into_iter().flat_map(|ids| ids.iter().copied());
        let mut moved: Vec<u32> = ids.filter(|id| (first..=last).contains(&id)).collect();
        moved.sort();
        moved.dedup();
        let place = moved.first().map_or(0, |id| u64::from(id - first));
        MovedBlocks { first: self.first_block(group) + place, count: moved.len() as u64 }
    }

    /// Index in the sequence of the first block of a group's table; a state has no place.
    fn first_block(&self, group: u32) -> u64 {
        let is_state = |layer: &PlacedLayer| layer.group == group && layer.kind.is_recurrent();
        if self.layout.layers.iter().any(is_state) {
            return 0;
        }
        let block_size = u64::from(self.layout.groups[group as usize].block_size);
        self.tables[group as usize].first_token / block_size.max(1)
    }

    fn kept(&self, group: u32) -> u64 {
        self.tables[group as usize].ids.len() as u64
    }

    fn ranges(&self) -> u64 {
        self.copies().map(|ranges| ranges.count() as u64).sum()
    }

    fn merged_ranges(&self) -> u64 {
        self.copies().map(|ranges| MergeRuns::merged(ranges).count() as u64).sum()
    }
}

/// More blocks than any pool has; what is shown of them would take gigabytes.
const MAX_BLOCKS: u32 = 1 << 26;

/// The id after `blocks` more.
pub(super) fn after(next: u32, blocks: u64) -> Option<u32> {
    let end = next.checked_add(u32::try_from(blocks).ok()?)?;
    (end <= MAX_BLOCKS).then_some(end)
}

pub(super) fn too_many(tokens: u64) -> Failure {
    let most = output::count(u64::from(MAX_BLOCKS));
    Failure::input(format!("{} tokens need more than {most} blocks", output::count(tokens)))
        .hint("use fewer --tokens or a larger --block-size")
}

fn group_row(group: &Group, index: u32, planned: &Planned) -> GroupRow {
    let moved = planned.moved(index, |_| true);
    GroupRow {
        kind: group.kind,
        layers: group.layers.len(),
        block_size: group.block_size,
        kept: planned.kept(index),
        moved: moved.count,
        first_moved: moved.first,
    }
}

/// In the order of the model; the layout has them group by group.
fn layer_rows(model: &Model, groups: &[GroupRow], planned: &Planned, tokens: u64) -> Vec<LayerRow> {
    let row = |layer: &kv_layout::Layer| {
        let placed = planned.layout.layers.iter().find(|placed| placed.name == layer.name)?;
        let group = &groups[placed.group as usize];
        let moved = planned
            .moved(placed.group, |region| placed.parts.iter().any(|part| part.region == region));
        Some(LayerRow {
            name: layer.name.clone(),
            kind: layer.kind,
            group: placed.group,
            block_size: group.block_size,
            blocks: match layer.kind.is_recurrent() {
                true => group.kept,
                false => tokens.div_ceil(u64::from(group.block_size)),
            },
            first_moved: moved.first,
            moved: moved.count,
        })
    };
    model.layers.iter().filter_map(row).collect()
}

fn region_rows(grouping: &Grouping) -> Vec<RegionRow> {
    let row = |(slot, &page_bytes): (usize, &u64)| RegionRow {
        page_bytes,
        layers: grouping.groups.iter().filter(|group| slot < group.layers.len()).count(),
    };
    grouping.slot_bytes.iter().enumerate().map(row).collect()
}

#[cfg(test)]
mod tests;
