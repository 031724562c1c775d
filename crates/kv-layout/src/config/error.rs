use serde_json::Value;

/// Why a `config.json` is refused. The message names file, field and value.
#[derive(Debug, thiserror::Error)]
#[error("{file}: {problem}")]
#[non_exhaustive]
pub struct ConfigError {
    /// Name of the file, as the caller gave it.
    pub file: String,
    /// What is wrong with it.
    pub problem: Problem,
}

impl ConfigError {
    /// Whether the config may well be sound, and only this library knows no rule for it: an
    /// unknown `model_type`, or a setting whose effect is not certain.
    #[must_use]
    pub fn is_unsupported(&self) -> bool {
        matches!(self.problem, Problem::Unsupported { .. } | Problem::UnknownModelType { .. })
    }
}

/// What is wrong with a `config.json`.
///
/// A `field` is a path such as `text_config.layer_types[3]`; a `value` is the JSON found there,
/// cut short where it is long.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Problem {
    /// The text is not JSON.
    #[error("not JSON: {0}")]
    NotJson(#[from] serde_json::Error),
    /// The text is JSON, but no object.
    #[error("not a JSON object but {found}")]
    NotAnObject {
        /// The JSON found.
        found: String,
    },
    /// A field that has no default is left out.
    #[error("`{field}` is missing, and there is no default for it")]
    Missing {
        /// The field.
        field: String,
    },
    /// A field is of another JSON type.
    #[error("`{field}` is {value}, not {expected}")]
    WrongType {
        /// The field.
        field: String,
        /// What it holds.
        value: String,
        /// What it should hold.
        expected: &'static str,
    },
    /// A number, or the length of a list, that no model has.
    #[error("`{field}` is {value}, outside {min} to {max}")]
    OutOfRange {
        /// The field.
        field: String,
        /// Its value.
        value: String,
        /// Least accepted.
        min: u32,
        /// Most accepted.
        max: u32,
    },
    /// No rule is known for this `model_type`.
    #[error("`{field}` is {value}; known are {known}")]
    UnknownModelType {
        /// The field.
        field: String,
        /// Its value.
        value: String,
        /// Those with a rule.
        known: String,
    },
    /// A layer type that layers of this `model_type` never have.
    #[error("`{field}` is {value}, which is no layer type of {model_type}")]
    UnknownLayerType {
        /// The field.
        field: String,
        /// Its value.
        value: String,
        /// The `model_type` of the text model.
        model_type: &'static str,
    },
    /// An element type that no KV cache has.
    #[error("`{field}` is {value}; known are bfloat16, float16 and float32")]
    UnknownDType {
        /// The field.
        field: String,
        /// Its value.
        value: String,
    },
    /// Two fields that cannot both be true.
    #[error("`{field}` ({value}) contradicts `{other}` ({other_value})")]
    Contradiction {
        /// One field.
        field: String,
        /// Its value.
        value: String,
        /// The other field.
        other: String,
        /// The other's value.
        other_value: String,
    },
    /// One field must be a multiple of another and is not.
    #[error("`{field}` ({value}) is not a multiple of `{of}` ({of_value})")]
    NotAMultiple {
        /// The field.
        field: String,
        /// Its value.
        value: u32,
        /// The field that should divide it.
        of: String,
        /// Its value.
        of_value: u32,
    },
    /// A setting whose effect on this `model_type` is not certain: engines differ, or none has it.
    #[error("`{field}` = {value} is not supported for {model_type}")]
    Unsupported {
        /// The field.
        field: String,
        /// Its value.
        value: String,
        /// The `model_type` of the text model.
        model_type: &'static str,
    },
    /// No layer of the model keeps anything.
    #[error("`{field}` is {value}: no layer keeps anything")]
    NothingKept {
        /// The field that lists the layers.
        field: String,
        /// Its value.
        value: String,
    },
}

/// A value for a message, cut to 60 characters.
pub(super) fn shown(value: &Value) -> String {
    let text = value.to_string();
    match text.char_indices().nth(60) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text,
    }
}
