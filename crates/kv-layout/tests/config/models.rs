//! The published configs, against layers counted by hand from the models' papers and cards.

use std::fs;

use kv_layout::{DType, Kind, Model, Recurrence};

/// The layers of one kind.
struct Expected {
    count: usize,
    kind: Kind,
    /// Indices of the first ones in the model.
    first: &'static [u32],
    /// KV heads, bytes of a key, bytes of a value.
    keeps: (u32, u32, u32),
}

const STATE: (u32, u32, u32) = (0, 0, 0);

fn layers(count: usize, kind: Kind, first: &'static [u32], keeps: (u32, u32, u32)) -> Expected {
    Expected { count, kind, first, keeps }
}

fn window(window: u32) -> Kind {
    Kind::SlidingWindow { window }
}

fn state(recurrence: Recurrence) -> Kind {
    Kind::Recurrent { recurrence }
}

#[rustfmt::skip]
fn table() -> Vec<(&'static str, &'static str, Vec<Expected>)> {
    let chunk = Kind::ChunkedLocal { chunk: 8192 };
    vec![
        ("gemma-3-4b-it", "gemma3_text", vec![
            layers(29, window(1024), &[0, 1, 2, 3, 4, 6], (4, 512, 512)),
            layers(5, Kind::Full, &[5, 11, 17, 23, 29], (4, 512, 512)),
        ]),
        ("gemma-3-27b-it", "gemma3_text", vec![
            layers(52, window(1024), &[0, 1, 2, 3, 4, 6], (16, 256, 256)),
            layers(10, Kind::Full, &[5, 11, 17, 23, 29, 35, 41, 47, 53, 59], (16, 256, 256)),
        ]),
        ("gpt-oss-20b", "gpt_oss", vec![
            layers(12, window(128), &[0, 2, 4], (8, 128, 128)),
            layers(12, Kind::Full, &[1, 3, 5], (8, 128, 128)),
        ]),
        ("gpt-oss-120b", "gpt_oss", vec![
            layers(18, window(128), &[0, 2, 4], (8, 128, 128)),
            layers(18, Kind::Full, &[1, 3, 5], (8, 128, 128)),
        ]),
        ("Llama-4-Scout-17B-16E", "llama4_text", vec![
            layers(36, chunk, &[0, 1, 2, 4], (8, 256, 256)),
            layers(12, Kind::Full, &[3, 7, 11], (8, 256, 256)),
        ]),
        ("Llama-3.1-8B", "llama", vec![layers(32, Kind::Full, &[0, 1], (8, 256, 256))]),
        ("Mistral-7B-v0.1", "mistral", vec![layers(32, window(4096), &[0, 1], (8, 256, 256))]),
        ("DeepSeek-V3", "deepseek_v3", vec![layers(61, Kind::Mla, &[0, 1], (1, 1152, 0))]),
        ("Qwen3-Next-80B-A3B", "qwen3_next", vec![
            layers(36, state(Recurrence::GatedDeltaNet), &[0, 1, 2, 4], STATE),
            layers(12, Kind::Full, &[3, 7, 11], (2, 512, 512)),
        ]),
        ("Jamba-v0.1", "jamba", vec![
            layers(28, state(Recurrence::Mamba1), &[0, 1, 2, 3, 5], STATE),
            layers(4, Kind::Full, &[4, 12, 20, 28], (8, 256, 256)),
        ]),
        ("Nemotron-H-8B-Base-8K", "nemotron_h", vec![
            layers(24, state(Recurrence::Mamba2), &[0, 2, 4, 6, 9], STATE),
            layers(4, Kind::Full, &[7, 18, 29, 40], (8, 256, 256)),
        ]),
        ("Phi-3-mini-4k-instruct", "phi3", vec![
            layers(32, window(2047), &[0, 1], (32, 192, 192)),
        ]),
        ("Qwen2.5-7B", "qwen2", vec![layers(28, Kind::Full, &[0, 1], (4, 256, 256))]),
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
        let keeps = (layer.heads, layer.key_bytes, layer.value_bytes);
        assert_eq!(keeps, expected.keeps, "{name}: {}", layer.name);
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
