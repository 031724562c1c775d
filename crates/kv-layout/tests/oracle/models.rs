//! Small models of every kind.

use kv_layout::{DType, Kind, Layer, LayerPart, Model, Recurrence, Role};

/// A model with a name.
pub struct Named {
    pub name: &'static str,
    pub model: Model,
}

const KEY: u32 = 2;
const VALUE: u32 = 1;

fn attention(kinds: &[Kind], heads: u32) -> Vec<Layer> {
    let layer =
        |(index, &kind)| Layer::attention(format!("layers.{index}"), kind, heads, KEY, VALUE);
    kinds.iter().enumerate().map(layer).collect()
}

fn recurrent(name: usize, recurrence: Recurrence, parts: &[(Role, u32, u32)]) -> Layer {
    let part = |&(role, units, bytes)| LayerPart { role, units, bytes };
    Layer {
        name: format!("layers.{name}"),
        kind: Kind::Recurrent { recurrence },
        parts: parts.iter().map(part).collect(),
    }
}

fn delta_net(name: usize, temporal: u32) -> Layer {
    let parts = [
        (Role::ConvQuery, 24, 1),
        (Role::ConvKey, 24, 1),
        (Role::ConvValue, 24, 2),
        (Role::Temporal, 24, temporal),
    ];
    recurrent(name, Recurrence::GatedDeltaNet, &parts)
}

fn mamba2(name: usize) -> Layer {
    let parts = [
        (Role::ConvInput, 24, 2),
        (Role::ConvB, 1, 5),
        (Role::ConvC, 1, 5),
        (Role::Temporal, 24, 3),
    ];
    recurrent(name, Recurrence::Mamba2, &parts)
}

/// `layers` in turn, with an attention layer last: `period` of them in all.
fn hybrid(states: Vec<Layer>, last: Layer) -> Vec<Layer> {
    let mut layers = states;
    let name = format!("layers.{}", layers.len());
    layers.push(Layer { name, ..last });
    layers
}

fn latent(name: usize) -> Layer {
    Layer::attention(format!("layers.{name}"), Kind::Mla, 1, 3, 0)
}

/// The models of the grid.
pub fn all() -> Vec<Named> {
    let window = |window| Kind::SlidingWindow { window };
    let chunk = |chunk| Kind::ChunkedLocal { chunk };
    let named = |name, layers| {
        let model = Model { model_type: name_of(name), dtype: DType::Bf16, layers };
        Named { name, model }
    };
    let full = |heads| Layer::attention("", Kind::Full, heads, KEY, VALUE);
    vec![
        named("full", attention(&[Kind::Full, Kind::Full], 24)),
        named("full and windows of 1 and 3", attention(&[window(3), window(1), Kind::Full], 12)),
        named("full and window 8", attention(&[window(8), window(8), Kind::Full, window(8)], 24)),
        named("full and window 17", attention(&[Kind::Full, window(17), window(17)], 12)),
        named("chunks of 4 and 8", attention(&[chunk(4), chunk(8), chunk(4)], 24)),
        named("full and chunk 8", attention(&[chunk(8), Kind::Full], 12)),
        named("two heads", attention(&[Kind::Full, window(3)], 2)),
        named("latent", vec![latent(0), latent(1)]),
        named("delta net", hybrid(vec![delta_net(0, 4), delta_net(1, 4)], full(24))),
        named("delta net, two heads", hybrid(vec![delta_net(0, 6)], full(2))),
        named("Mamba-2", hybrid(vec![mamba2(0), mamba2(1), mamba2(2)], full(12))),
        named("latent and delta net", hybrid(vec![delta_net(0, 2)], latent(0))),
        named("Mamba-2 and window 17", {
            let mut layers = hybrid(vec![mamba2(0)], full(24));
            layers.push(Layer::attention("layers.2", window(17), 24, KEY, VALUE));
            layers
        }),
    ]
}

/// Those of these names.
pub fn some(names: &[&str]) -> Vec<Named> {
    all().into_iter().filter(|model| names.contains(&model.name)).collect()
}

fn name_of(name: &str) -> String {
    name.replace(' ', "-")
}
