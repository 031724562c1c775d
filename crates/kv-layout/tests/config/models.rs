//! The published configs, against layers counted by hand from the models' papers and cards.

use std::fs;

use kv_layout::{DType, Kind, LayerPart, Model, Recurrence, Role};

/// The layers of one kind.
struct Expected {
    count: usize,
    kind: Kind,
    /// Indices of the first ones in the model.
    first: &'static [u32],
    /// What each keeps: role, units, bytes of a unit.
    parts: Parts,
}

type Parts = Vec<(Role, u32, u32)>;

fn layers(count: usize, kind: Kind, first: &'static [u32], parts: Parts) -> Expected {
    Expected { count, kind, first, parts }
}

/// A key and a value of `bytes` each.
fn heads(heads: u32, bytes: u32) -> Parts {
    vec![(Role::Key, heads, bytes), (Role::Value, heads, bytes)]
}

fn window(window: u32) -> Kind {
    Kind::SlidingWindow { window }
}

fn state(recurrence: Recurrence) -> Kind {
    Kind::Recurrent { recurrence }
}

/// File, model_type, and the layers that keep something.
type Table = Vec<(&'static str, &'static str, Vec<Expected>)>;

fn table() -> Table {
    attention_models().into_iter().chain(recurrent_models()).collect()
}

#[rustfmt::skip]
fn attention_models() -> Table {
    let chunk = Kind::ChunkedLocal { chunk: 8192 };
    vec![
        ("gemma-3-4b-it", "gemma3_text", vec![
            layers(29, window(1024), &[0, 1, 2, 3, 4, 6], heads(4, 512)),
            layers(5, Kind::Full, &[5, 11, 17, 23, 29], heads(4, 512)),
        ]),
        ("gemma-3-27b-it", "gemma3_text", vec![
            layers(52, window(1024), &[0, 1, 2, 3, 4, 6], heads(16, 256)),
            layers(10, Kind::Full, &[5, 11, 17, 23, 29, 35, 41, 47, 53, 59], heads(16, 256)),
        ]),
        ("gpt-oss-20b", "gpt_oss", vec![
            layers(12, window(128), &[0, 2, 4], heads(8, 128)),
            layers(12, Kind::Full, &[1, 3, 5], heads(8, 128)),
        ]),
        ("gpt-oss-120b", "gpt_oss", vec![
            layers(18, window(128), &[0, 2, 4], heads(8, 128)),
            layers(18, Kind::Full, &[1, 3, 5], heads(8, 128)),
        ]),
        ("Llama-4-Scout-17B-16E", "llama4_text", vec![
            layers(36, chunk, &[0, 1, 2, 4], heads(8, 256)),
            layers(12, Kind::Full, &[3, 7, 11], heads(8, 256)),
        ]),
        ("Llama-3.1-8B", "llama", vec![layers(32, Kind::Full, &[0, 1], heads(8, 256))]),
        ("Mistral-7B-v0.1", "mistral", vec![layers(32, window(4096), &[0, 1], heads(8, 256))]),
        ("DeepSeek-V3", "deepseek_v3", vec![
            layers(61, Kind::Mla, &[0, 1], vec![(Role::Key, 1, 1152)]),
        ]),
        ("Phi-3-mini-4k-instruct", "phi3", vec![
            layers(32, window(2047), &[0, 1], heads(32, 192)),
        ]),
        ("Qwen2.5-7B", "qwen2", vec![layers(28, Kind::Full, &[0, 1], heads(4, 256))]),
    ]
}

#[rustfmt::skip]
fn recurrent_models() -> Table {
    vec![
        ("Qwen3-Next-80B-A3B", "qwen3_next", vec![
            // Heads of 128, three columns; 128 x 128 for each value head.
            layers(36, state(Recurrence::GatedDeltaNet), &[0, 1, 2, 4], vec![
                (Role::ConvQuery, 16, 768),
                (Role::ConvKey, 16, 768),
                (Role::ConvValue, 32, 768),
                (Role::Temporal, 32, 32768),
            ]),
            layers(12, Kind::Full, &[3, 7, 11], heads(2, 512)),
        ]),
        ("Jamba-v0.1", "jamba", vec![
            // 2 x 4096 channels: three columns, and 16 elements of state.
            layers(28, state(Recurrence::Mamba1), &[0, 1, 2, 3, 5], vec![
                (Role::ConvInput, 8192, 6),
                (Role::Temporal, 8192, 32),
            ]),
            layers(4, Kind::Full, &[4, 12, 20, 28], heads(8, 256)),
        ]),
        ("Nemotron-H-8B-Base-8K", "nemotron_h", vec![
            // Heads of 64, groups of 128, three columns; 64 x 128 for each head.
            layers(24, state(Recurrence::Mamba2), &[0, 2, 4, 6, 9], vec![
                (Role::ConvInput, 128, 384),
                (Role::ConvB, 8, 768),
                (Role::ConvC, 8, 768),
                (Role::Temporal, 128, 16384),
            ]),
            layers(4, Kind::Full, &[7, 18, 29, 40], heads(8, 256)),
        ]),
        ("LFM2-1.2B", "lfm2", vec![
            // Two columns of bf16 a channel.
            layers(10, state(Recurrence::ShortConv), &[0, 1, 3, 4, 6, 7, 9, 11, 13, 15], vec![
                (Role::ConvInput, 2048, 4),
            ]),
            layers(6, Kind::Full, &[2, 5, 8, 10, 12, 14], heads(8, 128)),
        ]),
    ]
}

#[test]
fn published_models_keep_what_their_makers_say() {
    for (name, model_type, expected) in table() {
        let model = published(name);
        assert_eq!(model.model_type, model_type, "{name}");
        assert_eq!(model.dtype, DType::Bf16, "{name}");
        let all: usize = expected.iter().map(|layers| layers.count).sum();
        assert_eq!(model.layers.len(), all, "{name}");
        for expected in &expected {
            check(name, &model, expected);
        }
    }
}

fn check(name: &str, model: &Model, expected: &Expected) {
    let layers: Vec<_> = model.layers.iter().filter(|l| l.kind == expected.kind).collect();
    assert_eq!(layers.len(), expected.count, "{name}: {}", expected.kind);
    for (layer, index) in layers.iter().zip(expected.first) {
        assert_eq!(layer.name, format!("layers.{index}"), "{name}: {}", expected.kind);
    }
    for layer in layers {
        assert_eq!(parts(&layer.parts), expected.parts, "{name}: {}", layer.name);
    }
}

/// What each part of a layer is: role, units, bytes of a unit.
pub fn parts(parts: &[LayerPart]) -> Parts {
    parts.iter().map(|part| (part.role, part.units, part.bytes)).collect()
}

#[test]
fn bytes_of_one_state() {
    for (name, bytes) in [
        ("Qwen3-Next-80B-A3B", 1_097_728),
        ("Jamba-v0.1", 311_296),
        ("Nemotron-H-8B-Base-8K", 2_158_592),
        ("LFM2-1.2B", 8192),
    ] {
        let model = published(name);
        let state = model.layers.iter().find(|layer| layer.kind.is_recurrent()).unwrap();
        assert_eq!(state.row_bytes(), bytes, "{name}");
    }
}

#[test]
fn every_model_file_is_in_the_table() {
    let mut files: Vec<String> = sources().into_iter().map(|(name, _)| name).collect();
    let mut table: Vec<&str> = table().into_iter().map(|(name, ..)| name).collect();
    files.sort();
    table.sort_unstable();
    assert_eq!(files, table);
}

#[test]
fn every_model_file_names_its_source() {
    for (name, json) in sources() {
        assert!(json.contains("\"_source\": \""), "{name}");
    }
}

fn published(name: &str) -> Model {
    let (file, json) =
        sources().into_iter().find(|(file, _)| file == name).unwrap_or_else(|| panic!("{name}"));
    Model::from_config(&json, &file).unwrap()
}

/// Name and text of each file in `models/`.
pub fn sources() -> Vec<(String, String)> {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../models");
    let paths = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    paths
        .filter(|path| path.extension().is_some_and(|ext| ext == "json"))
        .map(|path| {
            let name = path.file_stem().unwrap().to_str().unwrap().to_owned();
            (name, fs::read_to_string(path).unwrap())
        })
        .collect()
}
