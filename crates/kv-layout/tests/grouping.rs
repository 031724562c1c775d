//! KV cache groups and shared regions against the rules and worked examples of vLLM.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::cast_possible_truncation)]

use kv_layout::{
    DType, EngineShape, GroupError, Grouping, Kind, Layer, LayerPart, Model, Recurrence, Role,
    ShapeError,
};

const SLIDING: Kind = Kind::SlidingWindow { window: 1024 };

fn layer(index: usize, kind: Kind, heads: u32, key_bytes: u32, value_bytes: u32) -> Layer {
    Layer::attention(format!("layers.{index}"), kind, heads, key_bytes, value_bytes)
}

fn model(layers: Vec<Layer>) -> Model {
    Model { model_type: "test".to_owned(), dtype: DType::Bf16, layers }
}

/// `kinds` of equal shape, 4 heads of 512 + 512 bytes.
fn alike(kinds: &[Kind]) -> Model {
    model(kinds.iter().enumerate().map(|(i, &kind)| layer(i, kind, 4, 512, 512)).collect())
}

fn sizes(grouping: &Grouping) -> Vec<usize> {
    grouping.groups.iter().map(|group| group.layers.len()).collect()
}

#[test]
fn gemma_3_4b_makes_six_sliding_groups_and_one_full_one() {
    let kinds: Vec<Kind> =
        (0..34).map(|i| if (i + 1) % 6 == 0 { Kind::Full } else { SLIDING }).collect();
    let grouping = Grouping::new(&alike(&kinds), 64).unwrap();
    assert_eq!(sizes(&grouping), [5, 5, 5, 5, 5, 4, 5]);
    assert_eq!(grouping.groups[6].kind, Kind::Full);
    assert_eq!(grouping.groups[6].layers, [5, 11, 17, 23, 29]);
    // 29 sliding layers dealt out to 6 groups in turn; the 7th sliding layer is layer 7.
    assert_eq!(grouping.groups[0].layers, [0, 7, 14, 21, 28]);
    assert_eq!(grouping.groups[5].layers, [6, 13, 20, 27]);
    assert_eq!(grouping.slot_bytes, [256 << 10; 5]);
}

#[test]
fn a_bucket_half_as_large_again_is_padded_up_to_below_the_ratio_only() {
    // 12 sliding and 13 full: 13 < 18, one group each, one padding slot.
    let kinds: Vec<Kind> = (0..25).map(|i| if i % 2 == 0 { Kind::Full } else { SLIDING }).collect();
    assert_eq!(sizes(&Grouping::new(&alike(&kinds), 64).unwrap()), [13, 12]);
    // 2 and 3: 3 is not below 1.5 × 2, so groups of 2.
    let kinds = [Kind::Full, SLIDING, Kind::Full, SLIDING, SLIDING];
    assert_eq!(sizes(&Grouping::new(&alike(&kinds), 64).unwrap()), [2, 2, 1]);
}

#[test]
fn layers_of_one_kind_make_one_group() {
    let grouping = Grouping::new(&alike(&[Kind::Full; 32]), 16).unwrap();
    assert_eq!(sizes(&grouping), [32]);
    assert_eq!(grouping.slot_bytes, [64 << 10; 32]);
}

#[test]
fn layers_of_one_kind_and_several_sizes_make_one_group_with_pages_of_their_own() {
    let layers = vec![layer(0, Kind::Full, 4, 512, 512), layer(1, Kind::Full, 2, 256, 256)];
    let grouping = Grouping::new(&model(layers), 16).unwrap();
    assert_eq!(sizes(&grouping), [2]);
    assert_eq!(grouping.slot_bytes, [16 * 4096, 16 * 1024]);
}

#[test]
fn a_smaller_page_takes_more_tokens_until_it_fits() {
    let layers = vec![layer(0, Kind::Full, 4, 512, 512), layer(1, SLIDING, 2, 512, 512)];
    let grouping = Grouping::new(&model(layers), 16).unwrap();
    assert_eq!(grouping.groups[0].block_size, 16);
    assert_eq!(grouping.groups[1].block_size, 32);
    assert_eq!(grouping.slot_bytes, [16 * 4096]);
}

#[test]
fn a_page_that_does_not_divide_is_padded_unless_it_is_mla() {
    let layers = vec![layer(0, Kind::Full, 3, 512, 512), layer(1, SLIDING, 2, 512, 512)];
    let grouping = Grouping::new(&model(layers), 16).unwrap();
    assert_eq!(grouping.groups[1].block_size, 16);
    assert_eq!(grouping.slot_bytes, [16 * 3072]);
    let layers = vec![layer(0, SLIDING, 2, 512, 512), layer(1, Kind::Mla, 1, 1152, 0)];
    let refused = Grouping::new(&model(layers), 16).unwrap_err();
    assert!(matches!(refused, GroupError::Pages { page: 18_432, largest: 32_768, .. }));
}

#[test]
fn what_cannot_be_grouped_is_refused_by_name() {
    let error =
        |model: &Model, block_size| Grouping::new(model, block_size).unwrap_err().to_string();
    assert_eq!(error(&alike(&[Kind::Full]), 0), "block size 0: a block holds at least one token");
    let huge = model(vec![layer(0, Kind::Full, u32::MAX, u32::MAX, u32::MAX)]);
    assert_eq!(error(&huge, u32::MAX), "block size 4294967295: its pages would not fit 64 bits");
}

const DELTA: Kind = Kind::Recurrent { recurrence: Recurrence::GatedDeltaNet };

/// Layers that keep a state of `state` bytes, and attention of `token` bytes a token.
fn hybrid(kinds: &[Kind], state: u32, token: u32) -> Model {
    let layer = |(i, &kind): (usize, &Kind)| match kind {
        DELTA => Layer {
            name: format!("layers.{i}"),
            kind,
            parts: vec![LayerPart { role: Role::Temporal, units: 1, bytes: state }],
        },
        _ => layer(i, kind, 1, token / 2, token / 2),
    };
    model(kinds.iter().enumerate().map(layer).collect())
}

#[test]
fn the_block_of_a_hybrid_model_is_as_large_as_its_state() {
    // vLLM's rule with kernel blocks of 16: Qwen3-Next on 1 and on 4 ranks, Jamba, Nemotron-H.
    let cases =
        [(1_097_728, 2048, 544), (274_432, 1024, 272), (311_296, 4096, 80), (2_158_592, 4096, 528)];
    for (state, token, block) in cases {
        let kinds = [DELTA, DELTA, DELTA, Kind::Full];
        let grouping = Grouping::new(&hybrid(&kinds, state, token), 16).unwrap();
        assert_eq!(sizes(&grouping), [1, 1, 1, 1]);
        assert!(grouping.groups.iter().all(|group| group.block_size == block), "{block}");
        assert_eq!(grouping.slot_bytes, [u64::from(block) * u64::from(token)]);
    }
}

#[test]
fn a_larger_block_size_than_a_state_needs_stays() {
    let grouping = Grouping::new(&hybrid(&[DELTA, Kind::Full], 100, 64), 32).unwrap();
    assert_eq!(grouping.groups[1].block_size, 32);
}

#[test]
fn slots_whose_sum_leaves_64_bits_are_refused() {
    let heads = 1 << 31;
    let huge = |count| model((0..count).map(|i| layer(i, Kind::Full, heads, 1, 0)).collect());
    // Pages of 2^62 bytes: three can be added up, four cannot, whether alike or in groups.
    let block_size = 1 << 31;
    assert_eq!(Grouping::new(&huge(3), block_size).unwrap().block_bytes(), 3 << 62);
    let refused = Err(GroupError::TooLarge { block_size });
    assert_eq!(Grouping::new(&huge(4), block_size), refused);
    let mut mixed = huge(8);
    mixed.layers.iter_mut().skip(4).for_each(|layer| layer.kind = SLIDING);
    assert_eq!(Grouping::new(&mixed, block_size), refused);
}

#[test]
fn a_shape_has_4096_ranks_at_most() {
    let model = alike(&[Kind::Full; 2]);
    let ranks = |tensor, pipeline| {
        EngineShape { tensor, pipeline, ..EngineShape::default() }
            .ranks(&model)
            .map(|all| all.len())
    };
    assert_eq!(ranks(4096, 1), Ok(4096));
    assert_eq!(ranks(2048, 2), Ok(4096));
    for (tensor, pipeline) in [(4100, 1), (2052, 2), (4_000_000_000, 1), (u32::MAX, u32::MAX)] {
        assert_eq!(ranks(tensor, pipeline), Err(ShapeError::Ranks { tensor, pipeline }));
    }
}
