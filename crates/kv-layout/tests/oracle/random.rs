//! Random pairs of engines, wider than any real one: uneven shares, any nesting, any padding.

use kv_layout::{
    CacheLayout, ContextShare, GroupLayout, Kind, Layer, LayerPart, PlacedLayer, Recurrence, Role,
    Span,
};
use strided::Region;

use super::judge::World;
use super::pages::{self, Page};
use super::rng::Rng;
use super::tables::{self, BLOCKS, FRONTS, POOL, Style};

/// Everything that a case borrows from.
pub struct Case {
    pub sources: Vec<CacheLayout>,
    pub targets: Vec<CacheLayout>,
    /// Whether the groups of a side have regions of their own.
    own: (bool, bool),
    pub tokens: u64,
    pub span: Span,
    rng: Rng,
}

/// The engine-wide choices of one side.
struct Side<'a> {
    layers: &'a [Layer],
    /// The group of each layer.
    groups: Vec<usize>,
    blocks: Vec<u32>,
    ways: Vec<u32>,
    stages: Vec<u64>,
    tensor: u64,
    own_regions: bool,
}

impl Case {
    pub fn new(seed: u64) -> Self {
        let mut rng = Rng::new(seed);
        let count = rng.within(1, 6);
        let model: Vec<Layer> = (0..count).map(|name| layer(name, &mut rng)).collect();
        let wanted = if rng.chance(4) { rng.within(1, count) } else { count } as usize;
        // With context parallelism, blocks of one size: others are refused.
        let shared = rng.chance(5);
        let common = (rng.chance(2) || shared && !rng.chance(8)).then(|| block(&mut rng));
        let (sources, own) = side(&model, common, shared, &mut rng);
        let (mut targets, own_to) = side(&model[..wanted], common, shared, &mut rng);
        let mut own = (own, own_to);
        if rng.chance(12) {
            (targets, own.1) = (sources.clone(), own.0);
        }
        let mut case = Self { sources, targets, own, tokens: rng.within(1, 40), span: NONE, rng };
        case.pack();
        let resume_at = match case.rng.below(4) {
            0 => case.rng.within(0, case.tokens),
            back => case.tokens.saturating_sub(back - 1),
        };
        case.span =
            Span { valid: case.rng.within(resume_at, case.tokens.max(resume_at)), resume_at };
        case
    }

    /// Now and then pages whose inside nobody knows.
    fn pack(&mut self) {
        if self.rng.chance(20) {
            let layers = self.sources.iter_mut().chain(&mut self.targets);
            for layer in layers.flat_map(|rank| &mut rank.layers) {
                layer.packing = Some("swizzled".to_owned());
            }
        }
    }

    /// The request's tables on both sides.
    pub fn world(&mut self) -> World<'_> {
        let (span, tokens, rng) = (self.span, self.tokens, &mut self.rng);
        let style = |own_ids, rng: &mut Rng| Style {
            front: rng.pick(&FRONTS),
            lookahead: rng.below(4),
            step: rng.pick(&[1, 2, 17, 255, POOL - 1]),
            own_ids,
        };
        let (from, to) = (style(self.own.0, rng), style(self.own.1, rng));
        let hits: Vec<Vec<u64>> =
            self.targets.iter().map(|layout| hits(layout, span.resume_at, rng)).collect();
        let rank = |layout, hits: &[u64], style, rng: &mut Rng| {
            let mut rank = tables::rank(layout, span, tokens, hits, style, rng);
            misplace(&mut rank, rng);
            rank
        };
        let sources = self.sources.iter().map(|layout| rank(layout, &[], from, rng)).collect();
        let targets = self.targets.iter().zip(&hits);
        let targets = targets.map(|(layout, hits)| rank(layout, hits, to, rng)).collect();
        World { sources, targets, hits, span }
    }
}

const NONE: Span = Span { valid: 0, resume_at: 0 };

/// Rarely, a state of another position.
fn misplace(rank: &mut super::memory::Rank<'_>, rng: &mut Rng) {
    let state = rank.layout.layers.iter().find(|layer| layer.kind.is_recurrent());
    if let Some(layer) = state.filter(|_| rng.chance(200)) {
        let group = layer.group as usize;
        rank.tables[group].first_token += 1;
        rank.live[group] = vec![false];
    }
}

fn hits(layout: &CacheLayout, resume_at: u64, rng: &mut Rng) -> Vec<u64> {
    let mut of_group = |group: &GroupLayout| {
        let size = u64::from(group.block_size) * u64::from(group.context.ways);
        match rng.below(8) {
            0..4 => 0,
            4 => resume_at,
            5 => rng.within(0, resume_at),
            _ => rng.within(0, resume_at / size) * size,
        }
    };
    let hits = layout.groups.iter().map(&mut of_group).collect();
    if rng.chance(6) { Vec::new() } else { hits }
}

fn layer(name: u64, rng: &mut Rng) -> Layer {
    let name = format!("layers.{name}");
    let kind = match rng.below(7) {
        0 | 1 => Kind::Full,
        2 | 3 => Kind::SlidingWindow { window: rng.within(1, 18) as u32 },
        4 => Kind::ChunkedLocal { chunk: rng.within(1, 12) as u32 },
        5 => Kind::Mla,
        _ => Kind::Recurrent { recurrence: Recurrence::GatedDeltaNet },
    };
    let bytes = |rng: &mut Rng| rng.within(1, 3) as u32;
    if kind.is_recurrent() {
        let roles = [Role::ConvQuery, Role::ConvKey, Role::ConvValue, Role::ConvB, Role::Temporal];
        let count = rng.within(1, 5) as usize;
        let units = |rng: &mut Rng| if rng.chance(4) { 1 } else { rng.within(1, 8) as u32 };
        let part =
            |&role: &Role| LayerPart { role, units: units(rng), bytes: rng.within(1, 4) as u32 };
        return Layer { name, kind, parts: roles[..count].iter().map(part).collect() };
    }
    let heads = if kind == Kind::Mla { 1 } else { rng.within(1, 6) as u32 };
    let value = if kind == Kind::Mla || rng.chance(6) { 0 } else { bytes(rng) };
    Layer::attention(name, kind, heads, bytes(rng), value)
}

fn block(rng: &mut Rng) -> u32 {
    rng.pick(&[1, 2, 3, 4, 4, 5, 6, 8, 8, 12, 16])
}

/// The ranks of one engine, and whether its groups have regions of their own.
fn side(
    layers: &[Layer],
    common: Option<u32>,
    shared: bool,
    rng: &mut Rng,
) -> (Vec<CacheLayout>, bool) {
    let groups = groups(layers, rng);
    let count = groups.iter().max().map_or(0, |last| last + 1);
    let ways = if shared { rng.within(1, 3) as u32 } else { 1 };
    let stages = 1 + u64::from(rng.chance(3));
    let recurrent = |group| {
        (0..layers.len()).any(|index| groups[index] == group && layers[index].kind.is_recurrent())
    };
    let engine = Side {
        blocks: (0..count).map(|_| common.unwrap_or_else(|| block(rng))).collect(),
        ways: (0..count).map(|group| if recurrent(group) { 1 } else { ways }).collect(),
        stages: layers.iter().map(|_| rng.below(stages)).collect(),
        tensor: rng.pick(&[1, 1, 2, 2, 3, 4]),
        own_regions: rng.chance(2),
        layers,
        groups,
    };
    let stages = engine.stages.iter().max().map_or(0, |last| last + 1);
    let owners = engine.tensor * u64::from(ways);
    let shares: Vec<Vec<pages::Units>> =
        layers.iter().map(|layer| shares(layer, engine.tensor, owners, ways, rng)).collect();
    let mut ranks = Vec::new();
    for stage in 0..stages {
        for owner in 0..owners {
            let units = |index: usize| shares[index][owner as usize].clone();
            let context = owner as u32 % ways;
            ranks.push(engine.rank(stage, context, &units, rng));
        }
    }
    (ranks, engine.own_regions)
}

/// Puts like layers into one or two groups, sometimes several kinds of attention into one.
fn groups(layers: &[Layer], rng: &mut Rng) -> Vec<usize> {
    let mixed = rng.chance(4);
    let mut keys: Vec<(Option<Kind>, u64)> = Vec::new();
    let mut of_layer = Vec::new();
    for layer in layers {
        let kind = (!mixed || layer.kind.is_recurrent()).then_some(layer.kind);
        let key = (kind, u64::from(rng.chance(4)));
        let found = keys.iter().position(|other| *other == key);
        of_layer.push(found.unwrap_or_else(|| {
            keys.push(key);
            keys.len() - 1
        }));
    }
    of_layer
}

/// The units of each part that each rank of a stage keeps.
fn shares(layer: &Layer, tensor: u64, owners: u64, ways: u32, rng: &mut Rng) -> Vec<pages::Units> {
    // Ranks that share a sequence keep the same heads; a state is shared by all.
    let ranks = if layer.kind.is_recurrent() { owners } else { tensor };
    let each = if layer.kind.is_recurrent() { 1 } else { u64::from(ways) };
    let mut of_part: Vec<Vec<std::ops::Range<u32>>> = Vec::new();
    for part in &layer.parts {
        let like_first = !layer.kind.is_recurrent() && !rng.chance(8);
        let cut = match of_part.first() {
            Some(first) if like_first => first.clone(),
            _ => cut(part.units, ranks, rng),
        };
        of_part.push(cut);
    }
    let of_owner =
        |owner: u64| of_part.iter().map(|cut| cut[(owner / each) as usize].clone()).collect();
    (0..owners).map(of_owner).collect()
}

/// Cuts units into stretches, one for each rank or for several; stretches may overlap.
fn cut(units: u32, ranks: u64, rng: &mut Rng) -> Vec<std::ops::Range<u32>> {
    let stretches = rng.within(1, ranks.min(u64::from(units)));
    let mut inner: Vec<u32> = (1..units).collect();
    rng.shuffle(&mut inner);
    inner.truncate(stretches as usize - 1);
    inner.extend([0, units]);
    inner.sort_unstable();
    let overlap = u32::from(rng.chance(6));
    let of_rank = |rank: u64| {
        let at = (rank * stretches / ranks) as usize;
        inner[at]..(inner[at + 1] + overlap).min(units)
    };
    (0..ranks).map(of_rank).collect()
}

impl Side<'_> {
    fn rank(
        &self,
        stage: u64,
        context: u32,
        units: &dyn Fn(usize) -> pages::Units,
        rng: &mut Rng,
    ) -> CacheLayout {
        let mut layers = Vec::new();
        let mut pages = Vec::new();
        for index in (0..self.layers.len()).filter(|index| self.stages[*index] == stage) {
            let (layer, group) = (&self.layers[index], self.groups[index]);
            let units = units(index);
            pages.push(match layer.kind.is_recurrent() {
                true => pages::state(layer, &units, rng),
                false => pages::attention(layer, &units, self.blocks[group].into(), rng),
            });
            let (name, kind, group) = (layer.name.clone(), layer.kind, group as u32);
            layers.push(PlacedLayer { name, kind, group, parts: Vec::new(), packing: None });
        }
        let mut regions = Vec::new();
        if self.own_regions {
            for (layer, page) in layers.iter_mut().zip(pages) {
                pages::apart(layer, page, &mut regions, rng);
            }
        } else {
            overlay(&mut layers, pages, &mut regions, rng);
        }
        rng.shuffle(&mut layers);
        let group = |group: usize| {
            let (ways, block_size) = (self.ways[group], self.blocks[group]);
            let context = ContextShare { ways, rank: if ways == 1 { 0 } else { context } };
            GroupLayout { block_size, context }
        };
        let groups = (0..self.blocks.len()).map(group).collect();
        let region = |block_stride: u64| Region { block_stride, block_count: BLOCKS };
        CacheLayout { regions: regions.into_iter().map(region).collect(), groups, layers }
    }
}

/// Groups lie over each other: the n-th layer of each is in slot n; slots are regions, or rows
/// of the one region.
fn overlay(layers: &mut [PlacedLayer], pages: Vec<Page>, regions: &mut Vec<u64>, rng: &mut Rng) {
    let rows = rng.chance(2);
    let slot = |at: usize| {
        let group = layers[at].group;
        layers[..at].iter().filter(|before| before.group == group).count()
    };
    let slots: Vec<usize> = (0..layers.len()).map(slot).collect();
    let mut sizes: Vec<u64> = vec![0; layers.len()];
    for (&slot, page) in slots.iter().zip(&pages) {
        sizes[slot] = sizes[slot].max(page.bytes);
    }
    for ((layer, page), &slot) in layers.iter_mut().zip(pages).zip(&slots) {
        let before: u64 = if rows { sizes[..slot].iter().sum() } else { 0 };
        let region = if rows { 0 } else { slot as u32 };
        let placed = page.parts.into_iter().map(|part| kv_layout::Part {
            region,
            offset: part.offset + before,
            ..part
        });
        layer.parts = placed.collect();
    }
    *regions = if rows { vec![sizes.iter().sum()] } else { sizes };
}
