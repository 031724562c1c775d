//! Groups, block sizes and counts of published models: prompts of 4000 tokens, 20,000 for
//! Llama 4.
//!
//! A count is one of contiguous ranges when a page is one of them. `region_mapped` is what vLLM
//! 0.33 sends: a region whose layers are all of one group gets that group's blocks, a region
//! that several share the blocks of all groups.

use kv_layout::baseline::{all_full, flat_hybrid};
use kv_layout::{EngineShape, Grouping, Kind, Layer, Model, PageOrder, kept};
use strided::BlockCopy;

use crate::kit::{Engine, model, prompt, published, read, runs, shape};

struct Row {
    name: &'static str,
    block_size: u32,
    tokens: u64,
    /// Layers of each group, in order of the groups' first layers.
    groups: &'static [usize],
    regions: usize,
    page: u64,
    full: u64,
    flat: u64,
    mapped: u64,
    exact: u64,
}

const ATTENTION: [Row; 9] = [
    Row {
        name: "gemma-3-4b-it",
        block_size: 64,
        tokens: 4000,
        groups: &[5, 5, 5, 5, 5, 4, 5],
        regions: 5,
        page: 256 << 10,
        full: 2142,
        flat: 825,
        mapped: 825,
        exact: 808,
    },
    Row {
        name: "gemma-3-27b-it",
        block_size: 64,
        tokens: 4000,
        groups: &[9, 9, 9, 9, 8, 8, 10],
        regions: 10,
        page: 512 << 10,
        full: 3906,
        flat: 1650,
        mapped: 1548,
        exact: 1514,
    },
    Row {
        name: "gpt-oss-20b",
        block_size: 64,
        tokens: 4000,
        groups: &[12, 12],
        regions: 12,
        page: 128 << 10,
        full: 1512,
        flat: 792,
        mapped: 792,
        exact: 792,
    },
    Row {
        name: "gpt-oss-20b",
        block_size: 16,
        tokens: 4000,
        groups: &[12, 12],
        regions: 12,
        page: 32 << 10,
        full: 6000,
        flat: 3096,
        mapped: 3096,
        exact: 3096,
    },
    Row {
        name: "gpt-oss-20b + draft",
        block_size: 64,
        tokens: 4000,
        groups: &[12, 13],
        regions: 13,
        page: 128 << 10,
        full: 1575,
        flat: 858,
        mapped: 855,
        exact: 855,
    },
    Row {
        name: "Llama-4-Scout-17B-16E",
        block_size: 64,
        tokens: 20_000,
        groups: &[12, 12, 12, 12],
        regions: 12,
        page: 256 << 10,
        full: 15_024,
        flat: 5808,
        mapped: 5808,
        exact: 5808,
    },
    Row {
        name: "Llama-3.1-8B",
        block_size: 16,
        tokens: 4000,
        groups: &[32],
        regions: 32,
        page: 64 << 10,
        full: 8000,
        flat: 8000,
        mapped: 8000,
        exact: 8000,
    },
    Row {
        name: "Llama-3.1-8B",
        block_size: 64,
        tokens: 4000,
        groups: &[32],
        regions: 32,
        page: 256 << 10,
        full: 2016,
        flat: 2016,
        mapped: 2016,
        exact: 2016,
    },
    Row {
        name: "DeepSeek-V3",
        block_size: 64,
        tokens: 4000,
        groups: &[61],
        regions: 61,
        page: 73_728,
        full: 3843,
        flat: 3843,
        mapped: 3843,
        exact: 3843,
    },
];

fn named(name: &str) -> Model {
    if name != "gpt-oss-20b + draft" {
        return published(name);
    }
    let mut model = published("gpt-oss-20b");
    let mut draft = model.layers[1].clone();
    assert_eq!(draft.kind, Kind::Full);
    draft.name = "draft.0".to_owned();
    model.layers.push(draft);
    model
}

/// Contiguous ranges that a plan's copies have, none merged across blocks.
fn ranges<'a>(copies: impl Iterator<Item = &'a BlockCopy>) -> u64 {
    let count = |copy: &BlockCopy| {
        let pieces = copy.source().pattern().elements().max(copy.target().pattern().elements());
        pieces * copy.source().ids().len() as u64
    };
    copies.map(count).sum()
}

fn region_mapped(grouping: &Grouping, tokens: u64) -> u64 {
    let blocks =
        |group: &kv_layout::Group| kept(group.kind, group.block_size, tokens - 1, tokens).blocks;
    let slots = 0..grouping.slot_bytes.len();
    let of_slot = |slot: usize| {
        let here: Vec<_> =
            grouping.groups.iter().filter(|group| slot < group.layers.len()).collect();
        match here[..] {
            [group] => blocks(group),
            _ => grouping.groups.iter().map(blocks).sum(),
        }
    };
    slots.map(of_slot).sum()
}

#[test]
fn m25_attention_models() {
    for row in ATTENTION {
        let case = format!("{}, blocks of {}", row.name, row.block_size);
        let model = named(row.name);
        let grouping = Grouping::new(&model, row.block_size).unwrap();
        let sizes: Vec<usize> = grouping.groups.iter().map(|group| group.layers.len()).collect();
        assert_eq!(sizes, row.groups, "{case}");
        assert_eq!(grouping.slot_bytes, vec![row.page; row.regions], "{case}");
        let full = all_full(&model, &grouping, row.tokens);
        let flat = flat_hybrid(&model, &grouping, row.tokens);
        assert_eq!((full.ranges_joint, flat.ranges_joint), (row.full, row.flat), "{case}");
        assert_eq!(region_mapped(&grouping, row.tokens), row.mapped, "{case}");
        // Keys and values apart are twice as many, of a latent alone as many.
        let apart = if row.name == "DeepSeek-V3" { 1 } else { 2 };
        for (order, times) in [(PageOrder::Joint, 1), (PageOrder::Apart, apart)] {
            let shape = EngineShape::single(row.block_size, order);
            let engine = Engine::of(&model, shape, prompt(row.tokens));
            let plan = read(&engine, &engine, 0, &[], prompt(row.tokens));
            assert_eq!(engine.layouts[0].regions.len(), row.regions * times as usize, "{case}");
            assert_eq!(ranges(plan.copies()), row.exact * times, "{case}");
            assert_eq!(plan.bytes(), row.exact * row.page, "{case}");
        }
        assert_eq!(full.ranges_apart, row.full * apart, "{case}");
        assert_eq!(flat.ranges_apart, row.flat * apart, "{case}");
    }
}

/// 61 layers of a latent and 61 indexers of 132 bytes a token: one group of two page sizes.
fn deepseek_v32() -> Model {
    let layers = (0..61).flat_map(|index| {
        [
            Layer::attention(format!("layers.{index}"), Kind::Mla, 1, 1152, 0),
            Layer::attention(format!("layers.{index}.indexer"), Kind::Mla, 1, 132, 0),
        ]
    });
    model(layers.collect())
}

#[test]
fn m25_deepseek_v32_has_one_group_of_122_pages() {
    let model = deepseek_v32();
    let grouping = Grouping::new(&model, 64).unwrap();
    assert_eq!(grouping.groups.len(), 1);
    assert_eq!(grouping.slot_bytes.len(), 122);
    assert_eq!(all_full(&model, &grouping, 4000).ranges_joint, 7686);
    let engine = Engine::of(&model, shape(1, 64), prompt(4000));
    let plan = read(&engine, &engine, 0, &[], prompt(4000));
    assert_eq!(ranges(plan.copies()), 7686);
}

#[test]
fn m25_a_block_of_an_mla_model_is_one_range_when_blocks_are_rows() {
    for model in [published("DeepSeek-V3"), deepseek_v32()] {
        let shape = EngineShape::single(64, PageOrder::BlockOutermost);
        let engine = Engine::of(&model, shape, prompt(4000));
        assert_eq!(engine.layouts[0].regions.len(), 1);
        let plan = read(&engine, &engine, 0, &[], prompt(4000));
        assert_eq!(runs(&plan, &engine, &engine.layouts[0]).len(), 63);
    }
}

struct Hybrid {
    name: &'static str,
    /// Ranks of D; P has one.
    tensor: u32,
    groups: &'static [usize],
    block_size: u32,
    /// Bytes of a state and of a token on each rank of D.
    state: u64,
    token: u64,
    /// Padding of a state, in hundredths of a percent.
    padding: u64,
    attention: u64,
    /// Ranges of states as vLLM counts them, one a part.
    parts: u64,
    states: u64,
}

const HYBRID: [Hybrid; 4] = [
    Hybrid {
        name: "Qwen3-Next-80B-A3B",
        tensor: 1,
        groups: &[12, 12, 12, 12],
        block_size: 544,
        state: 1_097_728,
        token: 2048,
        padding: 149,
        attention: 96,
        parts: 144,
        states: 36,
    },
    Hybrid {
        name: "Qwen3-Next-80B-A3B",
        tensor: 4,
        groups: &[12, 12, 12, 12],
        block_size: 272,
        state: 274_432,
        token: 1024,
        padding: 149,
        attention: 180,
        parts: 144,
        states: 36,
    },
    Hybrid {
        name: "Jamba-v0.1",
        tensor: 1,
        groups: &[4, 4, 4, 4, 4, 4, 4, 4],
        block_size: 80,
        state: 311_296,
        token: 4096,
        padding: 526,
        attention: 200,
        parts: 56,
        states: 28,
    },
    Hybrid {
        name: "Nemotron-H-8B-Base-8K",
        tensor: 1,
        groups: &[4, 4, 4, 4, 4, 4, 4],
        block_size: 528,
        state: 2_158_592,
        token: 4096,
        padding: 18,
        attention: 32,
        parts: 96,
        states: 24,
    },
];

/// Ranges that a plan has of attention and of states.
fn counted(from: &Engine, to: &Engine, recurrent: bool) -> u64 {
    let mut to = Engine { layouts: to.layouts.clone(), tables: to.tables.clone() };
    for layout in &mut to.layouts {
        layout.layers.retain(|layer| layer.kind.is_recurrent() == recurrent);
    }
    ranges(read(from, &to, 0, &[], prompt(4000)).copies())
}

#[test]
fn m25_hybrid_models() {
    for row in HYBRID {
        let case = format!("{}, {} ranks", row.name, row.tensor);
        let model = published(row.name);
        let ranks = shape(row.tensor, 16).ranks(&model).unwrap();
        let (shard, grouping) = (&ranks[0].shard.model, &ranks[0].grouping);
        let sizes: Vec<usize> = grouping.groups.iter().map(|group| group.layers.len()).collect();
        assert_eq!(sizes, row.groups, "{case}");
        let attention: Vec<u32> = grouping
            .groups
            .iter()
            .filter(|group| group.kind == Kind::Full)
            .map(|group| group.block_size)
            .collect();
        assert_eq!(attention, [row.block_size], "{case}");
        for layer in &shard.layers {
            let bytes = if layer.kind.is_recurrent() { row.state } else { row.token };
            assert_eq!(layer.row_bytes(), bytes, "{case}");
        }
        let page = u64::from(row.block_size) * row.token;
        assert_eq!(grouping.slot_bytes, vec![page; row.groups[0]], "{case}");
        assert_eq!((page - row.state) * 10_000 / row.state, row.padding, "{case}");

        let engine = |tensor| Engine::of(&model, shape(tensor, 16), prompt(4000));
        let own = engine(row.tensor);
        assert_eq!(counted(&own, &own, false), row.attention, "{case}");
        // Parts of a state that follow each other on both sides are one range.
        assert_eq!(counted(&own, &own, true), row.states, "{case}");
        // From or to another number of ranks each part is one, as vLLM has it everywhere.
        let (from, to) = if row.tensor == 1 { (1, 2) } else { (1, row.tensor) };
        assert_eq!(counted(&engine(from), &engine(to), true), row.parts, "{case}");
    }
}

#[test]
fn m25_qwen3_next_on_four_ranks_keeps_a_head_that_two_share_and_a_quarter_of_the_state() {
    let model = published("Qwen3-Next-80B-A3B");
    let engine = |tensor| Engine::of(&model, shape(tensor, 16), prompt(4000));
    let (one, four) = (engine(1), engine(4));
    let heads = |rank: usize| {
        let layers = &four.layouts[rank].layers;
        layers.iter().find(|layer| layer.kind == Kind::Full).unwrap().parts[0].units.clone()
    };
    assert_eq!([0, 1, 2, 3].map(heads), [0..1, 0..1, 1..2, 1..2]);
    // Blocks of 544 on the one side, of 272 on the other: each of D's 15 lies in one of P's 8.
    assert_eq!(counted(&one, &four, false), 180);
    assert_eq!(counted(&four, &one, true), 4 * 36 * 4);
}
