//! Which blocks of a list are exchanged: scratch blocks, windows, trims.

use kv_layout::{BlockTable, Grouping, Kind, Model, Role, Span, Tile, kept};

use crate::kit::{
    Engine, MAMBA2, blocks, blocks_in, chunks, group, keys, prompt, put, read, region, runs, shape,
    single, state, table, try_read, units, window,
};

#[test]
fn g05_scratch_blocks_behind_the_state_are_dropped() {
    let cases: [(&[u32], usize, Option<u32>); 7] = [
        (&[0, 0, 7, 8, 9], 2, Some(7)),
        (&[0, 6, 7, 8, 9], 2, Some(7)),
        (&[7, 8, 9], 2, Some(7)),
        (&[5], 2, Some(5)),
        (&[], 2, None),
        // A list that is not to be clipped has no scratch blocks: its last entry is the state.
        (&[0, 0, 7], 0, Some(7)),
        (&[], 0, None),
    ];
    for (ids, scratch, state) in cases {
        let clipped = BlockTable::state(99, ids, scratch);
        assert_eq!(clipped, state.map(|id| table(99, &[id])), "{ids:?}");
    }
}

/// What moves between two engines of one windowed layer that both have `ids` from token 0 on.
fn moved(kind: Kind, block_size: u32, ids: &[u32], span: Span) -> Vec<u32> {
    let layer = keys("a", kind, 0..1, 1, block_size);
    let layout = single(region(u64::from(block_size), 10_000), group(block_size), vec![layer]);
    let engine = Engine::one(layout, &[table(0, ids)]);
    blocks(&read(&engine, &engine, 0, &[], span), 0).into_iter().map(|(from, _)| from).collect()
}

#[test]
fn g05_a_window_of_two_blocks_leaves_out_the_first() {
    assert_eq!(moved(window(16), 16, &[1, 2, 3], prompt(47)), [2, 3]);
    // vLLM keeps two whatever the length; here the query at 47 sees tokens 32..=47.
    assert_eq!(moved(window(16), 16, &[1, 2, 3], prompt(48)), [3]);
}

#[test]
fn g06_a_window_of_2048_never_needs_more_than_129_blocks_of_16() {
    let of = |resume_at| kept(window(2048), 16, resume_at, resume_at + 1).blocks;
    for resume_at in 4000..4100 {
        // The window starts with a block at resume_at = 2047 + 16 n.
        let blocks = if resume_at % 16 == 15 { 128 } else { 129 };
        assert_eq!(of(resume_at), blocks, "{resume_at}");
    }
    assert_eq!(of(2046), 128);
    assert_eq!(of(99), 7);
}

#[test]
fn g06_gemma_3_1b_sends_33_blocks_of_each_window_and_more_of_the_full_group() {
    let json = r#"{"model_type": "gemma3_text", "num_hidden_layers": 26, "head_dim": 256,
        "num_attention_heads": 4, "num_key_value_heads": 1, "sliding_window": 512,
        "torch_dtype": "bfloat16"}"#;
    let model = Model::from_config(json, "gemma-3-1b").unwrap();
    let grouping = Grouping::new(&model, 16).unwrap();
    // Prompt, blocks of each windowed group, of the full one.
    for (tokens, windowed, full) in
        [(1401, 33, 88), (1402, 33, 88), (1407, 33, 88), (1408, 32, 88), (1409, 33, 89)]
    {
        let blocks = |group: &kv_layout::Group| {
            kept(group.kind, group.block_size, tokens - 1, tokens).blocks
        };
        let blocks: Vec<u64> = grouping.groups.iter().map(blocks).collect();
        assert_eq!(blocks[..6], [windowed; 6], "{tokens}");
        assert_eq!(blocks[6..], [full], "{tokens}");
    }
}

#[test]
fn g07_the_state_is_the_last_of_a_list() {
    let from = BlockTable::state(160, &[40, 41, 42, 43], 0).unwrap();
    let layer = state("a", MAMBA2, &[(Role::Temporal, 0..1, 64)]);
    let layout = single(region(64, 100), group(16), vec![layer]);
    let from = Engine::one(layout.clone(), &[from]);
    let to = Engine::one(layout, &[table(160, &[7])]);
    let span = Span { valid: 160, resume_at: 160 };
    assert_eq!(blocks(&read(&from, &to, 0, &[], span), 0), [(43, 7)]);
}

#[test]
fn g07_four_states_do_not_pair_with_two() {
    let layer = state("a", MAMBA2, &[(Role::Temporal, 0..1, 64)]);
    let layout = single(region(64, 100), group(16), vec![layer]);
    let from = Engine::one(layout.clone(), &[table(160, &[1, 2])]);
    let to = Engine::one(layout, &[table(160, &[1, 2, 3, 4])]);
    let refused = try_read(&from, &to, 0, &[], Span { valid: 160, resume_at: 160 }).unwrap_err();
    assert_eq!(refused.to_string(), "group 0: the target has 4 states, a request has one");
}

#[test]
fn g07_six_and_ten_kernel_blocks_a_block_pair_by_token() {
    // P: one block of 640 tokens; D: two of 384. Kernel blocks of 64 tokens, 64 bytes.
    let layout = |tokens: u32| {
        let mut layer = keys("a", Kind::Full, 0..1, 1, tokens);
        layer.parts[0].tile = Some(Tile { tokens: 64, stride: 64 });
        single(region(u64::from(tokens), 100), group(tokens), vec![layer])
    };
    let from = Engine::one(layout(640), &[table(0, &[3])]);
    let to = Engine::one(layout(384), &[table(0, &[5, 8])]);
    let plan = read(&from, &to, 0, &[], prompt(640));
    // P's block 3 is kernel blocks 30..40; D's blocks are 30..36 and 48..54.
    assert_eq!(
        units(&runs(&plan, &from, &to.layouts[0]), 64),
        [
            (30, 30),
            (31, 31),
            (32, 32),
            (33, 33),
            (34, 34),
            (35, 35),
            (36, 48),
            (37, 49),
            (38, 50),
            (39, 51),
        ]
    );
    // D's last two are not written: it zeroes them.
    let zeroed: u64 = plan.zero.iter().map(strided::Blocks::bytes).sum();
    assert_eq!(zeroed, 2 * 64);
}

/// gemma-3-4b in blocks of 64: six groups of windowed layers, one of full ones. P's lists are
/// those of vllm-project/vllm#35758: group g has ids 63 g + 1 ..= 63 g + 63.
#[test]
fn m24_gemma_3_4b_moves_the_lists_of_its_report() {
    let model = crate::kit::published("gemma-3-4b-it");
    let layouts = shape(1, 64).layouts(&model, 1000).unwrap();
    let ids = |group: u32| (63 * group + 1..=63 * group + 63).collect::<Vec<u32>>();
    let tables: Vec<BlockTable> = (0..7).map(|group| table(0, &ids(group))).collect();
    let engine = Engine::one(layouts[0].clone(), &tables);
    // Prompt; first and last id that moves of group 0, of group 5, of the full group.
    let cases = [
        (3969, [47, 62], [362, 377], [379, 440]),
        (3970, [47, 63], [362, 378], [379, 441]),
        (4000, [47, 63], [362, 378], [379, 441]),
        (4030, [47, 63], [362, 378], [379, 441]),
        // vLLM frees block 46 here, (N − W + 1) mod 64 = 0, and its list begins with a null
        // block. A query at 4030 still sees key 3007, the last of that block.
        (4031, [47, 63], [362, 378], [379, 441]),
        (4032, [48, 63], [363, 378], [379, 441]),
    ];
    for (tokens, first, sixth, full) in cases {
        let plan = read(&engine, &engine, 0, &[], prompt(tokens));
        let moved: Vec<u32> = blocks_in(&plan, 0, 0).iter().map(|&(from, _)| from).collect();
        for (of, [start, end]) in [(0, first), (5, sixth), (6, full)] {
            let of = ids(of);
            let of: Vec<u32> = moved.iter().copied().filter(|id| of.contains(id)).collect();
            assert_eq!(of, (start..=end).collect::<Vec<u32>>(), "{tokens}");
        }
    }
}

/// Where vLLM's P frees a block too early: it frees what the query after the prompt does not see,
/// D asks for the last token's again.
#[test]
fn m27_a_block_that_the_last_tokens_query_sees_is_not_freed() {
    // Kind, block, prompt; first block that vLLM keeps, first that is needed.
    let cases = [
        (window(64), 32, 95, 1, 0),
        (window(64), 32, 127, 2, 1),
        (window(64), 32, 128, 2, 2),
        (window(64), 32, 126, 1, 1),
        (window(1024), 64, 4031, 47, 46),
        (window(1024), 64, 4030, 46, 46),
        (window(8), 4, 8, 0, 0),
        (window(8), 1, 8, 1, 0),
        (chunks(64), 32, 128, 4, 2),
        (chunks(64), 32, 127, 2, 2),
        (chunks(8192), 16, 16_384, 1024, 512),
    ];
    for (kind, block_size, tokens, vllm, right) in cases {
        let case = format!("{kind}, blocks of {block_size}, {tokens} tokens");
        let size = u64::from(block_size);
        let after = kept(kind, block_size, tokens, tokens);
        let last = kept(kind, block_size, tokens - 1, tokens);
        assert_eq!((after.first_token / size, last.first_token / size), (vllm, right), "{case}");
        assert_eq!(kind.must_stop_early(block_size, tokens), vllm != right, "{case}");

        let layout = || {
            single(
                region(size, 2000),
                group(block_size),
                vec![keys("a", kind, 0..1, 1, block_size)],
            )
        };
        let engine = |kept: kv_layout::Kept| {
            let ids: Vec<u32> = (0..kept.blocks as u32).collect();
            Engine::one(layout(), &[table(kept.first_token, &ids)])
        };
        // The list that vLLM's P has left is refused where it lacks the block …
        let to = engine(last);
        let planned = try_read(&engine(after), &to, 0, &[], prompt(tokens));
        assert_eq!(planned.is_ok(), vllm == right, "{case}");
        // … and a P that stops one token early has what is needed.
        let early = engine(kept(kind, block_size, tokens - 1, tokens - 1));
        let span = Span { valid: tokens - 1, resume_at: tokens - 1 };
        try_read(&early, &to, 0, &[], span).expect(&case);
    }
}

#[test]
fn m27_a_state_makes_the_prefill_stop_early_and_full_attention_never() {
    for tokens in [2, 10, 128, 4031] {
        assert!(MAMBA2.must_stop_early(64, tokens));
        assert!(!Kind::Full.must_stop_early(64, tokens));
        assert!(!Kind::Mla.must_stop_early(64, tokens));
    }
    // A prompt of one token leaves nothing to hand over.
    assert!(!MAMBA2.must_stop_early(64, 1));
    assert!(!window(1).must_stop_early(1, 1));
    // A window of one sees no earlier key.
    assert!(!window(1).must_stop_early(1, 5));
}

#[test]
fn g05_groups_are_clipped_apart() {
    // One pool id means different tokens to different groups.
    let layers = vec![
        put(keys("full", Kind::Full, 0..1, 1, 16), 0, 0),
        put(keys("window", window(16), 0..1, 1, 16), 1, 0),
        put(state("ssm", MAMBA2, &[(Role::Temporal, 0..1, 16)]), 2, 0),
    ];
    let mut layout = single(region(16, 100), group(16), layers);
    layout.groups.extend([group(16), group(16)]);
    let window = BlockTable::from_positions(16, 0, &[0, 2, 3]).unwrap();
    let state = BlockTable::state(46, &[0, 0, 7, 8, 9], 2).unwrap();
    let engine = Engine::one(layout, &[table(0, &[10, 11, 12]), window, state]);
    let plan = read(&engine, &engine, 0, &[], Span { valid: 47, resume_at: 46 });
    let moved: Vec<u32> = blocks(&plan, 0).into_iter().map(|(from, _)| from).collect();
    assert_eq!(moved, [2, 3, 7, 10, 11, 12]);
}
