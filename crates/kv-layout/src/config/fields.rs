use serde_json::{Map, Value};

use super::error::{Problem, shown};

/// A whole number that a config may state: its name, an older one, and what values are sane.
pub(super) struct Field {
    names: &'static [&'static str],
    min: u32,
    max: u32,
}

/// More layers than any model has.
pub(super) const MAX_LAYERS: u32 = 4096;
const MAX_HEADS: u32 = 1 << 16;
const MAX_HEAD_SIZE: u32 = 1 << 16;
const MAX_HIDDEN_SIZE: u32 = 1 << 24;
const MAX_TOKENS: u32 = 1 << 30;
/// Of a recurrent state, along a head or across it.
const MAX_STATE_SIZE: u32 = 1 << 14;
const MAX_CONV_KERNEL: u32 = 1 << 10;
const MAX_EXPAND: u32 = 1 << 6;

/// The largest products of `state.rs`, the bytes for the widest element: limits that let one leave
/// u32 do not compile.
const _: [u32; 3] = [
    MAX_HIDDEN_SIZE * MAX_EXPAND,
    MAX_STATE_SIZE * MAX_STATE_SIZE * 4,
    MAX_STATE_SIZE * (MAX_CONV_KERNEL - 1) * 4,
];

pub(super) const NUM_HIDDEN_LAYERS: Field = field(&["num_hidden_layers"], 1, MAX_LAYERS);
pub(super) const HIDDEN_SIZE: Field = field(&["hidden_size"], 1, MAX_HIDDEN_SIZE);
pub(super) const NUM_ATTENTION_HEADS: Field = field(&["num_attention_heads"], 1, MAX_HEADS);
pub(super) const NUM_KEY_VALUE_HEADS: Field = field(&["num_key_value_heads"], 1, MAX_HEADS);
pub(super) const HEAD_DIM: Field = field(&["head_dim", "attention_head_dim"], 1, MAX_HEAD_SIZE);
pub(super) const KV_LORA_RANK: Field = field(&["kv_lora_rank"], 1, MAX_HEAD_SIZE);
pub(super) const QK_ROPE_HEAD_DIM: Field = field(&["qk_rope_head_dim"], 1, MAX_HEAD_SIZE);
pub(super) const SLIDING_WINDOW: Field = field(&["sliding_window"], 1, MAX_TOKENS);
pub(super) const ATTENTION_CHUNK_SIZE: Field = field(&["attention_chunk_size"], 1, MAX_TOKENS);
pub(super) const MAX_WINDOW_LAYERS: Field = field(&["max_window_layers"], 0, MAX_LAYERS);
pub(super) const SLIDING_WINDOW_PATTERN: Field = field(&["sliding_window_pattern"], 1, MAX_LAYERS);
pub(super) const FULL_ATTENTION_INTERVAL: Field =
    field(&["full_attention_interval"], 1, MAX_LAYERS);
pub(super) const NO_ROPE_LAYER_INTERVAL: Field = field(&["no_rope_layer_interval"], 1, MAX_LAYERS);
/// Each entry of that list.
pub(super) const NO_ROPE_LAYERS: Field = field(&["no_rope_layers"], 0, 1);
pub(super) const ATTN_LAYER_PERIOD: Field = field(&["attn_layer_period"], 1, MAX_LAYERS);
pub(super) const ATTN_LAYER_OFFSET: Field = field(&["attn_layer_offset"], 0, MAX_LAYERS);
/// Each entry of that list.
pub(super) const FULL_ATTN_IDXS: Field = field(&["full_attn_idxs"], 0, MAX_LAYERS);

pub(super) const MAMBA_D_STATE: Field = field(&["mamba_d_state"], 1, MAX_STATE_SIZE);
pub(super) const MAMBA_D_CONV: Field = conv_kernel(&["mamba_d_conv"]);
pub(super) const MAMBA_EXPAND: Field = field(&["mamba_expand"], 1, MAX_EXPAND);
pub(super) const MAMBA_NUM_HEADS: Field = field(&["mamba_num_heads"], 1, MAX_HEADS);
pub(super) const MAMBA_HEAD_DIM: Field = field(&["mamba_head_dim"], 1, MAX_STATE_SIZE);
pub(super) const N_GROUPS: Field = field(&["n_groups", "mamba_n_groups"], 1, MAX_HEADS);
pub(super) const SSM_STATE_SIZE: Field = field(&["ssm_state_size"], 1, MAX_STATE_SIZE);
pub(super) const CONV_KERNEL: Field = conv_kernel(&["conv_kernel", "mamba_d_conv"]);
pub(super) const LINEAR_NUM_KEY_HEADS: Field = field(&["linear_num_key_heads"], 1, MAX_HEADS);
pub(super) const LINEAR_NUM_VALUE_HEADS: Field = field(&["linear_num_value_heads"], 1, MAX_HEADS);
pub(super) const LINEAR_KEY_HEAD_DIM: Field = field(&["linear_key_head_dim"], 1, MAX_STATE_SIZE);
pub(super) const LINEAR_VALUE_HEAD_DIM: Field =
    field(&["linear_value_head_dim"], 1, MAX_STATE_SIZE);
pub(super) const LINEAR_CONV_KERNEL_DIM: Field = conv_kernel(&["linear_conv_kernel_dim"]);
pub(super) const CONV_L_CACHE: Field = conv_kernel(&["conv_L_cache"]);
pub(super) const CONV_DIM: Field = field(&["conv_dim"], 1, MAX_HIDDEN_SIZE);

/// A convolution over one column would keep nothing.
const fn conv_kernel(names: &'static [&'static str]) -> Field {
    field(names, 2, MAX_CONV_KERNEL)
}

const fn field(names: &'static [&'static str], min: u32, max: u32) -> Field {
    Field { names, min, max }
}

impl Field {
    /// The name of today.
    pub(super) fn name(&self) -> &'static str {
        self.names.first().copied().unwrap_or_default()
    }

    /// `value`, found at `path`, as a number within the limits.
    pub(super) fn check(&self, path: String, value: &Value) -> Result<u32, Problem> {
        if !value.is_u64() && !value.is_i64() {
            return Err(Problem::WrongType {
                field: path,
                value: shown(value),
                expected: "a whole number",
            });
        }
        let number = value.as_u64().and_then(|n| u32::try_from(n).ok());
        number.filter(|n| (self.min..=self.max).contains(n)).ok_or_else(|| Problem::OutOfRange {
            field: path,
            value: shown(value),
            min: self.min,
            max: self.max,
        })
    }
}

/// The fields of one JSON object, with errors that name the field.
#[derive(Clone, Copy)]
pub(super) struct Fields<'a> {
    object: &'a Map<String, Value>,
    /// Name of the object that these fields are nested in; empty for the outermost.
    parent: &'static str,
}

impl<'a> Fields<'a> {
    pub(super) fn new(object: &'a Map<String, Value>) -> Self {
        Self { object, parent: "" }
    }

    /// The fields of the object called `name`; `None` where there is none.
    pub(super) fn nested(&self, name: &'static str) -> Result<Option<Self>, Problem> {
        match self.stated(name) {
            None => Ok(None),
            Some(Value::Object(object)) => Ok(Some(Self { object, parent: name })),
            Some(value) => Err(self.wrong(name, value, "an object")),
        }
    }

    /// A whole number. Left out it is `default`; it cannot be null.
    pub(super) fn number(&self, field: &Field, default: Option<u32>) -> Result<u32, Problem> {
        let Some((name, value)) = self.first_of(field.names)? else {
            return default.ok_or_else(|| Problem::Missing { field: self.path(field.name()) });
        };
        field.check(self.path(name), value)
    }

    /// A whole number that null switches off. Left out it is `default`.
    pub(super) fn nullable(
        &self,
        field: &Field,
        default: Option<u32>,
    ) -> Result<Option<u32>, Problem> {
        match self.first_of(field.names)? {
            None => Ok(default),
            Some((_, Value::Null)) => Ok(None),
            Some((name, value)) => field.check(self.path(name), value).map(Some),
        }
    }

    /// True or false; `None` where it is left out or null.
    pub(super) fn flag(&self, name: &'static str) -> Result<Option<bool>, Problem> {
        self.stated(name)
            .map(|value| value.as_bool().ok_or_else(|| self.wrong(name, value, "true or false")))
            .transpose()
    }

    /// A string; `None` where it is left out or null.
    pub(super) fn string(&self, name: &'static str) -> Result<Option<&'a str>, Problem> {
        self.stated(name)
            .map(|value| value.as_str().ok_or_else(|| self.wrong(name, value, "a string")))
            .transpose()
    }

    /// A list under any of `names`, with that name; `None` where it is left out or null.
    pub(super) fn list(
        &self,
        names: &[&'static str],
    ) -> Result<Option<(&'static str, &'a [Value])>, Problem> {
        let stated = self.first_of(names)?.filter(|(_, value)| !value.is_null());
        stated
            .map(|(name, value)| match value.as_array() {
                Some(list) => Ok((name, list.as_slice())),
                None => Err(self.wrong(name, value, "a list")),
            })
            .transpose()
    }

    /// Whether the field is there and not null.
    pub(super) fn states(&self, name: &str) -> bool {
        self.stated(name).is_some()
    }

    /// Where the field stands in the file.
    pub(super) fn path(&self, name: &str) -> String {
        if self.parent.is_empty() { name.to_owned() } else { format!("{}.{name}", self.parent) }
    }

    /// What the field holds, for a message.
    pub(super) fn shown(&self, name: &str) -> String {
        self.object.get(name).map_or_else(|| "left out".to_owned(), shown)
    }

    /// `value / of_value`, which must leave nothing.
    pub(super) fn divide(
        &self,
        (field, value): (&Field, u32),
        (of, of_value): (&Field, u32),
    ) -> Result<u32, Problem> {
        if value.is_multiple_of(of_value) {
            return Ok(value / of_value);
        }
        Err(Problem::NotAMultiple {
            field: self.path(field.name()),
            value,
            of: self.path(of.name()),
            of_value,
        })
    }

    /// Refuses a list of other than one entry for each of `layers` layers.
    pub(super) fn check_length(
        &self,
        name: &str,
        length: usize,
        layers: u32,
    ) -> Result<(), Problem> {
        if u32::try_from(length) == Ok(layers) {
            return Ok(());
        }
        Err(Problem::Contradiction {
            field: self.path(name),
            value: format!("of length {length}"),
            other: self.path(NUM_HIDDEN_LAYERS.name()),
            other_value: layers.to_string(),
        })
    }

    fn stated(&self, name: &str) -> Option<&'a Value> {
        self.object.get(name).filter(|value| !value.is_null())
    }

    /// The value under any of `names`: those that are not null must agree, and win over null.
    fn first_of(
        &self,
        names: &[&'static str],
    ) -> Result<Option<(&'static str, &'a Value)>, Problem> {
        let mut found: Option<(&'static str, &'a Value)> = None;
        for &name in names {
            let Some(value) = self.object.get(name) else { continue };
            match found {
                Some((_, first)) if value.is_null() || first == value => {}
                Some((other, first)) if !first.is_null() => {
                    return Err(Problem::Contradiction {
                        field: self.path(other),
                        value: shown(first),
                        other: self.path(name),
                        other_value: shown(value),
                    });
                }
                _ => found = Some((name, value)),
            }
        }
        Ok(found)
    }

    fn wrong(&self, name: &str, value: &Value, expected: &'static str) -> Problem {
        Problem::WrongType { field: self.path(name), value: shown(value), expected }
    }
}
