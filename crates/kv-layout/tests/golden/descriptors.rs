//! Descriptor ids, the expansion of logical blocks, and blocks of different size.

use std::collections::BTreeSet;

use kv_layout::{BlockTable, CacheLayout, Kind, PlacedLayer, Plan, Role, Span, Tile};

use crate::kit::{
    Engine, MAMBA2, blocks, group, keys, prompt, put, read, region, runs, single, state, table,
    try_read, units, window,
};

/// Descriptors of one row of a table: how many, and where each lies in its block: region, block
/// stride, first byte, bytes.
type Row = (u64, u32, u64, u64, u64);

/// The bytes of descriptors `ids` of a table made of `rows`, numbered through.
fn described(rows: &[Row], ids: &[u64]) -> BTreeSet<(u32, u64)> {
    let mut bytes = BTreeSet::new();
    for &id in ids {
        let mut left = id;
        let row = rows.iter().find(|row| {
            let here = left < row.0;
            left -= if here { 0 } else { row.0 };
            here
        });
        let &(_, region, stride, first, len) = row.expect("an id of the table");
        bytes.extend((0..len).map(|byte| (region, left * stride + first + byte)));
    }
    bytes
}

fn read_bytes(plan: &Plan, from: &Engine, to: &Engine) -> BTreeSet<(u32, u64)> {
    let of = |run: crate::kit::Run| (0..run.len).map(move |i| (run.from.0, run.from.1 + i));
    runs(plan, from, &to.layouts[0]).into_iter().flat_map(of).collect()
}

fn written_bytes(plan: &Plan, from: &Engine, to: &Engine) -> BTreeSet<(u32, u64)> {
    let of = |run: crate::kit::Run| (0..run.len).map(move |i| (run.to.0, run.to.1 + i));
    runs(plan, from, &to.layouts[0]).into_iter().flat_map(of).collect()
}

/// A mapping of regions to groups: `None` is a region that layers of every group share.
struct Mapping {
    capacities: &'static [u32],
    groups: &'static [Option<u32>],
    lists: &'static [&'static [u32]],
    ids: &'static [u64],
}

const MAPPINGS: [Mapping; 4] = [
    Mapping {
        capacities: &[10, 10, 10],
        groups: &[Some(0), None, Some(2)],
        lists: &[&[1], &[2], &[3]],
        ids: &[1, 11, 12, 13, 23],
    },
    Mapping {
        capacities: &[10, 10, 10],
        groups: &[Some(0), Some(0), Some(1)],
        lists: &[&[1, 2], &[7]],
        ids: &[1, 2, 11, 12, 27],
    },
    Mapping {
        capacities: &[10, 10, 10],
        groups: &[Some(1), Some(1), Some(0)],
        lists: &[&[1, 2], &[7]],
        ids: &[21, 22, 7, 17],
    },
    Mapping {
        capacities: &[5, 10],
        groups: &[Some(0), Some(1)],
        lists: &[&[4], &[8]],
        ids: &[4, 13],
    },
];

impl Mapping {
    /// Groups whose list has one block have blocks of 32 tokens, the others of 16: every list
    /// covers the same 32 tokens. A layer for each region and group that meet, 4 bytes a token.
    fn engine(&self) -> Engine {
        let size = |group: u32| 32 / self.lists[group as usize].len() as u32;
        let all = 0..self.lists.len() as u32;
        let mut layers = Vec::new();
        for (index, of) in (0_u32..).zip(self.groups) {
            for group in all.clone().filter(|group| of.is_none_or(|of| of == *group)) {
                let layer = keys(&format!("r{index}g{group}"), Kind::Full, 0..1, 4, size(group));
                layers.push(put(layer, group, index));
            }
        }
        let layout = CacheLayout {
            regions: self.capacities.iter().map(|&count| region(128, count)).collect(),
            groups: all.map(|index| group(size(index))).collect(),
            layers,
        };
        let tables: Vec<BlockTable> = self.lists.iter().map(|ids| table(0, ids)).collect();
        Engine::one(layout, &tables)
    }
}

#[test]
fn g01_regions_shared_by_groups_move_the_blocks_of_the_groups_that_are_there() {
    for mapping in MAPPINGS {
        let engine = mapping.engine();
        let plan = read(&engine, &engine, 0, &[], prompt(33));
        let page = |region: u32| {
            let of = mapping.groups[region as usize];
            if of.is_some_and(|of| mapping.lists[of as usize].len() == 2) { 64 } else { 128 }
        };
        let row = |(index, &count)| (u64::from(count), index, 128, 0, page(index));
        let rows: Vec<Row> = (0_u32..).zip(mapping.capacities).map(row).collect();
        assert_eq!(read_bytes(&plan, &engine, &engine), described(&rows, mapping.ids));
    }
}

/// Two layers of attention, 4 bytes a token, in the first two of `regions`, and two states in the
/// last two: 16 bytes of convolution, 44 of state, 4 of padding.
fn hybrid(regions: &[(u64, u32)], tokens: u32) -> CacheLayout {
    let parts = [(Role::ConvInput, 0..4, 4), (Role::Temporal, 0..4, 11)];
    let states = regions.len() as u32 - 2;
    let mut layers = Vec::new();
    for index in [0, 1] {
        let attention = keys(&format!("attn{index}"), Kind::Full, 0..1, 4, tokens);
        layers.push(put(attention, 0, index));
        layers.push(put(state(&format!("ssm{index}"), MAMBA2, &parts), 1, states + index));
    }
    let regions = regions.iter().map(|&(stride, count)| region(stride, count)).collect();
    CacheLayout { regions, groups: vec![group(tokens), group(tokens)], layers }
}

/// The four sub-regions of states: the convolution and the state itself in each of two regions.
fn state_rows(region: u32) -> [Row; 4] {
    [(region, 0, 16), (region, 16, 44), (region + 1, 0, 16), (region + 1, 16, 44)]
        .map(|(region, first, len)| (100, region, 64, first, len))
}

/// vLLM's lists name two states at once. Here a request has one, so two states are two requests.
fn two_states(engine: impl Fn(u32) -> Engine, tokens: u64) -> BTreeSet<(u32, u64)> {
    let bytes = |id| {
        let engine = engine(id);
        let span = Span { valid: tokens, resume_at: tokens };
        read_bytes(&read(&engine, &engine, 0, &[], span), &engine, &engine)
    };
    let mut all = bytes(1);
    all.extend(bytes(2));
    all
}

#[test]
fn g02_hybrid_blocks_and_states_overlay_each_other() {
    let engine = |state| {
        let layout = hybrid(&[(64, 100), (64, 100)], 16);
        Engine::one(layout, &[table(0, &[3, 5]), table(32, &[state])])
    };
    let mut rows = vec![(100, 0, 64, 0, 64), (100, 1, 64, 0, 64)];
    rows.extend(state_rows(0));
    let ids = [3, 5, 103, 105, 201, 202, 301, 302, 401, 402, 501, 502];
    assert_eq!(two_states(engine, 32), described(&rows, &ids));
    // One request of two states is refused.
    let mut both = engine(1);
    both.tables[0][1] = table(32, &[1, 2]);
    let span = Span { valid: 32, resume_at: 32 };
    let refused = try_read(&both, &both, 0, &[], span).unwrap_err();
    assert_eq!(refused.to_string(), "group 1: the target has 2 states, a request has one");
}

#[test]
fn g02_hybrid_of_four_kernel_blocks_a_block() {
    // The same memory seen as 400 kernel blocks of 4 tokens, and as 100 states.
    let engine = |state| {
        let layout = hybrid(&[(16, 400), (16, 400), (64, 100), (64, 100)], 4);
        Engine::one(layout, &[table(0, &[3, 7]), table(8, &[state])])
    };
    let mut rows = vec![(400, 0, 16, 0, 16), (400, 1, 16, 0, 16)];
    rows.extend(state_rows(2));
    let ids = [3, 7, 403, 407, 801, 802, 901, 902, 1001, 1002, 1101, 1102];
    assert_eq!(two_states(engine, 8), described(&rows, &ids));
}

#[test]
fn g02_hybrid_of_blocks_four_times_as_large_as_the_peers() {
    // D's blocks of 16 tokens seen in the quarters that P's blocks of 4 fill: quarter 3 is
    // tokens 12..16 of D's block 0, quarter 5 tokens 20..24, in block 1. Two requests that have
    // the tokens before each.
    let (small, large) = (hybrid(&[(64, 100), (64, 100)], 4), hybrid(&[(64, 100), (64, 100)], 16));
    let mut written = BTreeSet::new();
    for (resume_at, start, block, state_hit) in [(16, 0, 0, 0), (24, 16, 1, 24)] {
        let ids: Vec<u32> = (50..50 + resume_at as u32 / 4).collect();
        let from = Engine::one(small.clone(), &[table(0, &ids), table(resume_at, &[9])]);
        let to = Engine::one(large.clone(), &[table(start, &[block]), table(resume_at, &[1])]);
        let span = Span { valid: resume_at, resume_at };
        let plan = read(&from, &to, 0, &[resume_at - 4, state_hit], span);
        written.extend(written_bytes(&plan, &from, &to));
    }
    let mut rows = vec![(400, 0, 16, 0, 16), (400, 1, 16, 0, 16)];
    rows.extend(state_rows(0));
    assert_eq!(written, described(&rows, &[3, 5, 403, 405, 801, 901, 1001, 1101]));
}

/// The layer with its blocks cut into kernel blocks of `tokens`.
fn tiled(mut layer: PlacedLayer, tokens: u32) -> PlacedLayer {
    for part in &mut layer.parts {
        let stride = u64::from(part.bytes) * u64::from(tokens) * u64::from(part.unit_count());
        part.unit_stride = u64::from(part.bytes) * u64::from(tokens);
        part.tile = Some(Tile { tokens, stride });
    }
    layer
}

#[test]
fn g03_logical_blocks_stand_for_their_kernel_blocks() {
    // Blocks of 16 tokens, kernel blocks of 8: 0, 1, 2 and, of a window over the last 32
    // tokens, 3 and 4.
    let layers = [("full", Kind::Full, 0), ("window", window(33), 1)];
    let layer = |(name, kind, of)| put(tiled(keys(name, kind, 0..2, 2, 16), 8), of, 0);
    let layout = CacheLayout {
        regions: vec![region(64, 100)],
        groups: vec![group(16), group(16)],
        layers: layers.map(layer).to_vec(),
    };
    let engine = Engine::one(layout, &[table(0, &[0, 1, 2]), table(16, &[3, 4])]);
    let plan = read(&engine, &engine, 0, &[], prompt(49));
    let kernel = units(&runs(&plan, &engine, &engine.layouts[0]), 32);
    let read: Vec<u64> = kernel.into_iter().map(|(from, _)| from).collect();
    assert_eq!(read, [0, 1, 2, 3, 4, 5, 6, 7, 8, 9]);
}

#[test]
fn g03_a_state_is_not_expanded() {
    // Block 0 is ten kernel blocks of 4 tokens; state 10 is one page.
    let attention = tiled(keys("attn", Kind::Full, 0..1, 4, 40), 4);
    let ssm = put(state("ssm", MAMBA2, &[(Role::Temporal, 0..1, 100)]), 1, 0);
    let mut layout = single(region(160, 100), group(40), vec![attention, ssm]);
    layout.groups.push(group(40));
    let engine = Engine::one(layout, &[table(0, &[0]), table(40, &[10])]);
    let plan = read(&engine, &engine, 0, &[], Span { valid: 40, resume_at: 40 });
    let moved = runs(&plan, &engine, &engine.layouts[0]);
    assert_eq!(
        moved.iter().map(|run| (run.from.1, run.len)).collect::<Vec<_>>(),
        [(0, 160), (1600, 100)]
    );
    let kernel: Vec<u64> = units(&moved[..1], 16).into_iter().map(|(from, _)| from).collect();
    assert_eq!(kernel, [0, 1, 2, 3, 4, 5, 6, 7, 8, 9]);
}

#[test]
fn g04_a_block_of_four_peer_blocks_is_filled_up_to_where_the_peers_end() {
    let of = |tokens| {
        single(region(256, 100), group(tokens), vec![keys("a", Kind::Full, 0..1, 4, tokens)])
    };
    let ids: Vec<u32> = (20..30).collect();
    let from = Engine::one(of(16), &[table(0, &ids)]);
    let to = Engine::one(of(64), &[table(0, &[1, 2, 3])]);
    let plan = read(&from, &to, 0, &[], prompt(160));
    let mut written = Vec::new();
    for run in runs(&plan, &from, &to.layouts[0]) {
        assert_eq!(run.from.1 % 256, 0);
        written.push(run.to.1 / 64);
    }
    assert_eq!(written, [4, 5, 6, 7, 8, 9, 10, 11, 12, 13]);
    // Quarters 14 and 15 are D's alone, and nothing writes them.
    let zero: Vec<(u32, u64, u64)> = plan
        .zero
        .iter()
        .map(|blocks| (blocks.ids()[0], blocks.pattern().offset(), blocks.bytes()))
        .collect();
    assert_eq!(zero, [(3, 128, 128)]);
    // A full hit leaves nothing.
    assert!(blocks(&read(&from, &to, 0, &[160], prompt(160)), 0).is_empty());
}
