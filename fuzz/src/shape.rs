//! The shape of an engine, as somebody wrote it.

use kv_layout::{
    CacheLayout, DType, EngineShape, Grouping, Kind, Layer, LayerPart, Model, Recurrence, Role,
};

use crate::{Bytes, allowance};

/// A rank copies the model, and groups and places its layers: bytes for each layer of each rank.
const PER_LAYER: u64 = 4 << 10;

/// Ranks that an engine may have.
const MAX_RANKS: u64 = 4096;

/// Shapes of any numbers, over small models of any layers.
pub fn shape(input: &[u8]) {
    let mut from = Bytes::new(input);
    let model = model(&mut from);
    let blocks = from.small();
    let shape = match from.chance(2) {
        true => numbers(&mut from),
        false => match serde_json::from_slice(from.rest()) {
            Ok(shape) => shape,
            Err(_) => return,
        },
    };
    let shape: EngineShape = shape;
    if let Ok(grouping) = Grouping::new(&model, shape.block_size) {
        let _ = grouping.block_bytes();
    }
    let ranks = u64::from(shape.tensor).saturating_mul(shape.pipeline.into());
    let allowed = ranks.min(MAX_RANKS) * (1 + model.layers.len() as u64) * PER_LAYER;
    let made = allowance::within(allowed, "a shape", || shape.layouts(&model, blocks));
    let Ok(layouts) = made else { return };
    assert_eq!(layouts.len() as u64, ranks);
    if let Some(layout) = layouts.last() {
        look(layout);
    }
}

/// What a peer is shown can be read back.
fn look(layout: &CacheLayout) {
    for group in 0..=u32::try_from(layout.groups.len()).unwrap_or(u32::MAX) {
        let _ = layout.group_spans(group);
    }
    let text = serde_json::to_vec(layout).unwrap_or_default();
    assert_eq!(serde_json::from_slice::<CacheLayout>(&text).ok().as_ref(), Some(layout));
}

fn numbers(from: &mut Bytes<'_>) -> EngineShape {
    EngineShape {
        tensor: from.small(),
        pipeline: from.small(),
        context: from.small(),
        block_size: from.small(),
        kernel_block: from.chance(2).then(|| from.small()),
        order: from.pick(&crate::engines::ORDERS),
    }
}

/// Up to eight layers whose sizes are anybody's.
fn model(from: &mut Bytes<'_>) -> Model {
    let count = from.within(0, 8);
    let layers = (0..count).map(|index| layer(index, from)).collect();
    Model { model_type: "fuzzed".to_owned(), dtype: DType::Bf16, layers }
}

fn layer(index: u32, from: &mut Bytes<'_>) -> Layer {
    let kind = kind(from);
    let roles: &[Role] = match kind.is_recurrent() {
        true => &[Role::ConvInput, Role::ConvB, Role::Temporal],
        false => &[Role::Key, Role::Value],
    };
    let parts = &roles[..1 + from.below(roles.len())];
    let odd = from.chance(4);
    let mut size = || if odd { from.small() } else { 1 << from.below(16) };
    let part = |&role| LayerPart { role, units: size(), bytes: size() };
    Layer { name: format!("layers.{index}"), kind, parts: parts.iter().map(part).collect() }
}

fn kind(from: &mut Bytes<'_>) -> Kind {
    match from.below(5) {
        0 => Kind::Full,
        1 => Kind::SlidingWindow { window: from.small() },
        2 => Kind::ChunkedLocal { chunk: from.small() },
        3 => Kind::Mla,
        _ => Kind::Recurrent { recurrence: Recurrence::Mamba2 },
    }
}
