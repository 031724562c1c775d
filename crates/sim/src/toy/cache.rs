//! What a step of the model asks of a KV cache, and the cache that never moves.

use std::collections::BTreeMap;
use std::ops::Range;

use kv_layout::Role;

use super::index;

/// One unit (head, channel) of one part of one layer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Row {
    /// Index of the layer in the model.
    pub layer: usize,
    /// Which of its bytes.
    pub role: Role,
    /// Counted over the whole model.
    pub unit: u32,
}

/// Where a model keeps what later tokens need. The rows of a token hold attention's keys and
/// values; those of a state are what it is once it has seen the token.
pub trait Cache {
    /// Which rank, of those that share the heads of `layer`, computes head `head` of `heads`. A
    /// row that several ranks keep is read where it is used. Where nobody shares, it is one.
    fn seat(&self, _layer: usize, _head: u32, _heads: u32) -> u32 {
        0
    }

    /// The tokens whose rows a kernel loads for a query that sees `seen`: all of `seen`, and
    /// what lies beside it in the same blocks and is masked. Where rows are read one by one,
    /// nothing does.
    fn loaded(&self, _layer: usize, seen: Range<u64>) -> Range<u64> {
        seen
    }

    /// The numbers of the rows of `tokens`, as the rank at `seat` has them.
    ///
    /// # Errors
    /// [`Fault`].
    fn read(&self, row: Row, seat: u32, tokens: Range<u64>) -> Result<Vec<f64>, Fault>;

    /// Keeps a row of `token`, on all ranks that keep its unit.
    ///
    /// # Errors
    /// [`Fault`].
    fn write(&mut self, row: Row, token: u64, numbers: &[f64]) -> Result<(), Fault>;
}

/// What an engine could not do.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Fault {
    /// A kernel loaded something that was never written.
    #[error("{row:?}: a kernel loaded the row of token {token}, which is not a number")]
    NotANumber {
        /// The row.
        row: Row,
        /// Position in the sequence.
        token: u64,
    },
    /// A row that is not kept where it is used.
    #[error("{row:?}: the row of token {token} has no place")]
    NoPlace {
        /// The row.
        row: Row,
        /// Position in the sequence.
        token: u64,
    },
    /// A state is read at another position than its own.
    #[error("{row:?}: a state that has seen {seen} tokens is read at position {position}")]
    State {
        /// The row.
        row: Row,
        /// Tokens that it has seen.
        seen: u64,
        /// Position that reads it.
        position: u64,
    },
    /// The pool of a rank is empty.
    #[error("rank {rank} has no free block")]
    Full {
        /// The rank.
        rank: usize,
    },
    /// A copy beyond the memory of a rank.
    #[error("a copy of {bytes} bytes lies outside region {region}")]
    Copy {
        /// Index of the region.
        region: u32,
        /// Bytes of the range.
        bytes: u64,
    },
    /// A copy names a block that the request does not have.
    #[error("a copy names block {block}, which is not the request's")]
    Stranger {
        /// Block id.
        block: u32,
    },
}

/// All rows of all tokens in plain lists: no ranks, no blocks, nothing ever moved.
#[derive(Clone, Debug, Default)]
pub struct Plain {
    rows: BTreeMap<Row, Vec<Vec<f64>>>,
}

impl Plain {
    /// The rows of a unit, token by token.
    pub(super) fn row(&self, row: Row, token: u64) -> Result<&[f64], Fault> {
        let found = self.rows.get(&row).and_then(|rows| rows.get(index(token)));
        found.map(Vec::as_slice).ok_or(Fault::NoPlace { row, token })
    }
}

impl Cache for Plain {
    fn read(&self, row: Row, _: u32, tokens: Range<u64>) -> Result<Vec<f64>, Fault> {
        let mut numbers = Vec::new();
        for token in tokens {
            numbers.extend_from_slice(self.row(row, token)?);
        }
        Ok(numbers)
    }

    fn write(&mut self, row: Row, token: u64, numbers: &[f64]) -> Result<(), Fault> {
        let rows = self.rows.entry(row).or_default();
        if rows.len() as u64 != token {
            return Err(Fault::NoPlace { row, token });
        }
        rows.push(numbers.to_vec());
        Ok(())
    }
}
