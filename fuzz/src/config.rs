//! A model's `config.json`.

use kv_layout::{EngineShape, Grouping, Model, PageOrder};
use serde_json::Value;

use crate::{Bytes, allowance, json};

/// Models of every family of rules.
pub const MODELS: [&str; 8] = [
    include_str!("../../models/Llama-3.1-8B.json"),
    include_str!("../../models/gemma-3-4b-it.json"),
    include_str!("../../models/Llama-4-Scout-17B-16E.json"),
    include_str!("../../models/DeepSeek-V3.json"),
    include_str!("../../models/Qwen3-Next-80B-A3B.json"),
    include_str!("../../models/Jamba-v0.1.json"),
    include_str!("../../models/Nemotron-H-8B-Base-8K.json"),
    include_str!("../../models/LFM2-1.2B.json"),
];

/// Bytes for a byte of text: an element of a list of two bytes becomes a JSON value of 32, held
/// twice while a list grows, and is shown in an error.
const PER_BYTE: u64 = 64;

/// The layers of the largest model that there may be, each with the parts of a state.
const LAYERS: u64 = 4096 * 1024;

/// A text, from a peer's disk or anywhere.
pub fn config(input: &[u8]) {
    let mut from = Bytes::new(input);
    let text = match from.below(MODELS.len() + 1) {
        0 => String::from_utf8_lossy(from.clone().rest()).into_owned(),
        model => {
            let mut value: Value = serde_json::from_str(MODELS[model - 1]).unwrap_or_default();
            json::spoil(&mut value, &mut from);
            value.to_string()
        }
    };
    let allowed = LAYERS + allowance::of(text.len(), PER_BYTE);
    let read = allowance::within(allowed, "a config", || Model::from_config(&text, "fuzzed"));
    if let Ok(model) = read {
        use_model(&model, &mut from);
    }
}

/// What is a model to us is one to all that comes after.
fn use_model(model: &Model, from: &mut Bytes<'_>) {
    assert!(model.layers.len() <= 4096);
    for layer in &model.layers {
        assert!(layer.parts.iter().all(|part| part.units > 0), "{layer:?}");
        let _ = layer.kind.must_stop_early(from.small(), from.number());
        let _ = layer.row_bytes();
    }
    if let Ok(grouping) = Grouping::new(model, from.small()) {
        let _ = grouping.block_bytes();
        assert!(grouping.groups.iter().all(|group| !group.layers.is_empty()));
    }
    let order = PageOrder::BlockOutermost;
    let shape = EngineShape { tensor: from.within(1, 4), order, ..EngineShape::default() };
    let _ = shape.layouts(model, from.small());
}
