//! Layout arithmetic: logical and kernel blocks, blocks of different size, context parallelism.

use kv_layout::{
    BlockTable, CacheLayout, ContextShare, EngineShape, Kind, Layer, PageOrder, PlacedLayer,
    PlanError, Role, Tile, kept,
};

use crate::kit::{
    Engine, MAMBA2, blocks, group, keys, model, prompt, read, recurrent, region, runs, shape,
    shared, single, table, try_read, units, window,
};

/// One head of `bytes` a token in blocks of `tokens`, cut into kernel blocks of `kernel`.
fn cut(bytes: u32, tokens: u32, kernel: u32) -> PlacedLayer {
    let mut layer = keys("a", Kind::Full, 0..1, bytes, tokens);
    let stride = u64::from(bytes) * u64::from(kernel);
    layer.parts[0].tile = Some(Tile { tokens: kernel, stride });
    layer
}

fn plain(tokens: u32) -> CacheLayout {
    single(
        region(u64::from(tokens), 100),
        group(tokens),
        vec![keys("a", Kind::Full, 0..1, 1, tokens)],
    )
}

#[test]
fn r02_vllm_28677_logical_128_and_kernel_64() {
    let full = || Layer::attention("layers.0", Kind::Full, 2, 4, 4);
    let sliding = || Layer::attention("layers.1", window(300), 2, 4, 4);
    // 128 tokens of attention are as large as this state.
    let mamba = || recurrent("layers.1", MAMBA2, &[(Role::Temporal, 2, 1024)]);
    for layers in [vec![full()], vec![full(), sliding()], vec![full(), mamba()]] {
        let kinds: Vec<Kind> = layers.iter().map(|layer| layer.kind).collect();
        let shape = EngineShape { kernel_block: Some(64), ..shape(1, 128) };
        let layouts = shape.layouts(&model(layers), 100).unwrap();
        let of = |kind: &Kind| {
            if kind.is_recurrent() { table(383, &[9]) } else { table(0, &[0, 1, 2]) }
        };
        let tables: Vec<BlockTable> = kinds.iter().map(of).collect();
        let mut engine = Engine::one(layouts[0].clone(), &tables);
        assert!(engine.layouts[0].groups.iter().all(|group| group.block_size == 128), "{kinds:?}");
        // A kernel block is 64 tokens × 2 heads × 8 bytes. The attention alone: the state has no
        // kernel blocks.
        engine.layouts[0].layers.retain(|layer| layer.kind == Kind::Full);
        let plan = read(&engine, &engine, 0, &[], prompt(384));
        let kernel = units(&runs(&plan, &engine, &engine.layouts[0]), 1024);
        assert_eq!(kernel, [(0, 0), (1, 1), (2, 2), (3, 3), (4, 4), (5, 5)], "{kinds:?}");
        // Head 1 of token 64 is the first of the second half of kernel block 1.
        let part = &engine.layouts[0].layers[0].parts[0];
        let tile = part.tile.unwrap();
        assert_eq!((tile.tokens, tile.stride, part.unit_stride), (64, 1024, 512), "{kinds:?}");
    }
}

#[test]
fn r02_vllm_28677_a_block_of_kernel_blocks_from_one_that_is_not_cut() {
    // Two heads of a byte; block 1. Uncut, head h of token t is at 128 + h × 64 + t, cut into
    // kernel blocks of 32 at 128 + (t / 32) × 64 + h × 32 + t % 32.
    let whole = single(region(128, 10), group(64), vec![keys("a", Kind::Full, 0..2, 1, 64)]);
    let mut cut = whole.clone();
    let part = &mut cut.layers[0].parts[0];
    part.unit_stride = 32;
    part.tile = Some(Tile { tokens: 32, stride: 64 });
    let (from, to) = (Engine::one(whole, &[table(0, &[1])]), Engine::one(cut, &[table(0, &[1])]));
    let moved = |from: &Engine, to: &Engine| {
        let plan = read(from, to, 0, &[], prompt(64));
        let runs = runs(&plan, from, &to.layouts[0]);
        runs.iter().map(|run| (run.from.1, run.to.1, run.len)).collect::<Vec<_>>()
    };
    assert_eq!(moved(&from, &to), [(128, 128, 32), (192, 160, 32), (160, 192, 32), (224, 224, 32)]);
    assert_eq!(moved(&to, &from), [(128, 128, 32), (192, 160, 32), (160, 192, 32), (224, 224, 32)]);
}

#[test]
fn r03_vllm_42097_each_sides_blocks_are_cut_by_its_own_ratio() {
    // Kernel blocks of 16 tokens: four a block on P, two on D.
    let layout = |ratio: u32| {
        let layer = cut(1, 16 * ratio, 16);
        single(region(u64::from(16 * ratio), 100), group(16 * ratio), vec![layer])
    };
    let from = Engine::one(layout(4), &[table(0, &[3, 5])]);
    let to = Engine::one(layout(2), &[table(0, &[1, 2, 9, 10])]);
    let pairs = |to: &Engine, tokens| {
        units(&runs(&read(&from, to, 0, &[], prompt(tokens)), &from, &to.layouts[0]), 16)
    };
    let all = [(12, 2), (13, 3), (14, 4), (15, 5), (20, 18), (21, 19), (22, 20), (23, 21)];
    assert_eq!(pairs(&to, 128), all);
    // Lists that cover different numbers of tokens: P's last two kernel blocks have no place.
    let to = Engine::one(layout(2), &[table(0, &[1, 2, 9])]);
    assert_eq!(pairs(&to, 96), all[..6]);
}

#[test]
fn r03_vllm_42097_kernel_blocks_of_unequal_size_are_cut_at_both_sides_boundaries() {
    // Blocks of 64 tokens, two heads of a byte; block 1. Kernel blocks of 32 tokens on P, of 16
    // on D.
    let engine = |kernel: u32| {
        let mut layer = keys("a", Kind::Full, 0..2, 1, 64);
        let part = &mut layer.parts[0];
        part.unit_stride = u64::from(kernel);
        part.tile = Some(Tile { tokens: kernel, stride: u64::from(2 * kernel) });
        Engine::one(single(region(128, 10), group(64), vec![layer]), &[table(0, &[1])])
    };
    let (p, d) = (engine(32), engine(16));
    let sixteens = |from: &Engine, to: &Engine| {
        let runs = runs(&read(from, to, 0, &[], prompt(64)), from, &to.layouts[0]);
        units(&runs, 16)
    };
    // Head 0 of tokens 0..16, head 1 of them, head 0 of tokens 16..32, …
    let right = [(8, 8), (10, 9), (9, 10), (11, 11), (12, 12), (14, 13), (13, 14), (15, 15)];
    assert_eq!(sixteens(&p, &d), right);
    let mut back = right.map(|(on_p, on_d)| (on_d, on_p));
    back.sort_by_key(|&(_, to)| to);
    assert_eq!(sixteens(&d, &p), back);
}

#[test]
fn r04_vllm_46334_a_logical_block_of_sixteen_rows() {
    // A latent of 1152 bytes a row, 16 rows a block.
    let layout = |blocks| {
        let layer = keys("mla", Kind::Mla, 0..1, 1152, 16);
        single(region(18_432, blocks), group(16), vec![layer])
    };
    let engine = |blocks| Engine::one(layout(blocks), &[table(0, &[7])]);
    let engine_of_8 = engine(8);
    let moved = runs(
        &read(&engine_of_8, &engine_of_8, 0, &[], prompt(16)),
        &engine_of_8,
        &engine_of_8.layouts[0],
    );
    assert_eq!((moved.len(), moved[0].from.1, moved[0].len), (1, 129_024, 18_432));
    // A region that ends before the block, or blocks shorter than its rows.
    let refused = try_read(&engine(7), &engine(8), 0, &[], prompt(16)).unwrap_err();
    assert_eq!(
        refused.to_string(),
        "mla: the source's layout: block 7 is outside region 0, which has 7 blocks"
    );
    let mut short = engine(8);
    short.layouts[0].regions[0] = region(1152, 8);
    let refused = try_read(&short, &engine(8), 0, &[], prompt(16)).unwrap_err();
    assert!(matches!(refused, PlanError::Bytes { .. }), "{refused}");
}

/// First byte on P and D and length of each run.
fn moved(from: &Engine, to: &Engine, hits: &[u64], tokens: u64) -> Vec<(u64, u64, u64)> {
    let plan = read(from, to, 0, hits, prompt(tokens));
    let runs = runs(&plan, from, &to.layouts[0]);
    runs.iter().map(|run| (run.from.1, run.to.1, run.len)).collect()
}

#[test]
fn r05_vllm_42895_a_block_of_32_fills_two_of_16() {
    // P's block 5 of the sequence is tokens 160..192: D's blocks 10 and 11.
    let from = Engine::one(plain(32), &[table(160, &[5])]);
    let to = Engine::one(plain(16), &[table(160, &[21, 30])]);
    assert_eq!(moved(&from, &to, &[160], 192), [(160, 336, 16), (176, 480, 16)]);
    // And back: two blocks of 16 fill one of 32.
    assert_eq!(moved(&to, &from, &[160], 192), [(336, 160, 16), (480, 176, 16)]);
}

#[test]
fn r05_vllm_42895_blocks_of_24_and_16_are_cut_every_8_tokens() {
    // The report would have this pair refused; by token it is as good as any.
    let from = Engine::one(plain(24), &[table(0, &[10, 20])]);
    let to = Engine::one(plain(16), &[table(0, &[3, 5, 7])]);
    assert_eq!(
        moved(&from, &to, &[], 48),
        [(240, 48, 16), (256, 80, 8), (480, 88, 8), (488, 112, 16),]
    );
}

#[test]
fn r05_vllm_42895_opaque_blocks_of_unequal_size_are_refused_with_both_values() {
    let opaque = |tokens| {
        let mut layout = plain(tokens);
        layout.layers[0].packing = Some("x16".to_owned());
        Engine::one(layout, &[table(0, &[1, 2, 3])])
    };
    let refused = try_read(&opaque(24), &opaque(16), 0, &[], prompt(48)).unwrap_err();
    assert!(matches!(refused, PlanError::Opaque { .. }), "{refused}");
    assert_eq!(
        refused.to_string(),
        "a: an opaque page is moved whole or not at all: block size: the source has 24, the \
         target 16"
    );
}

#[test]
fn r06_vllm_45340_blocks_under_context_parallelism() {
    // Four ranks share a sequence block by block: 130 tokens are 9 blocks of 16.
    let share = |rank| ContextShare { ways: 4, rank };
    let blocks = |kind| {
        let all = kept(kind, 16, 129, 130);
        [0, 1, 2, 3].map(|rank| all.of_share(16, share(rank)).blocks)
    };
    assert_eq!(blocks(Kind::Full), [3, 2, 2, 2]);
    // A window of 100: the query at 129 sees from token 30 on, blocks 1 to 8.
    assert_eq!(blocks(window(100)), [2, 2, 2, 2]);
    // An even share of a list that starts late: blocks 5, 6, 7 and 8.
    let late = kept(window(50), 16, 129, 130);
    assert_eq!((late.first_token, late.blocks), (80, 4));
    assert_eq!([0, 1, 2, 3].map(|rank| late.of_share(16, share(rank)).blocks), [1, 1, 1, 1]);
    assert_eq!(late.of_share(16, ContextShare::default()), late);
}

/// MLA on the ranks of an engine, `ways` of which share a sequence; blocks of 16 tokens, and
/// block i of the sequence has id i on P and 100 + i on D.
fn sharing(ways: u32, base: u32) -> Engine {
    Engine::ranks((0..ways).map(|rank| {
        let layers = vec![keys("mla", Kind::Mla, 0..1, 1, 16)];
        let ids: Vec<u32> = (rank..12).step_by(ways as usize).map(|id| base + id).collect();
        (single(region(16, 200), shared(16, ways, rank), layers), table(0, &ids))
    }))
}

#[test]
fn r07_vllm_38433_prefill_and_decode_context_parallelism_at_once() {
    // Prefill and decode ranks of two each make four shares: (pcp 0, dcp 0) has blocks 0, 4 and
    // 8, (pcp 1, dcp 0) blocks 2, 6 and 10.
    let (from, to) = (sharing(4, 0), sharing(2, 100));
    let pairs = |target: usize| {
        let plan = read(&from, &to, target, &[], prompt(192));
        [0, 1, 2, 3].map(|rank| blocks(&plan, rank))
    };
    assert_eq!(
        pairs(0),
        [vec![(0, 100), (4, 104), (8, 108)], vec![], vec![(2, 102), (6, 106), (10, 110)], vec![]]
    );
    assert_eq!(
        pairs(1),
        [vec![], vec![(1, 101), (5, 105), (9, 109)], vec![], vec![(3, 103), (7, 107), (11, 111)]]
    );
    assert_eq!(crate::kit::readers(&from, &to), [[0], [1], [0], [1]]);
}

#[test]
fn r07_vllm_38433_a_part_of_the_ranks_may_share_a_sequence() {
    // Four ranks in pairs that share (1 < dcp < tp), to four that do not: each reads both shares,
    // of the rank of the pair that is its own turn.
    let model = model(vec![Layer::attention("mla", Kind::Mla, 1, 4, 0)]);
    let engine = |context| {
        let shape = EngineShape { tensor: 4, context, ..EngineShape::single(16, PageOrder::Joint) };
        Engine::of(&model, shape, prompt(192))
    };
    let (from, to) = (engine(2), engine(1));
    for rank in 0..4 {
        let plan = read(&from, &to, rank, &[], prompt(192));
        let even: usize = [0, 2].map(|source| blocks(&plan, source).len()).iter().sum();
        let odd: usize = [1, 3].map(|source| blocks(&plan, source).len()).iter().sum();
        assert_eq!((even, odd), (6, 6), "rank {rank}");
    }
}

#[test]
fn r07_vllm_38433_shares_of_blocks_of_unequal_size_are_refused_by_name() {
    let (from, mut to) = (sharing(2, 0), sharing(1, 0));
    to.layouts[0].groups[0].block_size = 32;
    to.layouts[0].regions[0].block_stride = 32;
    let refused = try_read(&from, &to, 0, &[], prompt(192)).unwrap_err();
    assert_eq!(
        refused.to_string(),
        "mla: context parallelism of unequal interleave: the source has blocks of 16 tokens, the \
         target of 32"
    );
}
