use std::fmt;
use std::ops::Range;

use serde::{Deserialize, Serialize};

/// How far back the query of a token sees in a layer, hence which keys must be kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
#[non_exhaustive]
pub enum Kind {
    /// Every earlier token.
    Full,
    /// The query at position q sees keys `q − window + 1 ..= q`.
    SlidingWindow {
        /// Window in tokens, the query's own position included.
        window: u32,
    },
    /// The query at position q sees keys from the start of its chunk, `⌊q / chunk⌋ × chunk ..= q`.
    ChunkedLocal {
        /// Chunk in tokens.
        chunk: u32,
    },
    /// Multi-head latent attention: every earlier token, one latent shared by all heads.
    Mla,
    /// A state of fixed size instead of keys.
    Recurrent {
        /// Which recurrence.
        recurrence: Recurrence,
    },
}

/// The recurrences that hybrid models use.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Recurrence {
    /// Selective state space, Mamba (arXiv:2312.00752).
    Mamba1,
    /// State space duality, Mamba-2 (arXiv:2405.21060).
    Mamba2,
    /// Gated delta net (arXiv:2412.06464).
    GatedDeltaNet,
    /// A short convolution alone (arXiv:2511.23404).
    ShortConv,
}

/// What some bytes of a layer are. Two engines pair bytes of one role only.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Role {
    /// Keys, or the latent of MLA; a unit is a head.
    Key,
    /// Values; a unit is a head.
    Value,
    /// Convolution window over the inputs; a unit is a head of Mamba-2, a channel elsewhere.
    ConvInput,
    /// Convolution window over Mamba-2's B; a unit is a group of channels.
    ConvB,
    /// Convolution window over Mamba-2's C; a unit is a group of channels.
    ConvC,
    /// Convolution window over the queries of a delta net; a unit is a head.
    ConvQuery,
    /// Convolution window over the keys of a delta net; a unit is a head.
    ConvKey,
    /// Convolution window over the values of a delta net; a unit is a head.
    ConvValue,
    /// The recurrent state itself; a unit is a head, or a channel of Mamba.
    Temporal,
}

impl fmt::Display for Role {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Key => "keys",
            Self::Value => "values",
            Self::ConvInput => "convolution state of inputs",
            Self::ConvB => "convolution state of B",
            Self::ConvC => "convolution state of C",
            Self::ConvQuery => "convolution state of queries",
            Self::ConvKey => "convolution state of keys",
            Self::ConvValue => "convolution state of values",
            Self::Temporal => "temporal state",
        })
    }
}

impl Kind {
    /// The positions whose keys the query at `position` and every later one can see, the
    /// query's own excluded: an engine that computes from `position` on needs exactly these.
    ///
    /// A recurrent layer sees no keys, only its state: the range is empty.
    #[must_use]
    pub fn visible_before(self, position: u64) -> Range<u64> {
        let start = match self {
            Self::Full | Self::Mla => 0,
            Self::SlidingWindow { window } => {
                position.saturating_add(1).saturating_sub(u64::from(window))
            }
            Self::ChunkedLocal { chunk } => position - position % u64::from(chunk.max(1)),
            Self::Recurrent { .. } => position,
        };
        start.min(position)..position
    }

    /// How many tokens of a prompt of `tokens` a prefill engine computes for a decode engine that
    /// recomputes the last one: a state that has seen the last token is of no use to it.
    #[must_use]
    pub fn prefill_tokens(kinds: impl IntoIterator<Item = Self>, tokens: u64) -> u64 {
        let recurrent = kinds.into_iter().any(Self::is_recurrent);
        if recurrent && tokens > 1 { tokens - 1 } else { tokens }
    }

    /// Whether a layer of this kind keeps a state instead of keys.
    #[must_use]
    pub fn is_recurrent(self) -> bool {
        matches!(self, Self::Recurrent { .. })
    }

    /// Tokens of one block: those of the group, or the one state.
    pub(crate) fn tokens_a_block(self, block_size: u32) -> u32 {
        if self.is_recurrent() { 1 } else { block_size }
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Full => f.write_str("full attention"),
            Self::SlidingWindow { window } => write!(f, "sliding window of {window}"),
            Self::ChunkedLocal { chunk } => write!(f, "chunks of {chunk}"),
            Self::Mla => f.write_str("MLA"),
            Self::Recurrent { recurrence } => match recurrence {
                Recurrence::Mamba1 => f.write_str("recurrent (Mamba)"),
                Recurrence::Mamba2 => f.write_str("recurrent (Mamba-2)"),
                Recurrence::GatedDeltaNet => f.write_str("recurrent (gated delta net)"),
                Recurrence::ShortConv => f.write_str("recurrent (short convolution)"),
            },
        }
    }
}

/// Element type of the KV cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
#[non_exhaustive]
pub enum DType {
    /// bfloat16.
    Bf16,
    /// IEEE half precision.
    F16,
    /// IEEE single precision.
    F32,
    /// Any of the 8-bit floats.
    Fp8,
}

impl DType {
    /// Bytes of one element.
    #[must_use]
    pub fn bytes(self) -> u32 {
        match self {
            Self::F32 => 4,
            Self::Bf16 | Self::F16 => 2,
            Self::Fp8 => 1,
        }
    }
}

impl fmt::Display for DType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Bf16 => "bf16",
            Self::F16 => "f16",
            Self::F32 => "f32",
            Self::Fp8 => "fp8",
        })
    }
}

/// One layer that keeps something per request.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Layer {
    /// Name by which two engines recognise the layer, such as `layers.5`.
    pub name: String,
    /// What a query sees of it.
    pub kind: Kind,
    /// What it keeps: per token for attention, per request for a state.
    pub parts: Vec<LayerPart>,
}

/// Some bytes that a layer keeps, over the whole model.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LayerPart {
    /// What they are.
    pub role: Role,
    /// How many units there are: what tensor parallelism shares out.
    pub units: u32,
    /// Bytes of one unit (of one token, for attention).
    pub bytes: u32,
}

impl Layer {
    /// An attention layer: `heads` KV heads with a key of `key_bytes` and a value of
    /// `value_bytes` each. MLA has one head, whose latent is the key, and no value.
    #[must_use]
    pub fn attention(
        name: impl Into<String>,
        kind: Kind,
        heads: u32,
        key_bytes: u32,
        value_bytes: u32,
    ) -> Self {
        let part = |role, bytes| LayerPart { role, units: heads, bytes };
        let mut parts = vec![part(Role::Key, key_bytes)];
        if value_bytes > 0 {
            parts.push(part(Role::Value, value_bytes));
        }
        Self { name: name.into(), kind, parts }
    }

    /// Bytes that one token keeps in this layer, or one state, over all units.
    #[must_use]
    pub fn row_bytes(&self) -> u64 {
        self.parts.iter().fold(0, |sum, part| sum.saturating_add(part.total()))
    }

    /// The units of a part, if the layer has it.
    #[must_use]
    pub fn part(&self, role: Role) -> Option<&LayerPart> {
        self.parts.iter().find(|part| part.role == role)
    }
}

impl LayerPart {
    /// Bytes over all units.
    #[must_use]
    pub fn total(&self) -> u64 {
        u64::from(self.units) * u64::from(self.bytes)
    }
}
