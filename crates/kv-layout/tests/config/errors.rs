//! Every way to refuse a config, with its whole message.

use expect_test::{Expect, expect};
use kv_layout::Model;

#[track_caller]
fn check(json: &str, expected: Expect) {
    let error = Model::from_config(json, "config.json").unwrap_err();
    expected.assert_eq(&error.to_string());
}

/// A config of four layers with a dtype and these fields.
#[track_caller]
fn check_fields(fields: &str, expected: Expect) {
    let json = format!(r#"{{"num_hidden_layers": 4, "dtype": "bfloat16", {fields}}}"#);
    check(&json, expected);
}

#[test]
fn not_json() {
    check("{", expect!["config.json: not JSON: EOF while parsing an object at line 1 column 1"]);
    check("", expect!["config.json: not JSON: EOF while parsing a value at line 1 column 0"]);
}

#[test]
fn not_an_object() {
    check("[1, 2]", expect!["config.json: not a JSON object but [1,2]"]);
    check("null", expect!["config.json: not a JSON object but null"]);
}

#[test]
fn missing() {
    check(
        r#"{"dtype": "bfloat16"}"#,
        expect!["config.json: `model_type` is missing, and there is no default for it"],
    );
    check(
        r#"{"text_config": {}}"#,
        expect!["config.json: `text_config.model_type` is missing, and there is no default for it"],
    );
    check(
        r#"{"model_type": "llama", "torch_dtype": null}"#,
        expect!["config.json: `torch_dtype` is missing, and there is no default for it"],
    );
    check_fields(
        r#""model_type": "nemotron_h""#,
        expect![
            "config.json: `hybrid_override_pattern` is missing, and there is no default for it"
        ],
    );
}

#[test]
fn wrong_type() {
    check_fields(
        r#""model_type": "llama", "num_key_value_heads": "8""#,
        expect![[r#"config.json: `num_key_value_heads` is "8", not a whole number"#]],
    );
    check_fields(
        r#""model_type": "llama", "head_dim": 128.0"#,
        expect!["config.json: `head_dim` is 128.0, not a whole number"],
    );
    check_fields(r#""model_type": 3"#, expect!["config.json: `model_type` is 3, not a string"]);
    check_fields(
        r#""model_type": "qwen2", "use_sliding_window": 1"#,
        expect!["config.json: `use_sliding_window` is 1, not true or false"],
    );
    check_fields(
        r#""model_type": "gemma2", "layer_types": "full_attention""#,
        expect![[r#"config.json: `layer_types` is "full_attention", not a list"#]],
    );
    check(
        r#"{"text_config": "llama"}"#,
        expect![[r#"config.json: `text_config` is "llama", not an object"#]],
    );
    check(
        r#"{"model_type": "llama", "dtype": "bfloat16", "num_hidden_layers": null}"#,
        expect!["config.json: `num_hidden_layers` is null, not a whole number"],
    );
}

#[test]
fn long_values_are_cut_short() {
    let dtype = "x".repeat(1000);
    check(
        &format!(r#"{{"model_type": "llama", "dtype": "{dtype}"}}"#),
        expect![[
            r#"config.json: `dtype` is "xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx…; known are bfloat16, float16 and float32"#
        ]],
    );
}

#[test]
fn out_of_range() {
    check(
        r#"{"model_type": "llama", "dtype": "bfloat16", "num_hidden_layers": 0}"#,
        expect!["config.json: `num_hidden_layers` is 0, outside 1 to 4096"],
    );
    check(
        r#"{"model_type": "llama", "dtype": "bfloat16", "num_hidden_layers": 1000000000000}"#,
        expect!["config.json: `num_hidden_layers` is 1000000000000, outside 1 to 4096"],
    );
    check_fields(
        r#""model_type": "llama", "num_key_value_heads": -1"#,
        expect!["config.json: `num_key_value_heads` is -1, outside 1 to 65536"],
    );
    check_fields(
        r#""model_type": "llama", "head_dim": 65537"#,
        expect!["config.json: `head_dim` is 65537, outside 1 to 65536"],
    );
    check_fields(
        r#""model_type": "deepseek_v3", "kv_lora_rank": 0"#,
        expect!["config.json: `kv_lora_rank` is 0, outside 1 to 65536"],
    );
    check_fields(
        r#""model_type": "mistral", "sliding_window": 0"#,
        expect!["config.json: `sliding_window` is 0, outside 1 to 1073741824"],
    );
    check_fields(
        r#""model_type": "llama4_text", "no_rope_layers": [1, 1, 2, 0]"#,
        expect!["config.json: `no_rope_layers[2]` is 2, outside 0 to 1"],
    );
}

#[test]
fn unknown_model_type() {
    check(
        r#"{"text_config": {"model_type": "mamba"}}"#,
        expect![[
            r#"config.json: `text_config.model_type` is "mamba"; known are llama, mistral, mixtral, phi3, qwen2, qwen3, qwen2_moe, qwen3_moe, gemma2, gemma3_text, gpt_oss, llama4_text, deepseek_v2, deepseek_v3, qwen3_next, qwen3_5_text, qwen3_5_moe_text, jamba, nemotron_h, lfm2"#
        ]],
    );
}

#[test]
fn unknown_layer_type() {
    check_fields(
        r#""model_type": "llama", "layer_types": ["full_attention", "mamba"]"#,
        expect![[r#"config.json: `layer_types[1]` is "mamba", which is no layer type of llama"#]],
    );
    check_fields(
        r#""model_type": "qwen3", "layer_types": [7]"#,
        expect!["config.json: `layer_types[0]` is 7, which is no layer type of qwen3"],
    );
    check_fields(
        r#""model_type": "lfm2", "layer_types": ["conv", "mamba"]"#,
        expect![[r#"config.json: `layer_types[1]` is "mamba", which is no layer type of lfm2"#]],
    );
    check_fields(
        r#""model_type": "jamba", "layer_types": ["conv"]"#,
        expect![[r#"config.json: `layer_types[0]` is "conv", which is no layer type of jamba"#]],
    );
    check_fields(
        r#""model_type": "nemotron_h", "hybrid_override_pattern": "M-*x""#,
        expect![
            "config.json: `hybrid_override_pattern[3]` is 'x', which is no layer type of nemotron_h"
        ],
    );
}

#[test]
fn unknown_dtype() {
    check(
        r#"{"model_type": "llama", "dtype": "int8"}"#,
        expect![[r#"config.json: `dtype` is "int8"; known are bfloat16, float16 and float32"#]],
    );
}

#[test]
fn a_list_of_other_than_num_hidden_layers() {
    check_fields(
        r#""model_type": "gpt_oss", "layer_types": ["sliding_attention", "full_attention"]"#,
        expect!["config.json: `layer_types` (of length 2) contradicts `num_hidden_layers` (4)"],
    );
    check_fields(
        r#""model_type": "nemotron_h", "hybrid_override_pattern": "M-*""#,
        expect![
            "config.json: `hybrid_override_pattern` (of length 3) contradicts `num_hidden_layers` (4)"
        ],
    );
    check_fields(
        r#""model_type": "llama4_text", "no_rope_layers": [1]"#,
        expect!["config.json: `no_rope_layers` (of length 1) contradicts `num_hidden_layers` (4)"],
    );
}

#[test]
fn layer_types_against_the_rule() {
    let full = r#""layer_types":
        ["full_attention", "full_attention", "full_attention", "full_attention"]"#;
    let fields = |fields: &str| format!("{fields}, {full}");
    check_fields(
        &fields(r#""model_type": "gemma3_text", "sliding_window_pattern": 2"#),
        expect![[
            r#"config.json: `layer_types[0]` ("full_attention") contradicts `sliding_window_pattern` (2)"#
        ]],
    );
    check_fields(
        &fields(r#""model_type": "mistral", "sliding_window": 64"#),
        expect![[
            r#"config.json: `layer_types[0]` ("full_attention") contradicts `sliding_window` (64)"#
        ]],
    );
    check_fields(
        &fields(r#""model_type": "qwen2", "use_sliding_window": true, "max_window_layers": 3"#),
        expect![[
            r#"config.json: `layer_types[3]` ("full_attention") contradicts `max_window_layers` (3)"#
        ]],
    );
    check_fields(
        &fields(r#""model_type": "jamba", "attn_layer_period": 8"#),
        expect![[
            r#"config.json: `layer_types[0]` ("full_attention") contradicts `attn_layer_period` (8)"#
        ]],
    );
    check_fields(
        &fields(r#""model_type": "nemotron_h", "hybrid_override_pattern": "***M""#),
        expect![[
            r#"config.json: `layer_types[3]` ("full_attention") contradicts `hybrid_override_pattern` ("***M")"#
        ]],
    );
}

#[test]
fn sliding_layers_without_a_window() {
    let sliding = r#""layer_types":
        ["full_attention", "sliding_attention", "full_attention", "full_attention"]"#;
    check_fields(
        &format!(r#""model_type": "gemma2", "sliding_window": null, {sliding}"#),
        expect![[
            r#"config.json: `layer_types[1]` ("sliding_attention") contradicts `sliding_window` (null)"#
        ]],
    );
    check_fields(
        &format!(r#""model_type": "qwen2", {sliding}"#),
        expect![[
            r#"config.json: `layer_types[1]` ("sliding_attention") contradicts `use_sliding_window` (left out)"#
        ]],
    );
}

#[test]
fn other_contradictions() {
    check(
        r#"{"model_type": "llama", "dtype": "bfloat16", "torch_dtype": "float16"}"#,
        expect![[r#"config.json: `torch_dtype` ("float16") contradicts `dtype` ("bfloat16")"#]],
    );
    check(
        r#"{"torch_dtype": "float32", "text_config": {"model_type": "llama", "dtype": "float16"}}"#,
        expect![[
            r#"config.json: `torch_dtype` ("float32") contradicts `text_config.dtype` ("float16")"#
        ]],
    );
    check_fields(
        r#""model_type": "jamba", "attn_layer_period": 4"#,
        expect!["config.json: `attn_layer_offset` (4) contradicts `attn_layer_period` (4)"],
    );
    check_fields(
        r#""model_type": "nemotron_h", "head_dim": 64, "attention_head_dim": 128"#,
        expect!["config.json: `head_dim` (64) contradicts `attention_head_dim` (128)"],
    );
}

#[test]
fn not_a_multiple() {
    check_fields(
        r#""model_type": "llama", "hidden_size": 100, "num_attention_heads": 8"#,
        expect!["config.json: `hidden_size` (100) is not a multiple of `num_attention_heads` (8)"],
    );
    check_fields(
        r#""model_type": "llama", "num_attention_heads": 8, "num_key_value_heads": 3"#,
        expect![
            "config.json: `num_attention_heads` (8) is not a multiple of `num_key_value_heads` (3)"
        ],
    );
}

#[test]
fn unsupported() {
    check_fields(
        r#""model_type": "llama", "sliding_window": 4096"#,
        expect!["config.json: `sliding_window` = 4096 is not supported for llama"],
    );
    check_fields(
        r#""model_type": "qwen3_moe", "use_sliding_window": true"#,
        expect!["config.json: `use_sliding_window` = true is not supported for qwen3_moe"],
    );
    check_fields(
        r#""model_type": "gemma3_text", "use_bidirectional_attention": true"#,
        expect![
            "config.json: `use_bidirectional_attention` = true is not supported for gemma3_text"
        ],
    );
}

#[test]
fn nothing_kept() {
    check_fields(
        r#""model_type": "nemotron_h", "hybrid_override_pattern": "--EE""#,
        expect![[r#"config.json: `hybrid_override_pattern` is "--EE": no layer keeps anything"#]],
    );
}
