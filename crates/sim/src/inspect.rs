//! The inspection of a decode engine's pool: every byte is either what it must be, or untouched.

use std::collections::BTreeSet;

use kv_layout::{BlockTable, Layer};

use crate::engine::word_index;
use crate::truth::{Place, Row, Tensor};
use crate::{Engine, pattern};

/// What is wrong with a byte.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Fault {
    /// A needed byte never arrived.
    #[error("{layer}: token {token}, part {part}, byte {byte} never arrived (block {block})")]
    Missing {
        /// The layer.
        layer: String,
        /// Position in the sequence.
        token: u64,
        /// Which part of the layer, keys before values.
        part: usize,
        /// Byte of that part, counted over all units of the model.
        byte: u64,
        /// Block id.
        block: u32,
    },
    /// A needed byte is another one.
    #[error("{layer}: token {token}, part {part}, byte {byte} holds other bytes (block {block})")]
    Wrong {
        /// The layer.
        layer: String,
        /// Position in the sequence.
        token: u64,
        /// Which part of the layer, keys before values.
        part: usize,
        /// Byte of that part, counted over all units of the model.
        byte: u64,
        /// Block id.
        block: u32,
    },
    /// A token that is read has no block at all.
    #[error("{layer}: token {token} is read and has no block")]
    NoBlock {
        /// The layer.
        layer: String,
        /// Position in the sequence.
        token: u64,
    },
    /// Some layer has no block table.
    #[error("{tables} block tables are not those of every layer")]
    NoTable {
        /// How many there are.
        tables: usize,
    },
    /// A hand-off moved other than the pages that are read.
    #[error("{moved} bytes moved, {needed} were needed")]
    Waste {
        /// Bytes that moved.
        moved: u64,
        /// Bytes of the pages that are read.
        needed: u64,
    },
    /// A byte that nobody was to write was written.
    #[error(
        "byte {at} of the pool was written, and nothing was to be written there (block {block} of region {region})"
    )]
    Stray {
        /// Byte of the pool.
        at: u64,
        /// Index of its region.
        region: u32,
        /// Block id.
        block: u32,
    },
}

impl Engine {
    /// Checks every byte of the request's blocks: those that the query at `resume_at` reads are
    /// the source's, those of pages that nobody reads are untouched. The slots beside a needed
    /// token in its own page may hold anything: they are never read.
    ///
    /// # Errors
    /// The first fault.
    pub fn inspect(
        &self,
        request: u64,
        resume_at: u64,
        tables: &[BlockTable],
    ) -> Result<(), Fault> {
        self.inspect_tables(resume_at, tables)?;
        for (index, tensor, table) in self.tensors(tables) {
            for (id, first) in self.own_blocks(table, &tensor) {
                if tensor.needs_block(first, resume_at) {
                    let needed = |row: &Row| tensor.needs(row.token, resume_at);
                    for row in tensor.rows(id, first).filter(needed) {
                        self.inspect_row(request, index, &tensor, &row, id)?;
                    }
                } else {
                    for row in tensor.rows(id, first) {
                        self.inspect_span(row.at, row.len)?;
                    }
                }
            }
        }
        self.inspect_padding(tables)
    }

    /// Checks that the tables have a block for every token that the query at `resume_at` reads,
    /// in every layer: what no table holds, no later step would miss.
    fn inspect_tables(&self, resume_at: u64, tables: &[BlockTable]) -> Result<(), Fault> {
        let mut layers = 0;
        for (_, tensor, table) in self.tensors(tables) {
            layers += 1;
            let held = self.own_blocks(table, &tensor);
            let held: BTreeSet<u64> = held.map(|(_, first)| first).collect();
            let state = tensor.layer.kind.is_recurrent();
            let read = |&token: &u64| self.owns(&tensor, token) && tensor.needs(token, resume_at);
            for token in (0..=resume_at).filter(read) {
                let first =
                    if state { token } else { token - token % u64::from(tensor.block_size) };
                if !held.contains(&first) {
                    return Err(Fault::NoBlock { layer: tensor.layer.name.clone(), token });
                }
            }
        }
        match self.layout.layers.len() == layers {
            true => Ok(()),
            false => Err(Fault::NoTable { tables: tables.len() }),
        }
    }

    /// Checks that a hand-off moved the pages that hold something which the query at
    /// `resume_at` reads, and no more: what moves in vain lands in blocks where it does no harm,
    /// so only the counts can tell.
    ///
    /// # Errors
    /// [`Fault::Waste`].
    pub fn inspect_moved(
        &self,
        moved: u64,
        resume_at: u64,
        tables: &[BlockTable],
    ) -> Result<(), Fault> {
        let needed = self.page_bytes(resume_at, tables);
        if moved == needed { Ok(()) } else { Err(Fault::Waste { moved, needed }) }
    }

    /// Checks that a hand-off between blocks of any two sizes moved what the query at
    /// `resume_at` reads and no more than goes with it: all tokens that lie with a needed one in
    /// one block here and in one of the source, whose blocks have `source_block` tokens of a
    /// layer. Between equal blocks these are whole pages.
    ///
    /// # Errors
    /// [`Fault::Waste`].
    pub fn inspect_pieces(
        &self,
        moved: u64,
        resume_at: u64,
        tables: &[BlockTable],
        source_block: impl Fn(&Layer) -> u32,
    ) -> Result<(), Fault> {
        let bytes = |(_, tensor, _): (usize, Tensor<'_>, &BlockTable)| -> u64 {
            let row = |place: &Place| u64::from(place.bytes) * u64::from(place.units);
            let row: u64 = tensor.places.iter().map(row).sum();
            row * self.piece_tokens(&tensor, resume_at, source_block(tensor.layer))
        };
        let needed = self.tensors(tables).map(bytes).sum();
        if moved == needed { Ok(()) } else { Err(Fault::Waste { moved, needed }) }
    }

    /// Tokens of the pieces, each of which lies in one block here and in one of `source_block`
    /// tokens, that hold something which the query at `resume_at` reads; of a state 1 or 0.
    fn piece_tokens(&self, tensor: &Tensor<'_>, resume_at: u64, source_block: u32) -> u64 {
        if tensor.layer.kind.is_recurrent() {
            return u64::from(tensor.needs(resume_at, resume_at));
        }
        let sizes = [tensor.block_size, source_block].map(|size| u64::from(size.max(1)));
        let read = |&token: &u64| self.owns(tensor, token) && tensor.needs(token, resume_at);
        let (mut tokens, mut end) = (0, 0);
        for token in (0..resume_at).filter(read) {
            if token >= end {
                let [start, other] = sizes.map(|size| token - token % size);
                let [next, sooner] = sizes.map(|size| token - token % size + size);
                end = next.min(sooner);
                tokens += end - start.max(other);
            }
        }
        tokens
    }

    fn page_bytes(&self, resume_at: u64, tables: &[BlockTable]) -> u64 {
        let pages = |(_, tensor, table): (usize, Tensor<'_>, &BlockTable)| -> u64 {
            self.own_blocks(table, &tensor)
                .filter(|&(_, first)| tensor.needs_block(first, resume_at))
                .flat_map(|(id, first)| {
                    tensor.rows(id, first).map(|row| row.len).collect::<Vec<_>>()
                })
                .sum()
        };
        self.tensors(tables).map(pages).sum()
    }

    /// Checks that nothing was ever written to these blocks, which are about to be used.
    ///
    /// # Errors
    /// [`Fault::Stray`].
    pub fn inspect_unused(&self, tables: &[BlockTable]) -> Result<(), Fault> {
        let ids = tables.iter().flat_map(|table| table.ids.iter().copied());
        for id in ids {
            for bound in &self.regions {
                let at = bound.offset + u64::from(id) * bound.region.block_stride;
                self.inspect_span(at, bound.region.block_stride)?;
            }
        }
        Ok(())
    }

    /// Checks that the whole pool is untouched.
    ///
    /// # Errors
    /// [`Fault::Stray`].
    pub fn inspect_pool(&self) -> Result<(), Fault> {
        match pattern::canary_mismatch(self.memory().words(), 0) {
            Some(word) => Err(self.stray(word as u64 * 8)),
            None => Ok(()),
        }
    }

    /// Paints the request's blocks as untouched and gives them back.
    pub fn retire(&self, tables: &[BlockTable]) {
        for id in tables.iter().flat_map(|table| table.ids.iter().copied()) {
            for bound in &self.regions {
                let at = bound.offset + u64::from(id) * bound.region.block_stride;
                let first = word_index(at);
                let count = word_index(bound.region.block_stride);
                pattern::write_canary(&self.memory().words()[first..first + count], first);
            }
        }
        self.free(tables);
    }

    fn inspect_row(
        &self,
        request: u64,
        index: usize,
        tensor: &Tensor<'_>,
        row: &Row,
        block: u32,
    ) -> Result<(), Fault> {
        let words = self.words(row.at, row.len);
        let seed = pattern::seed(request, index, row.token, row.part);
        let Some(word) = pattern::mismatch(words, seed, row.from / 8) else {
            return Ok(());
        };
        let (layer, token, part) = (tensor.layer.name.clone(), row.token, row.part);
        let byte = row.from + word as u64 * 8;
        let first = word_index(row.at) + word;
        let untouched = pattern::canary_mismatch(&words[word..=word], first).is_none();
        Err(if untouched {
            Fault::Missing { layer, token, part, byte, block }
        } else {
            Fault::Wrong { layer, token, part, byte, block }
        })
    }

    /// Bytes of the blocks in which nothing of their group lies: slots that the group does not
    /// fill, padding behind states.
    fn inspect_padding(&self, tables: &[BlockTable]) -> Result<(), Fault> {
        for (gaps, table) in self.gaps.iter().zip(tables) {
            for gap in gaps {
                for &id in &table.ids[..] {
                    self.inspect_span(gap.at + u64::from(id) * gap.block_stride, gap.len)?;
                }
            }
        }
        Ok(())
    }

    fn inspect_span(&self, at: u64, len: u64) -> Result<(), Fault> {
        let first = word_index(at);
        let words = &self.memory().words()[first..first + word_index(len)];
        match pattern::canary_mismatch(words, first) {
            Some(word) => Err(self.stray(at + word as u64 * 8)),
            None => Ok(()),
        }
    }

    fn stray(&self, at: u64) -> Fault {
        let bound = self.regions.iter().rfind(|bound| bound.offset <= at);
        let (region, block) = bound.map_or((0, 0), |bound| {
            let block = (at - bound.offset) / bound.region.block_stride.max(1);
            (bound.id.0, u32::try_from(block).unwrap_or(u32::MAX))
        });
        Fault::Stray { at, region, block }
    }
}
