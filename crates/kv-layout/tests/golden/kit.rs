//! Layouts by hand, and what a plan does to bytes: for the golden vectors and for the reports.

use std::collections::BTreeSet;
use std::ops::Range;
use std::path::Path;

use kv_layout::{
    BlockTable, CacheLayout, ContextShare, DType, EngineShape, GroupLayout, Holding, Kind, Layer,
    LayerPart, Model, PageOrder, Part, PlacedLayer, Plan, PlanError, Recurrence, Role, Span,
    Target, kept, plan,
};
use strided::{Region, RegionId};

pub const MAMBA2: Kind = Kind::Recurrent { recurrence: Recurrence::Mamba2 };

pub fn window(window: u32) -> Kind {
    Kind::SlidingWindow { window }
}

pub fn chunks(chunk: u32) -> Kind {
    Kind::ChunkedLocal { chunk }
}

/// All of a prompt is computed by P, its last token by D again.
pub fn prompt(tokens: u64) -> Span {
    Span { valid: tokens, resume_at: tokens - 1 }
}

pub fn table(first_token: u64, ids: &[u32]) -> BlockTable {
    BlockTable { first_token, ids: ids.into() }
}

pub fn region(block_stride: u64, block_count: u32) -> Region {
    Region { block_stride, block_count }
}

pub fn group(block_size: u32) -> GroupLayout {
    GroupLayout { block_size, context: ContextShare::default() }
}

/// A group of a rank that shares each sequence with others.
pub fn shared(block_size: u32, ways: u32, rank: u32) -> GroupLayout {
    GroupLayout { block_size, context: ContextShare { ways, rank } }
}

/// A layout of one region, one group and the given layers.
pub fn single(region: Region, group: GroupLayout, layers: Vec<PlacedLayer>) -> CacheLayout {
    CacheLayout { regions: vec![region], groups: vec![group], layers }
}

/// Heads `units` of `bytes` a token in blocks of `tokens`, heads outside tokens, keys alone.
pub fn keys(name: &str, kind: Kind, units: Range<u32>, bytes: u32, tokens: u32) -> PlacedLayer {
    let part = Part {
        role: Role::Key,
        units,
        bytes,
        region: 0,
        offset: 0,
        unit_stride: u64::from(bytes) * u64::from(tokens),
        token_stride: u64::from(bytes),
        tile: None,
    };
    placed(name, kind, vec![part])
}

/// A state whose parts (role, units, bytes of a unit) follow each other.
pub fn state(name: &str, kind: Kind, parts: &[(Role, Range<u32>, u32)]) -> PlacedLayer {
    let mut offset = 0;
    let place = |&(role, ref units, bytes): &(Role, Range<u32>, u32)| {
        let (unit_stride, token_stride) = (u64::from(bytes), 0);
        let units = units.clone();
        let part =
            Part { role, units, bytes, region: 0, offset, unit_stride, token_stride, tile: None };
        offset += u64::from(part.unit_count()) * u64::from(bytes);
        part
    };
    placed(name, kind, parts.iter().map(place).collect())
}

fn placed(name: &str, kind: Kind, parts: Vec<Part>) -> PlacedLayer {
    PlacedLayer { name: name.to_owned(), kind, group: 0, parts, packing: None }
}

/// The layer in another group and region.
pub fn put(mut layer: PlacedLayer, group: u32, region: u32) -> PlacedLayer {
    layer.group = group;
    for part in &mut layer.parts {
        part.region = region;
    }
    layer
}

/// A recurrent layer, by role, units and bytes of a unit.
pub fn recurrent(name: impl Into<String>, kind: Kind, parts: &[(Role, u32, u32)]) -> Layer {
    let part = |&(role, units, bytes): &(Role, u32, u32)| LayerPart { role, units, bytes };
    Layer { name: name.into(), kind, parts: parts.iter().map(part).collect() }
}

pub fn model(layers: Vec<Layer>) -> Model {
    Model { model_type: "test".to_owned(), dtype: DType::Bf16, layers }
}

/// One of the workspace's `models`.
pub fn published(name: &str) -> Model {
    let file = format!("{name}.json");
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../models").join(&file);
    Model::from_config(&std::fs::read_to_string(path).unwrap(), &file).unwrap()
}

/// Ranks that share heads, blocks of tokens, heads outside tokens.
pub fn shape(tensor: u32, block_size: u32) -> EngineShape {
    EngineShape { tensor, ..EngineShape::single(block_size, PageOrder::Joint) }
}

/// The ranks of an engine and their tables of one request.
pub struct Engine {
    pub layouts: Vec<CacheLayout>,
    pub tables: Vec<Vec<BlockTable>>,
}

impl Engine {
    pub fn one(layout: CacheLayout, tables: &[BlockTable]) -> Self {
        Self { layouts: vec![layout], tables: vec![tables.to_vec()] }
    }

    /// Ranks with tables of their own.
    pub fn ranks(ranks: impl IntoIterator<Item = (CacheLayout, BlockTable)>) -> Self {
        let (layouts, tables) =
            ranks.into_iter().map(|(layout, table)| (layout, vec![table])).unzip();
        Self { layouts, tables }
    }

    /// An engine that keeps exactly what a query at `span.resume_at` needs; no two ids of a
    /// request follow each other.
    pub fn of(model: &Model, shape: EngineShape, span: Span) -> Self {
        let ranks = shape.ranks(model).unwrap();
        let layouts = shape.layouts(model, 1 << 20).unwrap();
        let mut tables = Vec::new();
        for (rank, layout) in ranks.iter().zip(&layouts) {
            let mut next = 1_u32;
            let mut one = Vec::new();
            for (group, placed) in rank.grouping.groups.iter().zip(&layout.groups) {
                let kept = kept(group.kind, group.block_size, span.resume_at, span.valid)
                    .of_share(group.block_size, placed.context);
                let ids: Vec<u32> = (next..).step_by(2).take(kept.blocks as usize).collect();
                next += 2 * ids.len() as u32;
                one.push(BlockTable { first_token: kept.first_token, ids: ids.into() });
            }
            tables.push(one);
        }
        Self { layouts, tables }
    }

    pub fn layouts(&self) -> Vec<&CacheLayout> {
        self.layouts.iter().collect()
    }
}

pub fn try_read(
    from: &Engine,
    to: &Engine,
    rank: usize,
    hits: &[u64],
    span: Span,
) -> Result<Plan, PlanError> {
    let holding = |(layout, tables)| Holding { layout, tables };
    let tables = from.tables.iter().map(Vec::as_slice);
    let sources: Vec<Holding<'_>> = from.layouts.iter().zip(tables).map(holding).collect();
    plan(&sources, Target { ranks: &to.layouts(), rank, tables: &to.tables[rank], hits }, span)
}

pub fn read(from: &Engine, to: &Engine, rank: usize, hits: &[u64], span: Span) -> Plan {
    try_read(from, to, rank, hits, span).unwrap()
}

/// Which sets of target ranks read each source rank.
pub fn readers(from: &Engine, to: &Engine) -> Vec<Vec<usize>> {
    let readers = kv_layout::readers(&from.layouts(), &to.layouts()).unwrap();
    readers.into_iter().map(|set| set.into_iter().collect()).collect()
}

/// Bytes that are contiguous on both sides: first bytes are those of a region.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Run {
    pub rank: usize,
    pub from: (u32, u64),
    pub to: (u32, u64),
    pub len: u64,
}

/// Everything that a plan moves, in order of the target's bytes, merged as far as it goes:
/// however a plan puts it, the same bytes give the same runs. No byte is written twice.
pub fn runs(plan: &Plan, from: &Engine, to: &CacheLayout) -> Vec<Run> {
    let mut found = Vec::new();
    for (rank, copies) in plan.reads.iter().enumerate() {
        for copy in copies {
            let (s, t) = (copy.source().region(), copy.target().region());
            let stride = |layout: &CacheLayout, RegionId(region)| {
                layout.regions[region as usize].block_stride
            };
            for range in copy.ranges(stride(&from.layouts[rank], s), stride(to, t)) {
                let (from, to) = ((s.0, range.source), (t.0, range.target));
                found.push(Run { rank, from, to, len: range.len });
            }
        }
    }
    found.sort_by_key(|run| run.to);
    let mut merged: Vec<Run> = Vec::new();
    for run in found {
        let Some(last) = merged.last_mut().filter(|last| last.to.0 == run.to.0) else {
            merged.push(run);
            continue;
        };
        assert!(last.to.1 + last.len <= run.to.1, "written twice: {run:?}");
        let follows = |a: (u32, u64), b: (u32, u64)| (a.0, a.1 + last.len) == b;
        if last.rank == run.rank && follows(last.to, run.to) && follows(last.from, run.from) {
            last.len += run.len;
        } else {
            merged.push(run);
        }
    }
    merged
}

/// Runs in units of `len` bytes: which unit of the source goes to which of the target. Runs
/// that begin or end inside one are wrong.
pub fn units(runs: &[Run], len: u64) -> Vec<(u64, u64)> {
    let mut units = Vec::new();
    for run in runs {
        assert!([run.from.1, run.to.1, run.len].iter().all(|n| n % len == 0), "cut: {run:?}");
        units.extend((0..run.len / len).map(|i| (run.from.1 / len + i, run.to.1 / len + i)));
    }
    units
}

/// Blocks that a plan reads of a rank and the blocks that it writes them to.
pub fn blocks(plan: &Plan, rank: usize) -> Vec<(u32, u32)> {
    let ids = |copy: &strided::BlockCopy| {
        let (from, to) = (copy.source().ids().to_vec(), copy.target().ids().to_vec());
        from.into_iter().zip(to)
    };
    let pairs: BTreeSet<(u32, u32)> = plan.reads[rank].iter().flat_map(ids).collect();
    pairs.into_iter().collect()
}

/// Blocks that a plan reads of a rank for the layers that lie in `region` there.
pub fn blocks_in(plan: &Plan, rank: usize, region: u32) -> Vec<(u32, u32)> {
    let mut plan = plan.clone();
    plan.reads[rank].retain(|copy| copy.source().region() == RegionId(region));
    blocks(&plan, rank)
}
