//! From a Hugging Face `config.json` to the layers that keep something.

use serde::{Deserialize, Serialize};

use crate::{DType, Layer};

/// What a model keeps per request, as its `config.json` says.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Model {
    /// The `model_type` of the text model.
    pub model_type: String,
    /// Element type of the KV cache.
    pub dtype: DType,
    /// The layers that keep something, in model order.
    pub layers: Vec<Layer>,
}

/// Why a `config.json` is refused. The message names file, field and value.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ConfigError {}
