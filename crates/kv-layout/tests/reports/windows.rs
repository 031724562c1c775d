//! Windows, chunks, prefix hits, states and the ends of prompts.

use kv_layout::{BlockTable, CacheLayout, Grouping, Kind, Role, Span, kept};

use crate::kit::{
    Engine, MAMBA2, blocks, blocks_in, chunks, group, keys, prompt, published, put, read, readers,
    region, runs, single, state, table, try_read, window,
};

/// One layer of 1 byte a token.
fn layout(kind: Kind, block_size: u32) -> CacheLayout {
    let layer = keys("a", kind, 0..1, 1, block_size);
    single(region(u64::from(block_size), 10_000), group(block_size), vec![layer])
}

fn engine(kind: Kind, block_size: u32, table: BlockTable) -> Engine {
    Engine::one(layout(kind, block_size), &[table])
}

/// Blocks of the sequence that move when P has all of them and D all that it may want.
fn moved(kind: Kind, block_size: u32, tokens: u64) -> Vec<u32> {
    let ids: Vec<u32> = (0..tokens.div_ceil(u64::from(block_size)) as u32).collect();
    let engine = engine(kind, block_size, table(0, &ids));
    let pairs = blocks(&read(&engine, &engine, 0, &[], prompt(tokens)), 0);
    pairs.into_iter().map(|(from, _)| from).collect()
}

fn range(first: u32, last: u32) -> Vec<u32> {
    (first..=last).collect()
}

const P: [u32; 6] = [10, 11, 12, 13, 14, 15];

#[test]
fn r16_vllm_48758_a_prefix_hit_leaves_the_tail() {
    let from = engine(Kind::Full, 16, table(0, &P));
    let pairs = |first, ids: &[u32], hit| {
        let to = engine(Kind::Full, 16, table(first, ids));
        blocks(&read(&from, &to, 0, &[hit], prompt(96)), 0)
    };
    assert_eq!(pairs(64, &[4, 5], 64), [(14, 4), (15, 5)]);
    let all = [(10, 0), (11, 1), (12, 2), (13, 3), (14, 4), (15, 5)];
    assert_eq!(pairs(0, &[0, 1, 2, 3, 4, 5], 0), all);
    // D's list may hold the blocks that are there already.
    assert_eq!(pairs(0, &[0, 1, 2, 3, 4, 5], 64), all[4..]);
    // A full hit leaves nothing to move, with or without blocks, and P still has a reader whose
    // word it waits for.
    assert_eq!(pairs(96, &[], 96), []);
    assert_eq!(pairs(0, &[0, 1, 2, 3, 4, 5], 95), []);
    let to = engine(Kind::Full, 16, table(96, &[]));
    assert_eq!(readers(&from, &to), [[0]]);
}

#[test]
fn r17_vllm_41693_null_blocks_in_front_of_states_and_a_prefix_hit_behind() {
    let ssm = |name, of| put(state(name, MAMBA2, &[(Role::Temporal, 0..1, 16)]), of, 0);
    let layers = vec![
        ssm("m0", 0),
        ssm("m1", 1),
        ssm("m2", 2),
        put(keys("a", Kind::Full, 0..1, 1, 16), 3, 1),
    ];
    let layout =
        CacheLayout { regions: vec![region(16, 100); 2], groups: vec![group(16); 4], layers };
    let last = |ids: &[u32]| BlockTable::state(63, ids, 0).unwrap();
    let remote =
        [last(&[0, 0, 40]), last(&[0, 0, 41]), last(&[0, 0, 42]), table(0, &[55, 56, 57, 58])];
    let local = [last(&[21]), last(&[22]), last(&[23]), table(32, &[30, 31])];
    let (from, to) = (Engine::one(layout.clone(), &remote), Engine::one(layout, &local));
    let plan = read(&from, &to, 0, &[0, 0, 0, 32], prompt(64));
    assert_eq!(blocks(&plan, 0), [(40, 21), (41, 22), (42, 23), (57, 30), (58, 31)]);
    for run in runs(&plan, &from, &to.layouts[0]) {
        assert!(run.from.1 >= 16 && run.to.1 >= 16, "null block: {run:?}");
    }
}

/// The toy recurrence of the report: s' = 2 s + x.
fn run(state: u64, tokens: &[u64]) -> u64 {
    tokens.iter().fold(state, |state, token| 2 * state + token)
}

#[test]
fn r18_vllm_37310_a_state_has_not_seen_the_token_that_is_computed_again() {
    let tokens: Vec<u64> = (1..=10).collect();
    // Kinds of a model; tokens that P computes of a prompt of 10.
    let cases: [(&[Kind], u64); 4] = [
        (&[Kind::Full], 10),
        (&[Kind::Full, window(4)], 10),
        (&[Kind::Full, MAMBA2], 9),
        (&[window(4), MAMBA2], 9),
    ];
    for (kinds, computed) in cases {
        let early = kinds.iter().any(|kind| kind.must_stop_early(4, 10));
        assert_eq!(10 - u64::from(early), computed, "{kinds:?}");
    }
    // D counts 9 tokens as received: a state of 9 is planned, one of 10 refused.
    let of = |seen| {
        let layer = state("a", MAMBA2, &[(Role::Temporal, 0..1, 8)]);
        Engine::one(single(region(8, 10), group(4), vec![layer]), &[table(seen, &[1])])
    };
    assert_eq!(blocks(&read(&of(9), &of(9), 0, &[], Span { valid: 9, resume_at: 9 }), 0), [(1, 1)]);
    let refused = try_read(&of(10), &of(9), 0, &[], prompt(10)).unwrap_err();
    assert_eq!(
        refused.to_string(),
        "group 0: the source's state has seen 10 tokens, the target resumes at 9"
    );
    let right = run(0, &tokens);
    assert_eq!(run(run(0, &tokens[..9]), &tokens[9..]), right);
    assert_ne!(run(run(0, &tokens), &tokens[9..]), right);
}

#[test]
fn r20_lmcache_5249_a_state_is_only_of_its_own_position() {
    let layers = vec![
        keys("a", window(64), 0..1, 1, 16),
        put(state("m", MAMBA2, &[(Role::Temporal, 0..1, 16)]), 1, 0),
    ];
    let mut layout = single(region(16, 100), group(16), layers);
    layout.groups.push(group(16));
    let ids: Vec<u32> = (1..=12).collect();
    let engine = |seen| Engine::one(layout.clone(), &[table(0, &ids), table(seen, &[50])]);
    let at = |resume_at| Span { valid: 192, resume_at };
    assert_eq!(blocks(&read(&engine(192), &engine(192), 0, &[], at(192)), 0).len(), 5);
    let refused = |from, to| try_read(&engine(from), &engine(to), 0, &[], at(96)).unwrap_err();
    let message =
        |side| format!("group 1: the {side}'s state has seen 192 tokens, the target resumes at 96");
    assert_eq!(refused(192, 96).to_string(), message("source"));
    assert_eq!(refused(96, 192).to_string(), message("target"));
    // A full hit of the state: it is not applied a second time.
    let again = read(&engine(192), &engine(192), 0, &[0, 192], at(192));
    assert!(blocks(&again, 0).iter().all(|&(from, _)| from != 50));
}

#[test]
fn r21_vllm_35758_blocks_of_a_window() {
    let window = window(1024);
    // Prompt; first and last block that move. The report counts the last prompt token among
    // the keys: its block is kept, and moves only if an earlier key lies in it.
    let cases = [
        (4032, 47, 62, 47, 16),
        (4031, 46, 62, 46, 17),
        (4000, 46, 62, 46, 17),
        (1025, 0, 15, 0, 17),
        (1024, 0, 15, 0, 16),
        (1000, 0, 15, 0, 16),
        (65, 0, 0, 0, 2),
    ];
    for (tokens, first, last, kept_first, kept_blocks) in cases {
        assert_eq!(moved(window, 64, tokens), range(first, last), "{tokens}");
        let kept = kept(window, 64, tokens - 1, tokens);
        assert_eq!((kept.first_token / 64, kept.blocks), (kept_first, kept_blocks), "{tokens}");
    }
}

#[test]
fn r21_vllm_35758_gemma_3_4b_moves_808_pages() {
    let model = published("gemma-3-4b-it");
    let grouping = Grouping::new(&model, 64).unwrap();
    let full = kv_layout::baseline::all_full(&model, &grouping, 4000);
    let flat = kv_layout::baseline::flat_hybrid(&model, &grouping, 4000);
    assert_eq!((full.ranges_apart, flat.ranges_apart), (4284, 1650));
    let engine = Engine::of(&model, crate::kit::shape(1, 64), prompt(4000));
    let plan = read(&engine, &engine, 0, &[], prompt(4000));
    let pages: usize = plan.copies().map(|copy| copy.source().ids().len()).sum();
    assert_eq!(pages, 5 * 63 + 29 * 17);
}

#[test]
fn r23_vllm_18170_chunks_begin_at_their_own_boundary() {
    let chunk = chunks(8192);
    assert_eq!(moved(chunk, 16, 20_000), range(1024, 1249));
    assert_eq!(moved(chunk, 16, 16_384), range(512, 1023));
    // One token on, the last token's chunk has no earlier token.
    assert!(moved(chunk, 16, 16_385).is_empty());
    assert_eq!(moved(chunk, 16, 100), range(0, 6));
    // A window of the same size reaches further back.
    assert_eq!(moved(window(8192), 16, 20_000), range(738, 1249));
}

#[test]
fn r24_vllm_42273_stale_ids_behind_a_window_are_neither_read_nor_written() {
    let from = engine(window(8), 4, table(0, &[5, 6, 9, 10]));
    let to = engine(window(8), 4, table(0, &[5, 6, 20, 21]));
    let plan = read(&from, &to, 0, &[], prompt(16));
    assert_eq!(blocks(&plan, 0), [(9, 20), (10, 21)]);
    let zeroed: Vec<u32> = plan.zero.iter().flat_map(|blocks| blocks.ids().to_vec()).collect();
    assert!(!zeroed.contains(&5) && !zeroed.contains(&6));
    // Neither are they looked at: ids of no block do no harm there.
    let from = engine(window(8), 4, table(0, &[u32::MAX, u32::MAX, 9, 10]));
    assert_eq!(blocks(&read(&from, &to, 0, &[], prompt(16)), 0), [(9, 20), (10, 21)]);
}

#[test]
fn r25_vllm_ascend_8908_a_lookahead_block_of_the_prefill_is_left_out() {
    // Prompt; P's list, D's, what moves. Ids from 50 on are lookahead blocks.
    type Case = (u64, &'static [u32], &'static [u32], &'static [(u32, u32)]);
    let cases: [Case; 3] = [
        (127, &[1, 2, 50], &[7, 8], &[(1, 7), (2, 8)]),
        (128, &[1, 2, 50], &[7, 8], &[(1, 7), (2, 8)]),
        // Token 128 is computed again: nothing of block 2 is needed.
        (129, &[1, 2, 3, 50], &[7, 8, 9], &[(1, 7), (2, 8)]),
    ];
    for (tokens, p, d, right) in cases {
        let (from, to) = (engine(Kind::Full, 64, table(0, p)), engine(Kind::Full, 64, table(0, d)));
        assert_eq!(blocks(&read(&from, &to, 0, &[], prompt(tokens)), 0), right, "{tokens}");
    }
}

#[test]
fn r26_vllm_30358_a_list_that_is_too_short_is_refused() {
    // 100 tokens in steps of 32: two blocks of 16 after the first step, seven after the last.
    let steps = [32, 64, 96, 100].map(|done| kept(Kind::Full, 16, done, done).blocks);
    assert_eq!(steps, [2, 4, 6, 7]);
    let to = engine(Kind::Full, 16, table(0, &[1, 2, 3, 4, 5, 6, 7]));
    let first = engine(Kind::Full, 16, table(0, &[30, 31]));
    let refused = try_read(&first, &to, 0, &[], prompt(100)).unwrap_err();
    assert_eq!(
        refused.to_string(),
        "group 0: tokens 32..48 are needed, the source's table holds 0..32"
    );
    // All seven, in order, also where the request was preempted and has other blocks now.
    for ids in [[30, 31, 32, 33, 34, 35, 36], [77, 3, 99, 4, 50, 51, 2]] {
        let from = engine(Kind::Full, 16, table(0, &ids));
        let mut right: Vec<(u32, u32)> = ids.into_iter().zip(1..).collect();
        right.sort_unstable();
        assert_eq!(blocks(&read(&from, &to, 0, &[], prompt(100)), 0), right);
    }
}

#[test]
fn r27_vllm_18429_prompts_shorter_than_a_block_and_partial_last_blocks() {
    for (tokens, last) in [(5, 0), (16, 0), (17, 0), (18, 1), (40, 2)] {
        assert_eq!(moved(Kind::Full, 16, tokens), range(0, last), "{tokens}");
    }
    // Where nothing is needed there is no copy, not an empty one.
    let one = engine(Kind::Full, 16, table(0, &[1]));
    let plan = read(&one, &one, 0, &[], prompt(1));
    assert_eq!(plan.copies().count(), 0);
    let none = engine(Kind::Full, 16, table(0, &[]));
    assert_eq!(read(&one, &none, 0, &[], prompt(1)).copies().count(), 0);
}

#[test]
fn r28_trtllm_13115_each_group_has_its_own_hit() {
    let layers = vec![
        keys("full", Kind::Full, 0..1, 1, 16),
        put(keys("window", window(64), 0..1, 1, 16), 1, 1),
    ];
    let mut layout = single(region(16, 100), group(16), layers);
    layout.regions.push(region(16, 100));
    layout.groups.push(group(16));
    let ids = range(0, 12);
    let engine = Engine::one(layout, &[table(0, &ids), table(0, &ids)]);
    let plan = read(&engine, &engine, 0, &[160, 0], prompt(200));
    let of =
        |region| blocks_in(&plan, 0, region).into_iter().map(|(from, _)| from).collect::<Vec<_>>();
    assert_eq!(of(0), range(10, 12));
    assert_eq!(of(1), range(8, 12));
    assert_eq!(plan.bytes(), (3 + 5) * 16);
}
