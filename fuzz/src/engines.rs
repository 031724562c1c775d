//! Legal engines of small models, to be spoiled afterwards.

use std::sync::Arc;

use kv_layout::{
    BlockTable, CacheLayout, DType, EngineShape, Kind, Layer, LayerPart, Model, PageOrder,
    RankShape, Recurrence, Role, Span,
};

use crate::Bytes;

/// How a page may lie.
pub const ORDERS: [PageOrder; 4] =
    [PageOrder::Joint, PageOrder::TokensOutside, PageOrder::Apart, PageOrder::BlockOutermost];

/// Blocks of each rank's pool: more than any request here has.
const POOL: u32 = 4096;

/// The ranks of an engine, each with the tables of the one request.
#[derive(Clone, Debug, Default)]
pub struct Engine {
    pub layouts: Vec<CacheLayout>,
    pub tables: Vec<Vec<BlockTable>>,
}

/// Up to six layers of all kinds, whose windows a prompt of some hundred tokens leaves.
pub fn model(from: &mut Bytes<'_>) -> Model {
    let count = from.within(1, 6);
    let layers = (0..count).map(|index| layer(index, from)).collect();
    Model { model_type: "fuzzed".to_owned(), dtype: DType::Bf16, layers }
}

fn layer(index: u32, from: &mut Bytes<'_>) -> Layer {
    let name = format!("layers.{index}");
    let heads = from.pick(&[4, 2, 1]);
    let kind = match from.below(8) {
        0..3 => Kind::Full,
        3 | 4 => Kind::SlidingWindow { window: from.within(1, 40) },
        5 => Kind::ChunkedLocal { chunk: from.within(1, 40) },
        6 => return Layer::attention(name, Kind::Mla, 1, 6, 0),
        _ => {
            let part = |role| LayerPart { role, units: heads, bytes: 3 };
            let parts = vec![part(Role::ConvInput), part(Role::Temporal)];
            let kind = Kind::Recurrent { recurrence: Recurrence::GatedDeltaNet };
            return Layer { name, kind, parts };
        }
    };
    Layer::attention(name, kind, heads, 2, from.pick(&[2, 4, 0]))
}

/// How many tokens there are and where the other side goes on.
pub fn span(from: &mut Bytes<'_>) -> Span {
    let valid = 1 + u64::from(from.byte());
    Span { valid, resume_at: valid.saturating_sub(u64::from(from.byte() % 4)) }
}

/// An engine of this model in a shape that the input chooses; `None` if the model has no such.
pub fn engine(model: &Model, span: Span, from: &mut Bytes<'_>) -> Option<Engine> {
    let shape = EngineShape {
        tensor: from.pick(&[1, 2, 4]),
        pipeline: from.pick(&[1, 1, 2]),
        context: from.pick(&[1, 1, 2]),
        block_size: from.pick(&[4, 1, 2, 3, 8, 16]),
        kernel_block: from.pick(&[None, None, Some(1), Some(2), Some(4)]),
        order: from.pick(&ORDERS),
    };
    let ranks = shape.ranks(model).ok()?;
    let placement = shape.placement(POOL);
    let layout = |rank: &RankShape| CacheLayout::of_shard(&rank.shard, &rank.grouping, placement);
    let step = from.pick(&[1, 7, POOL - 1]);
    let layouts = ranks.iter().map(layout).collect();
    Some(Engine { layouts, tables: ranks.iter().map(|rank| tables(rank, span, step)).collect() })
}

fn tables(rank: &RankShape, span: Span, step: u32) -> Vec<BlockTable> {
    let mut next = 0_u32;
    let mut id = |_| {
        next = (next + step) % POOL;
        next
    };
    let mut table = |kept: kv_layout::Kept| {
        let ids: Arc<[u32]> = (0..kept.blocks).map(&mut id).collect();
        BlockTable { first_token: kept.first_token, ids }
    };
    rank.kept(span.resume_at, span.valid).map(&mut table).collect()
}
