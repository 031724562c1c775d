//! The planner on small engines: what is paired with what, and what is refused.

use kv_layout::{
    BlockTable, CacheLayout, DType, Grouping, Holding, Kind, Layer, Model, PageOrder, Part,
    PlanError, Span, plan,
};
use strided::{Dim, Pattern, Region};

const BLOCK: u32 = 4;

fn model(kinds: &[Kind]) -> Model {
    let layer = |(i, &kind)| Layer {
        name: format!("layers.{i}"),
        kind,
        heads: 4,
        key_bytes: 16,
        value_bytes: 16,
    };
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
    plan(source, Holding { layout: target, tables: to }, span)
}

#[test]
fn blocks_pair_by_token_position_whatever_the_lists_start_with() {
    let kinds = [Kind::SlidingWindow { window: 4 }];
    let layout = layout(&kinds, PageOrder::Joint);
    // Resume at 10: keys 7, 8, 9 are visible, in blocks 1 and 2 of the sequence.
    let from = [table(0, &[40, 41, 42])];
    let to = [table(4, &[7, 8])];
    let plan = try_plan(&layout, &from, &layout, &to, SPAN).unwrap();
    assert_eq!(plan.copies.len(), 1);
    assert_eq!(plan.copies[0].source().ids()[..], [41, 42]);
    assert_eq!(plan.copies[0].target().ids()[..], [7, 8]);
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
    for copy in &plan.copies {
        assert_eq!(copy.source().region(), copy.target().region());
    }
    assert_eq!(plan.copies[0].target().region().0, 1);
}

#[test]
fn lists_of_ids_are_shared_by_the_layers_of_a_group() {
    let layout = layout(&[Kind::Full; 8], PageOrder::Apart);
    let tables = [table(0, &[1, 2, 3])];
    let plan = try_plan(&layout, &tables, &layout, &tables, SPAN).unwrap();
    assert_eq!(plan.copies.len(), 16);
    let first = plan.copies[0].source().ids();
    assert!(plan.copies.iter().all(|copy| std::sync::Arc::ptr_eq(copy.source().ids(), first)));
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
    let sides = |i: usize| (*plan.copies[i].source().pattern(), *plan.copies[i].target().pattern());
    assert_eq!(sides(0), (keys, packed));
    assert_eq!(sides(1), (values, packed));
    assert_eq!(plan.copies[1].target().region().0, 1);
}

#[test]
fn a_slice_of_heads_is_a_dimension_when_tokens_lie_outside_heads() {
    let source = layout(&[Kind::Full], PageOrder::Joint);
    let mut tokens_outside = source.clone();
    let part = |offset| Part { region: 0, offset, head_stride: 32, token_stride: 128, bytes: 16 };
    tokens_outside.layers[0].key = part(0);
    tokens_outside.layers[0].value = Some(part(16));
    let mut half = tokens_outside.clone();
    half.layers[0].heads = 2..4;
    let shrink = |p: Part| Part { token_stride: 64, ..p };
    half.layers[0].key = shrink(half.layers[0].key);
    half.layers[0].value = half.layers[0].value.map(shrink);
    half.regions[0] = Region { block_stride: 256, block_count: 100 };
    let tables = [table(0, &[1, 2, 3])];

    let plan = try_plan(&tokens_outside, &tables, &half, &tables, SPAN).unwrap();
    assert_eq!(plan.copies.len(), 1);
    let heads_2_and_3 = Pattern::new(64, &[Dim { count: 4, stride: 128 }], 64).unwrap();
    assert_eq!(*plan.copies[0].source().pattern(), heads_2_and_3);
    assert_eq!(*plan.copies[0].target().pattern(), Pattern::contiguous(0, 256).unwrap());

    // Heads outside tokens on the source: the same bytes, walked head by head on both sides.
    let plan = try_plan(&source, &tables, &half, &tables, SPAN).unwrap();
    assert_eq!(*plan.copies[0].source().pattern(), Pattern::contiguous(256, 256).unwrap());
    let by_head = [Dim { count: 2, stride: 32 }, Dim { count: 4, stride: 64 }];
    assert_eq!(*plan.copies[0].target().pattern(), Pattern::new(0, &by_head, 32).unwrap());
}

#[test]
fn nothing_is_visible_at_the_start() {
    let layout = layout(&[Kind::Full, Kind::Full], PageOrder::Joint);
    let tables = [table(0, &[1])];
    let span = Span { valid: 1, resume_at: 0 };
    assert!(try_plan(&layout, &tables, &layout, &tables, span).unwrap().copies.is_empty());
}

fn refused(change: impl Fn(&mut CacheLayout, &mut Vec<BlockTable>), span: Span) -> (String, bool) {
    let source = layout(&[Kind::Full, Kind::Full], PageOrder::Joint);
    let from = vec![table(0, &[1, 2, 3])];
    let (mut target, mut to) = (source.clone(), from.clone());
    change(&mut target, &mut to);
    let why = try_plan(&source, &from, &target, &to, span).unwrap_err();
    (why.to_string(), why.is_unsupported())
}

#[test]
fn a_pair_that_cannot_be_is_refused_with_field_and_both_values() {
    let cases: [(fn(&mut CacheLayout, &mut Vec<BlockTable>), &str); 9] = [
        (
            |l, _| l.layers[1].name = "layers.9".to_owned(),
            "layers.9: the target keeps it, the source has no layer of that name",
        ),
        (
            |l, _| l.layers[1].kind = Kind::SlidingWindow { window: 8 },
            "layers.1: kind: the source has full attention, the target sliding window of 8",
        ),
        (
            |l, _| l.layers[0].key.bytes = 8,
            "layers.0: bytes of a key: the source has 16, the target 8",
        ),
        (
            |l, _| l.layers[0].value = None,
            "layers.0: bytes of a value: the source has 16, the target 0",
        ),
        (|_, t| t.clear(), "tables: the target has 1 groups but 0 block tables"),
        (
            |_, t| t[0] = table(2, &[1, 2, 3]),
            "group 0: the target's table starts at token 2, inside a block of 4",
        ),
        (
            |_, t| t[0] = table(4, &[2, 3]),
            "group 0: tokens 0..10 are needed, the target's table holds 4..12",
        ),
        (
            |_, t| t[0] = table(0, &[1, 2, 100]),
            "layers.0: the target's layout: block 100 is outside region 0, which has 100 blocks",
        ),
        (|l, _| l.layers[0].group = 7, "layers.0: group 7 is not in the target's layout"),
    ];
    for (change, message) in cases {
        assert_eq!(refused(change, SPAN), (message.to_owned(), false));
    }
}

#[test]
fn tokens_that_the_source_has_not_computed_are_refused() {
    let (message, _) = refused(|_, _| (), Span { valid: 9, resume_at: 10 });
    assert_eq!(message, "resume_at: the target resumes at 10, the source has tokens 0..9");
}

#[test]
fn unequal_block_sizes_and_missing_heads_are_named_as_not_supported_yet() {
    assert_eq!(
        refused(|l, _| l.groups[0].block_size = 8, SPAN),
        (
            "layers.0: block size: the source has 4, the target 8: not supported yet".to_owned(),
            true
        )
    );
    assert_eq!(
        refused(|l, _| l.layers[0].heads = 0..8, SPAN),
        (
            "layers.0: heads: the source has 0..4, the target 0..8: not supported yet".to_owned(),
            true
        )
    );
}

#[test]
fn a_group_spans_the_pages_of_its_layers_in_each_region() {
    let kinds = [Kind::Full, Kind::Full, Kind::SlidingWindow { window: 8 }];
    // A page: 4 heads × 4 tokens × 32 bytes. The windowed group has one layer, in slot 0.
    let joint = layout(&kinds, PageOrder::Joint);
    let spans =
        |layout: &CacheLayout, group| layout.group_spans(group).into_iter().collect::<Vec<_>>();
    assert_eq!(joint.groups.len(), 3);
    assert_eq!(spans(&joint, 0), [(0, 0..512)]);
    let apart = layout(&[Kind::Full, Kind::Full], PageOrder::Apart);
    assert_eq!(spans(&apart, 0), [(0, 0..256), (1, 0..256), (2, 0..256), (3, 0..256)]);
    assert!(joint.group_spans(9).is_empty());
}
