//! What a decode engine must hold after a hand-off.
//!
//! Computed by asking the attention mask about one key at a time, and mapped through the
//! engine's own block table and strides. Of `kv-layout` it uses a layer and its kind, nothing
//! else; a check of the project's own keeps it so.

use kv_layout::{Kind, Layer};

/// Whether the query at position `query` attends to the key at position `key`.
///
/// The masks are those of the models: causal; causal within `window` positions, the query's own
/// included; causal within the query's chunk.
#[must_use]
pub fn attends(kind: Kind, query: u64, key: u64) -> bool {
    if key > query {
        return false;
    }
    match kind {
        Kind::SlidingWindow { window } => query - key < u64::from(window),
        Kind::ChunkedLocal { chunk } => query / u64::from(chunk) == key / u64::from(chunk),
        Kind::Full | Kind::Mla => true,
        _ => false,
    }
}

/// Where an engine keeps the keys or the values of one layer, as its own tensor tells:
/// `start + block × block_stride + head × head_stride + token × token_stride` bytes from the
/// start of its memory.
#[derive(Clone, Copy, Debug)]
pub struct Place {
    /// First byte of block 0.
    pub start: u64,
    /// Bytes from one block to the next.
    pub block_stride: u64,
    /// Bytes from one head to the next.
    pub head_stride: u64,
    /// Bytes from one token of a block to the next.
    pub token_stride: u64,
}

/// One layer of an engine.
#[derive(Clone, Copy, Debug)]
pub struct Tensor<'a> {
    /// What it keeps.
    pub layer: &'a Layer,
    /// Tokens per block.
    pub block_size: u32,
    /// Where the keys are.
    pub key: Place,
    /// Where the values are, if there are any.
    pub value: Option<Place>,
}

/// Bytes of one token and head that lie together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Row {
    /// Position in the sequence.
    pub token: u64,
    /// Head of the model.
    pub head: u32,
    /// First byte, counted over the token's key and then its value.
    pub from: u32,
    /// Number of bytes.
    pub len: u32,
    /// First byte in the engine's memory.
    pub at: u64,
}

impl Tensor<'_> {
    /// All rows of the block `id` whose first token is at position `first`.
    pub fn rows(&self, id: u32, first: u64) -> impl Iterator<Item = Row> + '_ {
        let layer = self.layer;
        let key = std::iter::once((self.key, 0, layer.key_bytes));
        let value = self.value.map(|place| (place, layer.key_bytes, layer.value_bytes));
        key.chain(value).flat_map(move |(place, from, len)| {
            (0..layer.heads).flat_map(move |head| {
                (0..u64::from(self.block_size)).map(move |token| {
                    let at = place.start
                        + u64::from(id) * place.block_stride
                        + u64::from(head) * place.head_stride
                        + token * place.token_stride;
                    Row { token: first + token, head, from, len, at }
                })
            })
        })
    }

    /// Whether an engine that computes from `resume_at` on reads the key of `token`.
    #[must_use]
    pub fn needs(&self, token: u64, resume_at: u64) -> bool {
        token < resume_at && attends(self.layer.kind, resume_at, token)
    }

    /// Whether any token of the block that starts at position `first` is read.
    #[must_use]
    pub fn needs_block(&self, first: u64, resume_at: u64) -> bool {
        (first..first + u64::from(self.block_size)).any(|token| self.needs(token, resume_at))
    }
}
