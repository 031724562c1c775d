//! The models: every kind of layer, and numbers of heads that ranks share or repeat.

use kv_layout::Kind;
use sim::toy::{Spec, Toy};

const FULL: Kind = Kind::Full;

fn window(window: u32) -> Kind {
    Kind::SlidingWindow { window }
}

fn chunk(chunk: u32) -> Kind {
    Kind::ChunkedLocal { chunk }
}

fn attention(kind: Kind, queries: u32, heads: u32, [key, value]: [u32; 2]) -> Spec {
    Spec::Attention { kind, queries, heads, key, value }
}

/// The layers of a model; windows and chunks mostly not a multiple of any block.
fn layers(name: &str) -> Vec<Spec> {
    let all = |kinds: &[Kind], queries, heads, sizes| {
        kinds.iter().map(|&kind| attention(kind, queries, heads, sizes)).collect()
    };
    let delta = Spec::Delta { keys: 2, values: 4, width: 4 };
    match name {
        "six heads" => {
            let kinds = [FULL, window(7), chunk(10), window(7), FULL, chunk(10)];
            all(&kinds, 12, 6, [2, 1])
        }
        "two heads" => all(&[window(13), FULL, chunk(8), FULL, window(13)], 8, 2, [2, 2]),
        "twelve heads" => all(&[FULL, window(5), chunk(12), window(5), FULL], 12, 12, [1, 2]),
        "two widths" => {
            let [wide, narrow] = [4, 2].map(|heads| move |kind| attention(kind, 8, heads, [2, 2]));
            vec![wide(FULL), narrow(window(9)), narrow(window(9)), wide(FULL), narrow(window(9))]
        }
        "delta net" => vec![
            delta,
            attention(FULL, 8, 2, [2, 1]),
            attention(window(7), 8, 2, [2, 1]),
            Spec::Convolution { channels: 8 },
            attention(chunk(10), 8, 2, [2, 1]),
            delta,
        ],
        "mamba" => vec![
            Spec::Mamba2 { groups: 1, heads: 12, width: 2 },
            attention(FULL, 12, 12, [2, 1]),
            Spec::Mamba2 { groups: 1, heads: 12, width: 2 },
            attention(window(19), 12, 12, [2, 1]),
            Spec::Mamba2 { groups: 1, heads: 12, width: 2 },
        ],
        "latent" => all(&[Kind::Mla; 5], 8, 1, [3, 0]),
        "latent and delta" => vec![
            delta,
            attention(Kind::Mla, 8, 1, [5, 0]),
            Spec::Convolution { channels: 8 },
            attention(Kind::Mla, 8, 1, [5, 0]),
            delta,
        ],
        other => panic!("no model {other}"),
    }
}

pub fn model(name: &str) -> Toy {
    Toy::new(name, 20_260_114, &layers(name))
}
