use std::fmt;
use std::ops::Range;

use serde::{Deserialize, Serialize};

/// How far back the query of a token sees in a layer, hence which keys must be kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
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
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Recurrence {
    /// Selective state space, Mamba (arXiv:2312.00752).
    Mamba1,
    /// State space duality, Mamba-2 (arXiv:2405.21060).
    Mamba2,
    /// Gated delta net (arXiv:2412.06464).
    GatedDeltaNet,
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
///
/// For attention the cache holds, per token and head, `key_bytes` then `value_bytes`. An MLA
/// layer has one head whose latent is the key, and no value. A recurrent layer has a state
/// instead and all three are 0 until states are planned.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Layer {
    /// Name by which two engines recognise the layer, such as `layers.5`.
    pub name: String,
    /// What a query sees of it.
    pub kind: Kind,
    /// KV heads of the whole model, over all ranks.
    pub heads: u32,
    /// Bytes of one key: one token, one head.
    pub key_bytes: u32,
    /// Bytes of one value: one token, one head.
    pub value_bytes: u32,
}

impl Layer {
    /// Bytes that one token keeps in this layer, over all heads.
    #[must_use]
    pub fn token_bytes(&self) -> u64 {
        let row = u64::from(self.key_bytes) + u64::from(self.value_bytes);
        u64::from(self.heads).saturating_mul(row)
    }
}
