//! Ranks that share heads, states and layers in different ways.

use std::collections::BTreeSet;

use kv_layout::{EngineShape, Kind, Layer, Role, Span};

use crate::kit::{
    Engine, MAMBA2, Run, chunks, model, prompt, read, readers, recurrent, runs, shape, window,
};

fn attention(kind: Kind, heads: u32) -> Layer {
    Layer::attention("attn", kind, heads, 8, 8)
}

fn engine(layers: &[Layer], tensor: u32, span: Span) -> Engine {
    Engine::of(&model(layers.to_vec()), shape(tensor, 16), span)
}

#[test]
fn r30_sglang_23746_more_ranks_than_heads() {
    // Heads; the head that each of D's eight ranks wants.
    for (heads, wanted) in [(4, [0, 0, 1, 1, 2, 2, 3, 3]), (2, [0, 0, 0, 0, 1, 1, 1, 1])] {
        let layers = [attention(Kind::Full, heads)];
        let (from, to) = (engine(&layers, 1, prompt(33)), engine(&layers, 8, prompt(33)));
        for (rank, head) in wanted.into_iter().enumerate() {
            // A page is heads × 16 tokens × 16 bytes.
            for run in runs(&read(&from, &to, rank, &[], prompt(33)), &from, &to.layouts[rank]) {
                assert_eq!((run.from.1 % (u64::from(heads) * 256), run.len), (head * 256, 256));
            }
        }
    }
    let layers = [attention(Kind::Full, 2)];
    let (from, to) = (engine(&layers, 2, prompt(33)), engine(&layers, 8, prompt(33)));
    assert_eq!(readers(&from, &to), [[0, 1, 2, 3], [4, 5, 6, 7]]);
}

#[test]
fn r32_vllm_37638_each_part_of_a_convolution_is_cut_by_itself() {
    // Columns of a byte: x is 0..8, B 8..10, C 10..12.
    let parts = [(Role::ConvInput, 8, 1), (Role::ConvB, 2, 1), (Role::ConvC, 2, 1)];
    let layers = [recurrent("ssm", MAMBA2, &parts)];
    let span = Span { valid: 64, resume_at: 64 };
    let (from, to) = (engine(&layers, 1, span), engine(&layers, 2, span));
    let columns = |rank: usize| {
        let moved = runs(&read(&from, &to, rank, &[], span), &from, &to.layouts[rank]);
        let block = moved[0].to.1 / 6 * 6;
        assert_eq!(moved.iter().map(|run| run.len).sum::<u64>(), 6);
        assert!(moved.iter().all(|run| run.to.1 < block + 6));
        let column = |run: &Run| (run.from.1 % 12..).take(run.len as usize).collect::<Vec<_>>();
        moved.iter().flat_map(column).collect::<Vec<_>>()
    };
    assert_eq!(columns(0), [0, 1, 2, 3, 8, 10]);
    assert_eq!(columns(1), [4, 5, 6, 7, 9, 11]);
}

/// How many of P's ranks D's rank 0 reads each token's attention from, and how many its states.
fn source_ranks(kind: Kind, heads: u32, from: u32, to: u32) -> (usize, usize) {
    let span = Span { valid: 64, resume_at: 64 };
    let layers = [attention(kind, heads), recurrent("ssm", MAMBA2, &[(Role::Temporal, 8, 16)])];
    let (from, to) = (engine(&layers, from, span), engine(&layers, to, span));
    let of = |recurrent: bool| {
        let mut to = Engine { layouts: to.layouts.clone(), tables: to.tables.clone() };
        for layout in &mut to.layouts {
            layout.layers.retain(|layer| layer.kind.is_recurrent() == recurrent);
        }
        let part = &to.layouts[0].layers[0].parts[0];
        let (page, row) = (to.layouts[0].regions[0].block_stride, part.token_stride);
        let mut ranks = std::collections::BTreeMap::<u64, BTreeSet<usize>>::new();
        for run in runs(&read(&from, &to, 0, &[], span), &from, &to.layouts[0]) {
            for byte in run.to.1..run.to.1 + run.len {
                // Block and token within it; a state is one.
                let token = (byte % page).checked_rem(part.unit_stride * u64::from(!recurrent));
                let at = byte / page * 10_000 + token.map_or(0, |byte| byte / row);
                ranks.entry(at).or_default().insert(run.rank);
            }
        }
        let counts: BTreeSet<usize> = ranks.values().map(BTreeSet::len).collect();
        assert_eq!(counts.len(), 1, "{counts:?}");
        counts.into_iter().next().unwrap()
    };
    (of(false), of(true))
}

#[test]
fn r34_vllm_37635_attention_and_states_have_their_own_source_ranks() {
    // A head that several ranks keep is read from one of them for each block, all in turn.
    assert_eq!(source_ranks(Kind::Full, 2, 4, 1), (2, 4));
    assert_eq!(source_ranks(Kind::Full, 2, 4, 2), (1, 2));
    assert_eq!(source_ranks(Kind::Full, 2, 2, 1), (2, 2));
    assert_eq!(source_ranks(Kind::Mla, 1, 4, 1), (1, 4));
}

#[test]
fn r35_vllm_36958_every_replica_of_a_latent_has_a_reader_that_lets_it_free() {
    let layers = [Layer::attention("mla", Kind::Mla, 1, 8, 0)];
    let (from, to) = (engine(&layers, 4, prompt(160)), engine(&layers, 2, prompt(160)));
    // Exactly one word each.
    assert_eq!(readers(&from, &to), [[0], [1], [0], [1]]);
    for rank in [0, 1] {
        let plan = read(&from, &to, rank, &[], prompt(160));
        // All ten blocks of 128 bytes, once, from the two ranks that wait for this one.
        assert_eq!(plan.bytes(), 10 * 128);
        let sources: BTreeSet<usize> =
            runs(&plan, &from, &to.layouts[rank]).iter().map(|run| run.rank).collect();
        assert_eq!(sources, [rank, rank + 2].into());
    }
}

#[test]
fn r36_sglang_19043_each_rank_knows_which_readers_to_wait_for() {
    let layers = [attention(Kind::Full, 4)];
    let engine = |tensor| engine(&layers, tensor, prompt(64));
    assert_eq!(readers(&engine(4), &engine(1)), [[0], [0], [0], [0]]);
    assert_eq!(readers(&engine(2), &engine(4)), [[0, 1], [2, 3]]);
}

#[test]
fn r37_vllm_22430_stages_of_a_pipeline_are_found_by_layer_name() {
    let layers = (0..8).map(|i| Layer::attention(format!("layers.{i}"), Kind::Full, 1, 8, 8));
    let model = model(layers.collect());
    let staged = EngineShape { pipeline: 2, ..shape(1, 16) };
    let from = Engine::of(&model, staged, prompt(33));
    let to = Engine::of(&model, shape(1, 16), prompt(33));
    let names = |engine: &Engine, rank: usize| {
        engine.layouts[rank].layers.iter().map(|layer| layer.name.clone()).collect::<Vec<_>>()
    };
    assert_eq!(names(&from, 0), ["layers.0", "layers.1", "layers.2", "layers.3"]);
    assert_eq!(names(&from, 1), ["layers.4", "layers.5", "layers.6", "layers.7"]);
    // D keeps layer i in region i: the first four come from stage 0, the others from stage 1.
    let of: BTreeSet<(usize, u32)> =
        runs(&read(&from, &to, 0, &[], prompt(33)), &from, &to.layouts[0])
            .iter()
            .map(|run| (run.rank, run.to.0))
            .collect();
    let right = (0..8).map(|layer| (usize::from(layer >= 4), layer)).collect();
    assert_eq!(of, right);
    // And back: each stage reads its own layers.
    for (rank, layers) in [(0, 0..4), (1, 4..8)] {
        let plan = read(&to, &from, rank, &[], prompt(33));
        let of: BTreeSet<u32> =
            runs(&plan, &to, &from.layouts[rank]).iter().map(|run| run.from.0).collect();
        assert_eq!(of, layers.collect());
    }
}

/// Bytes of the pages that hold a token which the query at `span.resume_at` sees, or of the
/// state, on one rank.
fn wanted(kind: Kind, heads: u64, tensor: u64, span: Span) -> u64 {
    if kind.is_recurrent() {
        return 64 * 16 / tensor;
    }
    let seen = kind.visible_before(span.resume_at);
    let pages = seen.end.div_ceil(16) - seen.start / 16;
    pages * 16 * 16 * (heads / tensor).max(1)
}

#[test]
fn r38_vllm_50765_every_pair_of_sizes_is_planned_to_the_byte() {
    let span = Span { valid: 96, resume_at: 96 };
    let kinds = [Kind::Full, window(40), chunks(64), Kind::Mla, MAMBA2];
    for kind in kinds {
        for heads in if kind == Kind::Mla { vec![1] } else { vec![8, 2] } {
            let layers = [match kind {
                MAMBA2 => recurrent("a", kind, &[(Role::Temporal, 64, 16)]),
                Kind::Mla => Layer::attention("a", kind, 1, 16, 0),
                _ => attention(kind, heads),
            }];
            for (p, d) in [1, 2, 4, 8].into_iter().flat_map(|p| [1, 2, 4, 8].map(|d| (p, d))) {
                let (from, to) = (engine(&layers, p, span), engine(&layers, d, span));
                for rank in 0..d as usize {
                    let plan = read(&from, &to, rank, &[], span);
                    let runs = runs(&plan, &from, &to.layouts[rank]);
                    let bytes: u64 = runs.iter().map(|run| run.len).sum();
                    let right = wanted(kind, u64::from(heads), u64::from(d), span);
                    assert_eq!(bytes, right, "{kind}, {heads} heads, {p} to {d}");
                }
            }
        }
    }
}
