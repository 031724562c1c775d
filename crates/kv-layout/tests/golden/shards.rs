//! Heads and state parts shared by tensor parallelism, and the block sizes that follow.

use kv_layout::{Grouping, Kind, Layer, Recurrence, Role, Span};

use crate::kit::{
    Engine, Run, blocks, group, keys, model, prompt, put, read, recurrent, region, runs, shape,
    single, state, table,
};

const MAMBA1: Kind = Kind::Recurrent { recurrence: Recurrence::Mamba1 };
const MAMBA2: Kind = Kind::Recurrent { recurrence: Recurrence::Mamba2 };
const DELTA: Kind = Kind::Recurrent { recurrence: Recurrence::GatedDeltaNet };

/// The heads of a draft layer that one rank keeps, when `heads` are shared by `ranks`.
fn draft(rank: u32, ranks: u32, heads: u32) -> kv_layout::PlacedLayer {
    let first = rank * heads / ranks;
    keys("draft", Kind::Full, first..first + heads.div_ceil(ranks), 1, 16)
}

#[test]
fn g10_a_draft_with_heads_under_an_mla_target_is_read_at_its_own_head() {
    // D's rank, its ranks, P's ranks, heads of the draft; how many heads into P's page.
    for (rank, to, from, heads, offset) in [(3, 8, 1, 8, 3), (5, 8, 2, 8, 1), (5, 16, 1, 8, 2)] {
        let engine = |ranks: u32| {
            Engine::ranks((0..ranks).map(|rank| {
                let layers =
                    vec![keys("mla", Kind::Mla, 0..1, 8, 16), put(draft(rank, ranks, heads), 0, 1)];
                let mut layout = single(region(128, 100), group(16), layers);
                layout.regions.push(region(u64::from(16 * heads.div_ceil(ranks)), 100));
                (layout, table(0, &[0]))
            }))
        };
        let (from, to) = (engine(from), engine(to));
        let plan = read(&from, &to, rank, &[], prompt(16));
        let draft: Vec<Run> =
            runs(&plan, &from, &to.layouts[rank]).into_iter().filter(|run| run.to.0 == 1).collect();
        assert_eq!(draft.len(), 1);
        assert_eq!((draft[0].from, draft[0].to, draft[0].len), ((1, offset * 16), (1, 0), 16));
    }
}

#[test]
fn g11_two_sources_split_the_state_and_leave_attention_whole() {
    // D has one rank. Of a head that both ranks of P keep, blocks are read whole; of a state of
    // 400 bytes, 200 come from each: bytes 3000..3200 and 3200..3400 of a row that begins at
    // 3000, and the same 400 bytes on in the next block.
    let layers = |units| {
        let ssm = state("ssm", MAMBA2, &[(Role::Temporal, units, 100)]);
        vec![keys("attn", Kind::Full, 0..1, 25, 16), put(ssm, 1, 1)]
    };
    let engine = |shares: &[(u32, u32)], tables: &[kv_layout::BlockTable]| {
        let layout = |&(first, end): &(u32, u32)| {
            let mut layout = single(region(400, 100), group(16), layers(first..end));
            layout.regions.push(region(100 * u64::from(end - first), 100));
            layout.groups.push(group(16));
            layout
        };
        let layouts: Vec<_> = shares.iter().map(layout).collect();
        Engine { tables: vec![tables.to_vec(); layouts.len()], layouts }
    };
    let from = engine(&[(0, 2), (2, 4)], &[table(0, &[5, 6]), table(32, &[8])]);
    let span = Span { valid: 32, resume_at: 32 };
    const ROW: u64 = 3000;
    for (block, rows) in [(0, [3000, 3200]), (1, [3400, 3600])] {
        let to = engine(&[(0, 4)], &[table(0, &[1, 2]), table(32, &[block])]);
        let moved = runs(&read(&from, &to, 0, &[], span), &from, &to.layouts[0]);
        let state: Vec<_> = moved
            .iter()
            .filter(|run| run.to.0 == 1)
            .map(|run| (run.rank, ROW + run.to.1, run.len))
            .collect();
        assert_eq!(state, [(0, rows[0], 200), (1, rows[1], 200)]);
        let attention: Vec<_> = moved
            .iter()
            .filter(|run| run.to.0 == 0)
            .map(|run| (run.from.1, run.to.1, run.len))
            .collect();
        assert_eq!(attention, [(5 * 400, 400, 400), (6 * 400, 800, 400)]);
    }
}

/// A window of 3 columns of 2 bytes.
const COLUMN: u32 = 6;

/// A model, its recurrence, the parts of its convolution, ranks; channels of each part of one.
type Case<'a> = (&'a str, Kind, &'a [(Role, u32, u32)], u32, &'a [u64]);

/// Channels of each convolution part of a rank.
fn conv_dims(layer: &Layer, tensor: u32) -> Vec<u64> {
    let model = model(vec![layer.clone()]);
    let layouts = shape(tensor, 16).layouts(&model, 4).unwrap();
    let conv = layouts[tensor as usize - 1].layers[0].parts.iter();
    let conv: Vec<_> = conv.filter(|part| part.role != Role::Temporal).collect();
    // Each begins where the one before ends.
    let mut offset = 0;
    let mut dims = Vec::new();
    for part in conv {
        assert_eq!(part.offset, offset);
        let bytes = u64::from(part.unit_count()) * u64::from(part.bytes);
        offset += bytes;
        dims.push(bytes / u64::from(COLUMN));
    }
    dims
}

#[test]
fn g12_convolutions_are_shared_projection_by_projection() {
    let mamba2 = [
        (Role::ConvInput, 128, 64 * COLUMN),
        (Role::ConvB, 8, 128 * COLUMN),
        (Role::ConvC, 8, 128 * COLUMN),
    ];
    let delta = |values| {
        [
            (Role::ConvQuery, 16, 128 * COLUMN),
            (Role::ConvKey, 16, 128 * COLUMN),
            (Role::ConvValue, values, 128 * COLUMN),
        ]
    };
    let mamba1 = [(Role::ConvInput, 8192, COLUMN)];
    let cases: [Case<'_>; 5] = [
        ("Nemotron-H-8B", MAMBA2, &mamba2, 1, &[8192, 1024, 1024]),
        ("Nemotron-H-8B", MAMBA2, &mamba2, 4, &[2048, 256, 256]),
        ("Qwen3.5-4B", DELTA, &delta(32), 1, &[2048, 2048, 4096]),
        ("Qwen3.5-27B", DELTA, &delta(48), 8, &[256, 256, 768]),
        ("Jamba", MAMBA1, &mamba1, 8, &[1024]),
    ];
    for (name, kind, parts, tensor, dims) in cases {
        assert_eq!(conv_dims(&recurrent(name, kind, parts), tensor), dims, "{name}, {tensor}");
    }
    // The two that the workspace has configs of say the same.
    for (name, tensor, dims) in
        [("Nemotron-H-8B-Base-8K", 4, &[2048, 256, 256][..]), ("Jamba-v0.1", 8, &[1024])]
    {
        let layers = crate::kit::published(name).layers;
        let layer = layers.iter().find(|layer| layer.kind.is_recurrent()).unwrap();
        assert_eq!(conv_dims(layer, tensor), dims, "{name}");
    }
}

#[test]
fn g12_a_rank_of_four_reads_its_slice_of_each_projection() {
    // Nemotron-H-8B, rank 3 of 4 from a peer of one rank: x is channels 6144..8192, B and C are
    // channels 768..1024 of 1024 each.
    let layer = recurrent(
        "a",
        MAMBA2,
        &[
            (Role::ConvInput, 128, 64 * COLUMN),
            (Role::ConvB, 8, 128 * COLUMN),
            (Role::ConvC, 8, 128 * COLUMN),
            (Role::Temporal, 128, 64 * 128 * 2),
        ],
    );
    let span = Span { valid: 100, resume_at: 100 };
    let engine = |tensor| {
        let layouts = shape(tensor, 16).layouts(&model(vec![layer.clone()]), 4).unwrap();
        Engine { tables: vec![vec![table(100, &[0])]; layouts.len()], layouts }
    };
    let (from, to) = (engine(1), engine(4));
    let plan = read(&from, &to, 3, &[], span);
    assert_eq!(blocks(&plan, 0), [(0, 0)]);
    let moved: Vec<_> = runs(&plan, &from, &to.layouts[3])
        .into_iter()
        .map(|run| (run.from.1, run.to.1, run.len))
        .collect();
    let state = 10_240 * 6 + 96 * 16_384;
    assert_eq!(
        moved,
        [
            (6144 * 6, 0, 2048 * 6),
            ((8192 + 768) * 6, 2048 * 6, 256 * 6),
            ((9216 + 768) * 6, 2304 * 6, 256 * 6),
            (state, 2560 * 6, 32 * 16_384),
        ]
    );
}

#[test]
fn g13_kernel_blocks_of_a_block_follow_from_the_size_of_a_state() {
    // State, bytes of a token of attention, block size asked for, kernel block; kernel blocks of
    // a block. Nemotron-30B (16 tokens of it are 8192 bytes, and 4096 from two ranks on, which
    // share one head each); Qwen3.5-0.8B, whose blocks are aligned to 128 tokens.
    let cases = [
        (36_864 + 2_097_152, 512, 16, 16, 261),
        (18_432 + 1_048_576, 256, 16, 16, 261),
        (9216 + 524_288, 256, 16, 16, 131),
        (9216 + 262_144, 1024, 128, 64, 6),
        (18_432 + 524_288, 1024, 128, 64, 10),
    ];
    for (state, token, asked, kernel, blocks) in cases {
        let layers = vec![
            recurrent("ssm", MAMBA2, &[(Role::Temporal, 1, state)]),
            Layer::attention("attn", Kind::Full, 1, token / 2, token / 2),
        ];
        let grouping = Grouping::new(&model(layers), asked).unwrap();
        assert_eq!(grouping.groups[1].block_size / kernel, blocks, "{state}");
        assert_eq!(grouping.groups[1].block_size % kernel, 0, "{state}");
    }
}
