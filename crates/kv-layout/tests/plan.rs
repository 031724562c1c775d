//! The planner on small engines: what is paired with what, and what is refused.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::cast_possible_truncation)]

use kv_layout::{
    BlockTable, CacheLayout, DType, Grouping, Holding, Kind, Layer, Model, PageOrder, PlanError,
    Span, Target, plan,
};
use strided::{Dim, Pattern, Region};

const BLOCK: u32 = 4;

fn model(kinds: &[Kind]) -> Model {
    let layer = |(i, &kind)| Layer::attention(format!("layers.{i}"), kind, 4, 16, 16);
    let layers = kinds.iter().enumerate().map(layer).collect();
    Model { model_type: "test".to_owned(), dtype: DType::Bf16, layers }
}

fn layout(kinds: &[Kind], order: PageOrder) -> CacheLayout {
    let model = model(kinds);
    let grouping = Grouping::new(&model, BLOCK).unwrap();
    CacheLayout::new(&model, &grouping, order, 100)
}

fn table(first_token: u64, ids: &[u32]) -> BlockTable {
    BlockTable { first_token, ids: ids.into() }
}

const SPAN: Span = Span { valid: 11, resume_at: 10 };

fn try_plan(
    source: &CacheLayout,
    from: &[BlockTable],
    target: &CacheLayout,
    to: &[BlockTable],
    span: Span,
) -> Result<kv_layout::Plan, PlanError> {
    let source = Holding { layout: source, tables: from };
    plan(&[source], Target { ranks: &[target], rank: 0, tables: to, hits: &[] }, span)
}

#[test]
fn blocks_pair_by_token_position_whatever_the_lists_start_with() {
    let kinds = [Kind::SlidingWindow { window: 4 }];
    let layout = layout(&kinds, PageOrder::Joint);
    // Resume at 10: keys 7, 8, 9 are visible, in blocks 1 and 2 of the sequence.
    let from = [table(0, &[40, 41, 42])];
    let to = [table(4, &[7, 8])];
    let plan = try_plan(&layout, &from, &layout, &to, SPAN).unwrap();
    assert_eq!(plan.reads[0].len(), 1);
    assert_eq!(plan.reads[0][0].source().ids()[..], [41, 42]);
    assert_eq!(plan.reads[0][0].target().ids()[..], [7, 8]);
    assert_eq!(plan.bytes(), 2 * 4 * 4 * 32);
}

#[test]
fn layers_pair_by_name_whatever_their_order() {
    let kinds = [Kind::Full, Kind::Full];
    let source = layout(&kinds, PageOrder::Joint);
    let mut target = source.clone();
    target.layers.reverse();
    let tables = [table(0, &[1, 2, 3])];
    let plan = try_plan(&source, &tables, &target, &tables, SPAN).unwrap();
    for copy in &plan.reads[0] {
        assert_eq!(copy.source().region(), copy.target().region());
    }
    assert_eq!(plan.reads[0][0].target().region().0, 1);
}

#[test]
fn lists_of_ids_are_shared_by_the_layers_of_a_group() {
    let layout = layout(&[Kind::Full; 8], PageOrder::Apart);
    let tables = [table(0, &[1, 2, 3])];
    let plan = try_plan(&layout, &tables, &layout, &tables, SPAN).unwrap();
    assert_eq!(plan.reads[0].len(), 16);
    let first = plan.reads[0][0].source().ids();
    assert!(plan.copies().all(|copy| std::sync::Arc::ptr_eq(copy.source().ids(), first)));
}

#[test]
fn joint_and_apart_engines_exchange_keys_with_keys() {
    let kinds = [Kind::Full];
    let joint = layout(&kinds, PageOrder::Joint);
    let apart = layout(&kinds, PageOrder::Apart);
    let tables = [table(0, &[1, 2, 3])];
    let plan = try_plan(&joint, &tables, &apart, &tables, SPAN).unwrap();
    // Of 16 rows of 32 bytes, the keys are the first halves; apart, they lie without gaps.
    let keys = Pattern::new(0, &[Dim { count: 16, stride: 32 }], 16).unwrap();
    let values = Pattern::new(16, &[Dim { count: 16, stride: 32 }], 16).unwrap();
    let packed = Pattern::contiguous(0, 256).unwrap();
    let sides =
        |i: usize| (*plan.reads[0][i].source().pattern(), *plan.reads[0][i].target().pattern());
    assert_eq!(sides(0), (keys, packed));
    assert_eq!(sides(1), (values, packed));
    assert_eq!(plan.reads[0][1].target().region().0, 1);
}

#[test]
fn a_slice_of_heads_is_a_dimension_when_tokens_lie_outside_heads() {
    let source = layout(&[Kind::Full], PageOrder::Joint);
    let tokens_outside = layout(&[Kind::Full], PageOrder::TokensOutside);
    let mut half = tokens_outside.clone();
    for part in &mut half.layers[0].parts {
        part.units = 2..4;
        part.token_stride = 64;
    }
    half.regions[0] = Region { block_stride: 256, block_count: 100 };
    let tables = [table(0, &[1, 2, 3])];

    let plan = try_plan(&tokens_outside, &tables, &half, &tables, SPAN).unwrap();
    assert_eq!(plan.reads[0].len(), 1);
    let heads_2_and_3 = Pattern::new(64, &[Dim { count: 4, stride: 128 }], 64).unwrap();
    assert_eq!(*plan.reads[0][0].source().pattern(), heads_2_and_3);
    assert_eq!(*plan.reads[0][0].target().pattern(), Pattern::contiguous(0, 256).unwrap());

    // Heads outside tokens on the source: the same bytes, walked head by head on both sides.
    let plan = try_plan(&source, &tables, &half, &tables, SPAN).unwrap();
    assert_eq!(*plan.reads[0][0].source().pattern(), Pattern::contiguous(256, 256).unwrap());
    let by_head = [Dim { count: 2, stride: 32 }, Dim { count: 4, stride: 64 }];
    assert_eq!(*plan.reads[0][0].target().pattern(), Pattern::new(0, &by_head, 32).unwrap());
}

#[test]
fn nothing_is_visible_at_the_start() {
    let layout = layout(&[Kind::Full, Kind::Full], PageOrder::Joint);
    let tables = [table(0, &[1])];
    let span = Span { valid: 1, resume_at: 0 };
    assert!(try_plan(&layout, &tables, &layout, &tables, span).unwrap().reads[0].is_empty());
}

fn refused(change: impl Fn(&mut CacheLayout, &mut Vec<BlockTable>), span: Span) -> String {
    let source = layout(&[Kind::Full, Kind::Full], PageOrder::Joint);
    let from = vec![table(0, &[1, 2, 3])];
    let (mut target, mut to) = (source.clone(), from.clone());
    change(&mut target, &mut to);
    try_plan(&source, &from, &target, &to, span).unwrap_err().to_string()
}

#[test]
fn a_pair_that_cannot_be_is_refused_with_field_and_both_values() {
    type Change = fn(&mut CacheLayout, &mut Vec<BlockTable>);
    let cases: [(Change, &str); 11] = [
        (
            |l, _| l.layers[0].parts[1].units = 0..8,
            "layers.0: values: no rank of the source keeps units 4..8",
        ),
        (
            |l, _| l.layers[0].packing = Some("hnd16".to_owned()),
            "layers.0: packing: the source has plain, the target hnd16",
        ),
        (
            |l, _| l.layers[1].name = "layers.9".to_owned(),
            "layers.9: the target keeps it, the source has no layer of that name",
        ),
        (
            |l, _| l.layers[1].kind = Kind::SlidingWindow { window: 8 },
            "layers.1: kind: the source has full attention, the target sliding window of 8",
        ),
        (
            |l, _| l.layers[0].parts[0].bytes = 8,
            "layers.0: bytes of keys: the source has 16, the target 8",
        ),
        (
            |l, _| l.layers[0].parts.truncate(1),
            "layers.0: bytes of values: the source has 16, the target 0",
        ),
        (|_, t| t.clear(), "tables: the target has 1 groups but 0 block tables"),
        (
            |_, t| t[0] = table(2, &[1, 2, 3]),
            "group 0: the target's table starts at token 2, inside a block of 4",
        ),
        (
            |_, t| t[0] = table(4, &[2, 3]),
            "group 0: tokens 0..4 are needed, the target's table holds 4..12",
        ),
        (
            |_, t| t[0] = table(0, &[1, 2, 100]),
            "layers.0: the target's layout: block 100 is outside region 0, which has 100 blocks",
        ),
        (|l, _| l.layers[0].group = 7, "layers.0: group 7 is not in the target's layout"),
    ];
    for (change, message) in cases {
        assert_eq!(refused(change, SPAN), message);
    }
}

#[test]
fn tokens_that_the_source_has_not_computed_are_refused() {
    let message = refused(|_, _| (), Span { valid: 9, resume_at: 10 });
    assert_eq!(message, "resume_at: the target resumes at 10, the source has tokens 0..9");
}

#[test]
fn a_group_spans_the_pages_of_its_layers_in_each_region() {
    let kinds = [Kind::Full, Kind::Full, Kind::SlidingWindow { window: 8 }];
    // A page: 4 heads × 4 tokens × 32 bytes. The windowed group has one layer, in slot 0.
    let joint = layout(&kinds, PageOrder::Joint);
    assert_eq!(joint.groups.len(), 3);
    assert_eq!(joint.group_spans(0), [(0, 0..512)]);
    let apart = layout(&[Kind::Full, Kind::Full], PageOrder::Apart);
    assert_eq!(apart.group_spans(0), [(0, 0..256), (1, 0..256), (2, 0..256), (3, 0..256)]);
    // Layers of two groups in turn, in one region: nobody is shown what lies between.
    let mut turns = layout(&[Kind::Full, Kind::Full], PageOrder::Joint);
    for (layer, offset) in turns.layers.iter_mut().zip([0, 1024]) {
        for part in &mut layer.parts {
            (part.region, part.offset) = (0, offset + part.offset);
        }
    }
    assert_eq!(turns.group_spans(0), [(0, 0..512), (0, 1024..1536)]);
    assert!(joint.group_spans(9).is_empty());
}
