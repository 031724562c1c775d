//! What recurrent layers keep, where configs state it, leave it out or get it wrong.

use expect_test::{Expect, expect};
use kv_layout::{Model, Role};

use crate::model;
use crate::models::parts;

/// The config of a hybrid model whose second layer is recurrent, with these fields beside.
fn hybrid(model_type: &str, fields: &str) -> String {
    let layers = match model_type {
        "nemotron_h" => r#""hybrid_override_pattern": "*M-""#,
        "jamba" => r#""num_hidden_layers": 2, "attn_layer_period": 2, "attn_layer_offset": 0"#,
        "lfm2" => r#""num_hidden_layers": 2, "full_attn_idxs": [0]"#,
        _ => r#""layer_types": ["full_attention", "linear_attention"], "num_hidden_layers": 2"#,
    };
    let fields = if fields.is_empty() { String::new() } else { format!(", {fields}") };
    format!(r#"{{"model_type": "{model_type}", "dtype": "bfloat16", {layers}{fields}}}"#)
}

#[track_caller]
fn keeps(model_type: &str, fields: &str, expected: &[(Role, u32, u32)]) {
    let model = model(&hybrid(model_type, fields));
    assert_eq!(parts(&model.layers[1].parts), expected, "{model_type} {fields}");
}

#[track_caller]
fn refused(model_type: &str, fields: &str, expected: Expect) {
    let error = Model::from_config(&hybrid(model_type, fields), "config.json").unwrap_err();
    expected.assert_eq(&error.to_string());
}

#[test]
fn defaults_of_each_class() {
    keeps("jamba", "", &[(Role::ConvInput, 8192, 6), (Role::Temporal, 8192, 32)]);
    keeps(
        "nemotron_h",
        "",
        &[
            (Role::ConvInput, 128, 384),
            (Role::ConvB, 8, 768),
            (Role::ConvC, 8, 768),
            (Role::Temporal, 128, 16384),
        ],
    );
    for qwen in ["qwen3_next", "qwen3_5_text", "qwen3_5_moe_text"] {
        keeps(
            qwen,
            "",
            &[
                (Role::ConvQuery, 16, 768),
                (Role::ConvKey, 16, 768),
                (Role::ConvValue, 32, 768),
                (Role::Temporal, 32, 32768),
            ],
        );
    }
    keeps("lfm2", "", &[(Role::ConvInput, 2560, 4)]);
}

/// Each number differs from its default and from every other, so that none can stand in for
/// another.
#[test]
fn each_stated_number_counts() {
    keeps(
        "jamba",
        r#""hidden_size": 320, "mamba_expand": 3, "mamba_d_state": 7, "mamba_d_conv": 6"#,
        &[(Role::ConvInput, 960, 10), (Role::Temporal, 960, 14)],
    );
    keeps(
        "nemotron_h",
        r#""mamba_num_heads": 12, "mamba_head_dim": 5, "n_groups": 3, "ssm_state_size": 7,
            "conv_kernel": 6"#,
        &[
            (Role::ConvInput, 12, 50),
            (Role::ConvB, 3, 70),
            (Role::ConvC, 3, 70),
            (Role::Temporal, 12, 70),
        ],
    );
    keeps(
        "qwen3_next",
        r#""linear_num_key_heads": 3, "linear_num_value_heads": 12, "linear_key_head_dim": 5,
            "linear_value_head_dim": 7, "linear_conv_kernel_dim": 6"#,
        &[
            (Role::ConvQuery, 3, 50),
            (Role::ConvKey, 3, 50),
            (Role::ConvValue, 12, 70),
            (Role::Temporal, 12, 70),
        ],
    );
    keeps(
        "lfm2",
        r#""hidden_size": 320, "conv_dim": 320, "conv_L_cache": 6"#,
        &[(Role::ConvInput, 320, 10)],
    );
}

/// NemotronHConfig takes the names of its first release as well.
#[test]
fn older_names() {
    keeps(
        "nemotron_h",
        r#""mamba_n_groups": 4, "mamba_d_conv": 3"#,
        &[
            (Role::ConvInput, 128, 256),
            (Role::ConvB, 4, 512),
            (Role::ConvC, 4, 512),
            (Role::Temporal, 128, 16384),
        ],
    );
}

#[test]
fn a_stated_dtype_is_that_of_the_temporal_state_alone() {
    let temporal = |model_type: &str, fields: &str| {
        let model = model(&hybrid(model_type, fields));
        let layer = &model.layers[1];
        (layer.parts[0].bytes, layer.part(Role::Temporal).unwrap().bytes)
    };
    assert_eq!(temporal("nemotron_h", r#""mamba_ssm_cache_dtype": "float32""#), (384, 32768));
    assert_eq!(temporal("qwen3_5_text", r#""mamba_ssm_dtype": "float32""#), (768, 65536));
    assert_eq!(temporal("qwen3_5_text", r#""mamba_ssm_dtype": null"#), (768, 32768));
    refused(
        "nemotron_h",
        r#""mamba_ssm_cache_dtype": "int8""#,
        expect![[
            r#"config.json: `mamba_ssm_cache_dtype` is "int8"; known are bfloat16, float16 and float32"#
        ]],
    );
}

#[test]
fn every_field_is_limited() {
    for (model_type, fields) in [
        ("jamba", &["hidden_size", "mamba_expand", "mamba_d_state", "mamba_d_conv"][..]),
        (
            "nemotron_h",
            &["mamba_num_heads", "mamba_head_dim", "n_groups", "ssm_state_size", "conv_kernel"],
        ),
        (
            "qwen3_next",
            &[
                "linear_num_key_heads",
                "linear_num_value_heads",
                "linear_key_head_dim",
                "linear_value_head_dim",
                "linear_conv_kernel_dim",
            ],
        ),
        ("lfm2", &["hidden_size", "conv_dim", "conv_L_cache"]),
    ] {
        for field in fields {
            for value in ["0", "-1", "4294967296", "1000000000"] {
                let json = hybrid(model_type, &format!(r#""{field}": {value}"#));
                let error = Model::from_config(&json, "config.json").unwrap_err().to_string();
                let start = format!("config.json: `{field}` is {value}, outside ");
                assert!(error.starts_with(&start), "{error}");
            }
        }
    }
}

/// No product leaves u32 where every factor is at its limit.
#[test]
fn the_largest_states() {
    let check = |model_type: &str, fields: &str, expected: &[(Role, u32, u32)]| {
        let model = model(&hybrid(model_type, fields).replace("bfloat16", "float32"));
        assert_eq!(parts(&model.layers[1].parts), expected, "{model_type}");
    };
    check(
        "jamba",
        r#""hidden_size": 16777216, "head_dim": 1, "mamba_expand": 64, "mamba_d_state": 16384,
            "mamba_d_conv": 1024"#,
        &[(Role::ConvInput, 1 << 30, 1023 * 4), (Role::Temporal, 1 << 30, 1 << 16)],
    );
    check(
        "nemotron_h",
        r#""mamba_num_heads": 65536, "mamba_head_dim": 16384, "n_groups": 65536,
            "ssm_state_size": 16384, "conv_kernel": 1024"#,
        &[
            (Role::ConvInput, 1 << 16, 1023 << 16),
            (Role::ConvB, 1 << 16, 1023 << 16),
            (Role::ConvC, 1 << 16, 1023 << 16),
            (Role::Temporal, 1 << 16, 1 << 30),
        ],
    );
    check(
        "qwen3_next",
        r#""linear_num_key_heads": 65536, "linear_num_value_heads": 65536,
            "linear_key_head_dim": 16384, "linear_value_head_dim": 16384,
            "linear_conv_kernel_dim": 1024"#,
        &[
            (Role::ConvQuery, 1 << 16, 1023 << 16),
            (Role::ConvKey, 1 << 16, 1023 << 16),
            (Role::ConvValue, 1 << 16, 1023 << 16),
            (Role::Temporal, 1 << 16, 1 << 30),
        ],
    );
}

#[test]
fn wrong_fields() {
    refused(
        "jamba",
        r#""mamba_d_conv": 1"#,
        expect!["config.json: `mamba_d_conv` is 1, outside 2 to 1024"],
    );
    refused(
        "jamba",
        r#""mamba_d_state": null"#,
        expect!["config.json: `mamba_d_state` is null, not a whole number"],
    );
    refused(
        "nemotron_h",
        r#""mamba_num_heads": 100"#,
        expect!["config.json: `mamba_num_heads` (100) is not a multiple of `n_groups` (8)"],
    );
    refused(
        "nemotron_h",
        r#""n_groups": 8, "mamba_n_groups": 4"#,
        expect!["config.json: `n_groups` (8) contradicts `mamba_n_groups` (4)"],
    );
    refused(
        "qwen3_next",
        r#""linear_num_value_heads": 24"#,
        expect![
            "config.json: `linear_num_value_heads` (24) is not a multiple of `linear_num_key_heads` (16)"
        ],
    );
    refused(
        "lfm2",
        r#""conv_dim": 2048"#,
        expect!["config.json: `conv_dim` (2048) contradicts `hidden_size` (2560)"],
    );
}

#[test]
fn wrong_indices() {
    let refused = |fields: &str, expected: Expect| {
        let json = format!(
            r#"{{"model_type": "lfm2", "dtype": "bfloat16", "num_hidden_layers": 4, {fields}}}"#
        );
        expected.assert_eq(&Model::from_config(&json, "config.json").unwrap_err().to_string());
    };
    refused(
        r#""full_attn_idxs": [0, 4]"#,
        expect!["config.json: `full_attn_idxs[1]` (4) contradicts `num_hidden_layers` (4)"],
    );
    refused(
        r#""full_attn_idxs": [-1]"#,
        expect!["config.json: `full_attn_idxs[0]` is -1, outside 0 to 4096"],
    );
    refused(r#""full_attn_idxs": 2"#, expect!["config.json: `full_attn_idxs` is 2, not a list"]);
    refused(
        r#""full_attn_idxs": [1], "layer_types": ["full_attention", "conv", "conv", "conv"]"#,
        expect![[
            r#"config.json: `layer_types[0]` ("full_attention") contradicts `full_attn_idxs` ([1])"#
        ]],
    );
}
