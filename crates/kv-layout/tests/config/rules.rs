//! What configs may leave out, switch off or say in another way.

use kv_layout::{DType, Kind, Layer};

use crate::{letters, model};

#[test]
fn defaults_of_each_family() {
    for (model_type, pattern, (heads, key_bytes, value_bytes)) in [
        ("llama", "F", (32, 256, 256)),
        ("mistral", "W", (8, 256, 256)),
        ("mixtral", "F", (8, 256, 256)),
        ("phi3", "F", (32, 192, 192)),
        ("qwen2", "F", (32, 256, 256)),
        ("qwen3", "F", (32, 256, 256)),
        ("qwen2_moe", "F", (16, 256, 256)),
        ("qwen3_moe", "F", (4, 128, 128)),
        ("gemma2", "WF", (4, 512, 512)),
        ("gemma3_text", "WWWWWF", (4, 512, 512)),
        ("gpt_oss", "WF", (8, 128, 128)),
        ("llama4_text", "CCCF", (8, 256, 256)),
        ("deepseek_v2", "L", (1, 1152, 0)),
        ("deepseek_v3", "L", (1, 1152, 0)),
        ("qwen3_next", "RRRF", (2, 512, 512)),
        ("qwen3_5_text", "RRRF", (4, 512, 512)),
        ("qwen3_5_moe_text", "RRRF", (2, 512, 512)),
        ("jamba", "RRRRFRRR", (8, 256, 256)),
        ("lfm2", "F", (8, 160, 160)),
    ] {
        let model = model(&format!(r#"{{"model_type": "{model_type}", "dtype": "bfloat16"}}"#));
        let whole = pattern.repeat(model.layers.len());
        assert_eq!(letters(&model), whole[..model.layers.len()], "{model_type}");
        let attention = model.layers.iter().find(|layer| !layer.kind.is_recurrent()).unwrap();
        let expected = Layer::attention("", attention.kind, heads, key_bytes, value_bytes);
        assert_eq!(attention.parts, expected.parts, "{model_type}");
    }
}

#[test]
fn number_of_layers_that_each_family_defaults_to() {
    let count = |model_type: &str| {
        model(&format!(r#"{{"model_type": "{model_type}", "dtype": "bfloat16"}}"#)).layers.len()
    };
    let counts =
        ["llama", "qwen2_moe", "gemma2", "gemma3_text", "gpt_oss", "llama4_text"].map(count);
    assert_eq!(counts, [32, 24, 26, 26, 36, 48]);
    assert_eq!(["deepseek_v2", "deepseek_v3", "qwen3_next", "jamba"].map(count), [32, 61, 48, 32]);
    assert_eq!(["qwen3_5_text", "qwen3_5_moe_text", "lfm2"].map(count), [32, 40, 32]);
}

/// A config of four layers, and the letters of its layers.
#[track_caller]
fn check(fields: &str, expected: &str) {
    let json = format!(r#"{{"num_hidden_layers": 4, "dtype": "bfloat16", {fields}}}"#);
    assert_eq!(letters(&model(&json)), expected, "{fields}");
}

#[test]
fn null_switches_a_window_or_chunk_off() {
    check(r#""model_type": "mistral", "sliding_window": null"#, "FFFF");
    check(r#""model_type": "gemma2", "sliding_window": null"#, "FFFF");
    check(r#""model_type": "llama4_text", "attention_chunk_size": null"#, "FFFF");
}

#[test]
fn use_sliding_window_false_wins() {
    check(r#""model_type": "mistral", "sliding_window": 64, "use_sliding_window": false"#, "FFFF");
    check(r#""model_type": "qwen2", "sliding_window": 64, "max_window_layers": 0"#, "FFFF");
    check(
        r#""model_type": "qwen2_moe", "sliding_window": 64, "use_sliding_window": false"#,
        "FFFF",
    );
}

#[test]
fn max_window_layers_are_full() {
    let qwen = r#""model_type": "qwen3", "use_sliding_window": true"#;
    check(&format!(r#"{qwen}, "max_window_layers": 3"#), "FFFW");
    check(&format!(r#"{qwen}, "max_window_layers": 0"#), "WWWW");
    check(qwen, "FFFF");
}

#[test]
fn a_list_of_layer_types_overrides_the_default_rule() {
    check(
        r#""model_type": "gemma3_text", "layer_types":
            ["full_attention", "sliding_attention", "full_attention", "sliding_attention"]"#,
        "FWFW",
    );
    check(
        r#""model_type": "llama4_text", "layer_types":
            ["full_attention", "chunked_attention", "chunked_attention", "full_attention"]"#,
        "FCCF",
    );
    check(
        r#""model_type": "qwen3_next", "layer_types":
            ["full_attention", "linear_attention", "linear_attention", "linear_attention"]"#,
        "FRRR",
    );
    check(
        r#""model_type": "lfm2", "layer_types": ["conv", "full_attention", "conv", "conv"]"#,
        "RFRR",
    );
}

#[test]
fn stated_patterns() {
    check(r#""model_type": "gemma3_text", "sliding_window_pattern": 2"#, "WFWF");
    check(r#""model_type": "qwen3_next", "full_attention_interval": 1"#, "FFFF");
    check(r#""model_type": "llama4_text", "no_rope_layers": [0, 1, 1, 0]"#, "FCCF");
    check(r#""model_type": "llama4_text", "no_rope_layer_interval": 2"#, "CFCF");
    check(r#""model_type": "jamba", "attn_layer_period": 2, "attn_layer_offset": 0"#, "FRFR");
    check(r#""model_type": "lfm2", "full_attn_idxs": [3, 0, 3]"#, "FRRF");
    check(r#""model_type": "lfm2", "full_attn_idxs": []"#, "RRRR");
    check(r#""model_type": "lfm2", "full_attn_idxs": null"#, "FFFF");
}

#[test]
fn nemotron_lists_its_layers_by_letter_or_by_name() {
    let by_letter = model(
        r#"{"model_type": "nemotron_h", "dtype": "bfloat16", "hybrid_override_pattern": "M-*E"}"#,
    );
    let by_name = model(
        r#"{"model_type": "nemotron_h", "dtype": "bfloat16",
            "layers_block_type": ["mamba", "mlp", "attention", "moe"]}"#,
    );
    assert_eq!(by_letter, by_name);
    let by_common_name = model(
        r#"{"model_type": "nemotron_h", "dtype": "bfloat16",
            "layer_types": ["linear_attention", "mlp", "full_attention", "moe"]}"#,
    );
    assert_eq!(by_letter, by_common_name);
    let names: Vec<&str> = by_name.layers.iter().map(|layer| layer.name.as_str()).collect();
    assert_eq!(names, ["layers.0", "layers.2"]);
}

#[test]
fn null_heads_are_derived() {
    let json = r#"{"model_type": "mistral", "torch_dtype": "float32", "num_attention_heads": 16,
        "hidden_size": 1024, "num_key_value_heads": null, "head_dim": null}"#;
    let layer = &model(json).layers[0];
    assert_eq!(layer.parts, Layer::attention("", layer.kind, 16, 256, 256).parts);
}

#[test]
fn dtype_under_either_name_and_either_level() {
    for json in [
        r#"{"model_type": "llama", "torch_dtype": "float16"}"#,
        r#"{"model_type": "llama", "dtype": "float16", "torch_dtype": "float16"}"#,
        r#"{"dtype": "float16", "text_config": {"model_type": "llama"}}"#,
        r#"{"text_config": {"model_type": "llama", "dtype": "float16"}}"#,
        r#"{"dtype": null, "language_config": {"model_type": "llama", "dtype": "float16"}}"#,
        r#"{"text_config": null, "model_type": "llama", "dtype": "float16"}"#,
    ] {
        assert_eq!(model(json).dtype, DType::F16, "{json}");
    }
}

#[test]
fn fields_that_do_not_bear_on_the_layout_are_ignored() {
    let json = r#"{"model_type": "llama", "dtype": "bfloat16", "vocab_size": "many", "layers": 7}"#;
    assert!(model(json).layers.iter().all(|layer| layer.kind == Kind::Full));
}
