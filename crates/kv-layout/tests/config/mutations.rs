//! No JSON makes `from_config` panic, and what it accepts is sane.

use kv_layout::Model;
use proptest::prelude::*;
use serde_json::{Map, Value, json};

use crate::models::sources;

proptest! {
    #[test]
    fn a_mutated_config_is_read_or_refused(edits in prop::collection::vec(edit(), 1..4)) {
        for (name, text) in sources() {
            let mut config: Value = serde_json::from_str(&text).unwrap();
            for (at, value) in &edits {
                mutate(&mut config, *at, value);
            }
            check(&name, &config.to_string());
        }
    }

    #[test]
    fn any_json_is_read_or_refused(value in json_value()) {
        check("config.json", &value.to_string());
    }

    #[test]
    fn any_text_is_read_or_refused(text in any::<String>()) {
        check("config.json", &text);
    }
}

fn check(name: &str, json: &str) {
    match Model::from_config(json, name) {
        Ok(model) => {
            assert!((1..=4096).contains(&model.layers.len()), "{json}");
            for layer in &model.layers {
                assert!(!layer.parts.is_empty(), "{json}");
                assert!(layer.parts.iter().all(|part| part.total() > 0), "{json}");
                assert!(layer.row_bytes() <= 1 << 48, "{json}");
            }
        }
        Err(error) => assert!(error.to_string().starts_with(&format!("{name}: ")), "{error}"),
    }
}

/// Where to edit, and the new value; `None` deletes the field.
fn edit() -> impl Strategy<Value = (usize, Option<Value>)> {
    (any::<usize>(), prop::option::weighted(0.8, json_value()))
}

fn mutate(config: &mut Value, at: usize, value: &Option<Value>) {
    let Some(fields) = config.as_object_mut().filter(|fields| !fields.is_empty()) else { return };
    // An edit of an object, for the most part, is an edit inside it.
    let key = fields.keys().nth(at % fields.len()).unwrap().clone();
    match (&mut fields[&key], value) {
        (nested @ Value::Object(_), _) if !at.is_multiple_of(5) => mutate(nested, at / 7, value),
        (Value::Array(list), Some(value)) if !list.is_empty() && !at.is_multiple_of(5) => {
            let index = at % list.len();
            list[index] = value.clone();
        }
        (field, Some(value)) => *field = value.clone(),
        (_, None) => drop(fields.remove(&key)),
    }
}

fn json_value() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        prop::sample::select(vec![
            json!(0),
            json!(-1),
            json!(1),
            json!(2.5),
            json!(4096),
            json!(16384),
            json!(65536),
            json!(1 << 24),
            json!(i64::MIN),
            json!(u64::MAX),
            json!(1e300),
        ]),
        (0..200u32).prop_map(Value::from),
        prop::sample::select(vec![
            "",
            "llama",
            "nemotron_h",
            "qwen2",
            "qwen3_next",
            "jamba",
            "lfm2",
            "bfloat16",
            "float32",
            "full_attention",
            "sliding_attention",
            "mamba",
            "conv",
            "M-*",
            "é",
        ])
        .prop_map(Value::from),
    ];
    leaf.prop_recursive(3, 24, 6, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..6).prop_map(Value::from),
            prop::collection::vec((field_name(), inner), 0..6)
                .prop_map(|fields| Value::Object(fields.into_iter().collect::<Map<_, _>>())),
        ]
    })
}

fn field_name() -> impl Strategy<Value = String> {
    prop::sample::select(vec![
        "model_type",
        "text_config",
        "dtype",
        "torch_dtype",
        "num_hidden_layers",
        "layer_types",
        "hybrid_override_pattern",
        "num_attention_heads",
        "num_key_value_heads",
        "head_dim",
        "sliding_window",
        "no_rope_layers",
        "attn_layer_period",
        "kv_lora_rank",
        "hidden_size",
        "full_attn_idxs",
        "conv_L_cache",
        "conv_dim",
        "mamba_d_state",
        "mamba_d_conv",
        "mamba_expand",
        "mamba_num_heads",
        "mamba_head_dim",
        "n_groups",
        "ssm_state_size",
        "conv_kernel",
        "mamba_ssm_cache_dtype",
        "linear_num_key_heads",
        "linear_num_value_heads",
        "linear_key_head_dim",
        "linear_value_head_dim",
        "linear_conv_kernel_dim",
        "mamba_ssm_dtype",
    ])
    .prop_map(str::to_owned)
}
