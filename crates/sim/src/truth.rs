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

/// Where an engine keeps one part of a layer, as its own tensor tells: unit `u` (counted from
/// the rank's first) of token `t` of block `b` is at
/// `start + b × block_stride + u × unit_stride + t × token_stride` bytes from the start of its
/// memory, or, where blocks are cut for a kernel, at
/// `… + ⌊t / tile_tokens⌋ × tile_stride + (t mod tile_tokens) × token_stride`.
#[derive(Clone, Copy, Debug)]
pub struct Place {
    /// Which part of the layer.
    pub part: usize,
    /// Bytes of one unit of one token.
    pub bytes: u32,
    /// The first unit that the rank keeps, counted over the whole model.
    pub first_unit: u32,
    /// How many it keeps.
    pub units: u32,
    /// First byte of block 0.
    pub start: u64,
    /// Bytes from one block to the next.
    pub block_stride: u64,
    /// Bytes from one unit to the next.
    pub unit_stride: u64,
    /// Bytes from one token to the next.
    pub token_stride: u64,
    /// Tokens of a kernel block.
    pub tile_tokens: u32,
    /// Bytes from one kernel block to the next.
    pub tile_stride: u64,
}

/// One layer of an engine.
#[derive(Clone, Debug)]
pub struct Tensor<'a> {
    /// What it keeps.
    pub layer: &'a Layer,
    /// Tokens per block; 1 for a state.
    pub block_size: u32,
    /// Where its parts are.
    pub places: Vec<Place>,
}

/// Bytes of one token and one part that lie together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Row {
    /// Position in the sequence; of a state, the number of tokens that it has seen.
    pub token: u64,
    /// Which part of the layer.
    pub part: usize,
    /// First byte, counted over all units of that part in the whole model.
    pub from: u64,
    /// Number of bytes.
    pub len: u64,
    /// First byte in the engine's memory.
    pub at: u64,
}

impl Place {
    /// Units that lie side by side make one row, else each is its own.
    fn rows(self, id: u32, first: u64, block_size: u32) -> impl Iterator<Item = Row> {
        let together = self.unit_stride == u64::from(self.bytes);
        let (rows, units) = if together { (1, self.units) } else { (self.units, 1) };
        (0..rows).flat_map(move |unit| {
            (0..block_size).map(move |token| {
                let (tile, within) = (token / self.tile_tokens, token % self.tile_tokens);
                let at = self.start
                    + u64::from(id) * self.block_stride
                    + u64::from(unit) * self.unit_stride
                    + u64::from(tile) * self.tile_stride
                    + u64::from(within) * self.token_stride;
                Row {
                    token: first + u64::from(token),
                    part: self.part,
                    from: u64::from(self.first_unit + unit) * u64::from(self.bytes),
                    len: u64::from(units) * u64::from(self.bytes),
                    at,
                }
            })
        })
    }
}

impl Tensor<'_> {
    /// All rows of the block `id` whose first token is at position `first`.
    pub fn rows(&self, id: u32, first: u64) -> impl Iterator<Item = Row> + '_ {
        self.places.iter().flat_map(move |place| place.rows(id, first, self.block_size))
    }

    /// Whether an engine that computes from `resume_at` on reads what `token` left. Of a state
    /// it reads exactly the one that has seen all tokens before.
    #[must_use]
    pub fn needs(&self, token: u64, resume_at: u64) -> bool {
        match self.layer.kind {
            // At the start there is no state yet.
            Kind::Recurrent { .. } => token == resume_at && resume_at > 0,
            kind => token < resume_at && attends(kind, resume_at, token),
        }
    }

    /// Whether any token of the block that starts at position `first` is read.
    #[must_use]
    pub fn needs_block(&self, first: u64, resume_at: u64) -> bool {
        (first..first + u64::from(self.block_size)).any(|token| self.needs(token, resume_at))
    }
}
