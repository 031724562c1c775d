//! `Model::from_config` against published configs, family rules, errors and mutations.

// Clippy allows a panic in test functions, not in their helpers.
#![allow(clippy::unwrap_used, clippy::panic)]

#[path = "config/errors.rs"]
mod errors;
#[path = "config/models.rs"]
mod models;
#[path = "config/mutations.rs"]
mod mutations;
#[path = "config/rules.rs"]
mod rules;
#[path = "config/states.rs"]
mod states;

use kv_layout::{Kind, Model};

fn model(json: &str) -> Model {
    Model::from_config(json, "config.json").unwrap()
}

/// A letter a layer: full, window, chunk, latent, recurrent.
fn letters(model: &Model) -> String {
    let letter = |kind| match kind {
        Kind::Full => 'F',
        Kind::SlidingWindow { .. } => 'W',
        Kind::ChunkedLocal { .. } => 'C',
        Kind::Mla => 'L',
        Kind::Recurrent { .. } => 'R',
        _ => '?',
    };
    model.layers.iter().map(|layer| letter(layer.kind)).collect()
}
