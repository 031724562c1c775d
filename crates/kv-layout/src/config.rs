//! From a Hugging Face `config.json` to the layers that keep something.
//!
//! [`Model::from_config`] follows the configuration classes of transformers; what each
//! `model_type` means and what its config may leave out is one table, `config/defaults.rs`.

mod defaults;
mod error;
mod fields;
mod kinds;
mod rule;
mod state;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use self::defaults::{Family, Keeps};
use self::error::shown;
use self::fields::{
    Fields, HEAD_DIM, HIDDEN_SIZE, KV_LORA_RANK, NUM_ATTENTION_HEADS, NUM_KEY_VALUE_HEADS,
    QK_ROPE_HEAD_DIM,
};
use crate::{DType, Kind, Layer};

pub use self::error::{ConfigError, Problem};

/// What a model keeps per request, as its `config.json` says.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Model {
    /// The `model_type` of the text model.
    pub model_type: String,
    /// Element type of the KV cache, and of a recurrent state unless the config says otherwise.
    pub dtype: DType,
    /// The layers that keep something, in model order.
    pub layers: Vec<Layer>,
}

impl Model {
    /// The model that the text of a `config.json` describes.
    ///
    /// Of a multimodal config the text model counts. Layers are named `layers.{index}` by their
    /// index in the model. Fields that do not bear on what is kept are ignored.
    ///
    /// # Errors
    ///
    /// If `json` is no config of a supported `model_type`, lacks a field that has no default,
    /// contradicts itself or holds a value that no model has. `file` is only named in errors.
    pub fn from_config(json: &str, file: &str) -> Result<Self, ConfigError> {
        read(json).map_err(|problem| ConfigError { file: file.to_owned(), problem })
    }
}

fn read(json: &str) -> Result<Model, Problem> {
    let root: Value = serde_json::from_str(json)?;
    let Value::Object(object) = &root else {
        return Err(Problem::NotAnObject { found: shown(&root) });
    };
    let outer = Fields::new(object);
    let text = text_model(&outer)?;
    let family = family(&text)?;
    let dtype = dtype(&outer, &text, family)?;
    let layers = layers(&text, family, dtype)?;
    Ok(Model { model_type: family.model_type.to_owned(), dtype, layers })
}

/// The config of the text model: nested in a multimodal one, else the whole.
fn text_model<'a>(outer: &Fields<'a>) -> Result<Fields<'a>, Problem> {
    // DeepSeek-VL2 says `language_config`, InternVL `llm_config`.
    for name in ["text_config", "language_config", "llm_config"] {
        if let Some(text) = outer.nested(name)? {
            return Ok(text);
        }
    }
    Ok(*outer)
}

fn family(text: &Fields<'_>) -> Result<&'static Family, Problem> {
    const FIELD: &str = "model_type";
    let missing = || Problem::Missing { field: text.path(FIELD) };
    let model_type = text.string(FIELD)?.ok_or_else(missing)?;
    Family::of(model_type).ok_or_else(|| Problem::UnknownModelType {
        field: text.path(FIELD),
        value: text.shown(FIELD),
        known: Family::known(),
    })
}

/// Stated under either name, beside the text model or in it; where often, then alike.
fn dtype(outer: &Fields<'_>, text: &Fields<'_>, family: &Family) -> Result<DType, Problem> {
    let places = [(outer, "torch_dtype"), (outer, "dtype"), (text, "torch_dtype"), (text, "dtype")];
    let mut found = None;
    for (fields, name) in places {
        let Some(dtype) = stated_dtype(fields, name)? else { continue };
        let &mut (first, at, of) = found.get_or_insert((dtype, name, fields));
        if first != dtype {
            return Err(Problem::Contradiction {
                field: of.path(at),
                value: of.shown(at),
                other: fields.path(name),
                other_value: fields.shown(name),
            });
        }
    }
    let missing = || Problem::Missing { field: "torch_dtype".to_owned() };
    found.map(|(dtype, ..)| dtype).or(family.dtype).ok_or_else(missing)
}

fn stated_dtype(fields: &Fields<'_>, name: &'static str) -> Result<Option<DType>, Problem> {
    let dtype = |value| match value {
        "bfloat16" => Ok(DType::Bf16),
        "float16" => Ok(DType::F16),
        "float32" => Ok(DType::F32),
        _ => Err(Problem::UnknownDType { field: fields.path(name), value: fields.shown(name) }),
    };
    fields.string(name)?.map(dtype).transpose()
}

fn layers(text: &Fields<'_>, family: &Family, dtype: DType) -> Result<Vec<Layer>, Problem> {
    let Attention { kind: full, heads, key_bytes, value_bytes } =
        attention(text, family.keeps, dtype)?;
    let state = state::parts(text, family, dtype)?;
    let kinds = kinds::kinds(text, family, full)?;
    let layer = |(index, kind): (usize, Option<Kind>)| {
        let name = format!("layers.{index}");
        Some(match kind? {
            kind @ Kind::Recurrent { .. } => Layer { name, kind, parts: state.clone() },
            kind => Layer::attention(name, kind, heads, key_bytes, value_bytes),
        })
    };
    Ok(kinds.into_iter().enumerate().filter_map(layer).collect())
}

/// What every attention layer of a model keeps per token, and what its full attention is.
struct Attention {
    kind: Kind,
    heads: u32,
    key_bytes: u32,
    value_bytes: u32,
}

fn attention(text: &Fields<'_>, keeps: Keeps, dtype: DType) -> Result<Attention, Problem> {
    match keeps {
        Keeps::Latent { kv_lora_rank, qk_rope_head_dim } => {
            let rank = text.number(&KV_LORA_RANK, Some(kv_lora_rank))?;
            let rope = text.number(&QK_ROPE_HEAD_DIM, Some(qk_rope_head_dim))?;
            let key_bytes = (rank + rope) * dtype.bytes();
            Ok(Attention { kind: Kind::Mla, heads: 1, key_bytes, value_bytes: 0 })
        }
        Keeps::Heads { hidden_size, num_attention_heads, num_key_value_heads, head_dim } => {
            let queries = text.number(&NUM_ATTENTION_HEADS, Some(num_attention_heads))?;
            let heads =
                text.nullable(&NUM_KEY_VALUE_HEADS, num_key_value_heads)?.unwrap_or(queries);
            text.divide((&NUM_ATTENTION_HEADS, queries), (&NUM_KEY_VALUE_HEADS, heads))?;
            let head_dim = match text.nullable(&HEAD_DIM, head_dim)? {
                Some(head_dim) => head_dim,
                None => {
                    let hidden = text.number(&HIDDEN_SIZE, Some(hidden_size))?;
                    text.divide((&HIDDEN_SIZE, hidden), (&NUM_ATTENTION_HEADS, queries))?
                }
            };
            let bytes = head_dim * dtype.bytes();
            Ok(Attention { kind: Kind::Full, heads, key_bytes: bytes, value_bytes: bytes })
        }
    }
}
