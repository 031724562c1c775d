//! The inspection of a decode engine's pool: every byte is either what it must be, or untouched.

use kv_layout::BlockTable;

use crate::engine::{blocks_of, word_index};
use crate::truth::{Row, Tensor};
use crate::{Engine, pattern};

/// What is wrong with a byte.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Fault {
    /// A needed byte never arrived.
    #[error("{layer}: token {token}, head {head}, byte {byte} never arrived (block {block})")]
    Missing {
        /// The layer.
        layer: String,
        /// Position in the sequence.
        token: u64,
        /// Head of the model.
        head: u32,
        /// Byte of the token's key and value.
        byte: u32,
        /// Block id.
        block: u32,
    },
    /// A needed byte is another one.
    #[error("{layer}: token {token}, head {head}, byte {byte} holds other bytes (block {block})")]
    Wrong {
        /// The layer.
        layer: String,
        /// Position in the sequence.
        token: u64,
        /// Head of the model.
        head: u32,
        /// Byte of the token's key and value.
        byte: u32,
        /// Block id.
        block: u32,
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
        for (index, tensor, table) in self.tensors(tables) {
            for (id, first) in blocks_of(table, tensor.block_size) {
                if tensor.needs_block(first, resume_at) {
                    let needed = |row: &Row| tensor.needs(row.token, resume_at);
                    for row in tensor.rows(id, first).filter(needed) {
                        self.inspect_row(request, index, &tensor, &row, id)?;
                    }
                } else {
                    for row in tensor.rows(id, first) {
                        self.inspect_canary(row.at, row.len)?;
                    }
                }
            }
        }
        self.inspect_padding(tables)
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
        let seed = pattern::seed(request, index, row.token, row.head);
        let Some(word) = pattern::mismatch(words, seed, u64::from(row.from) / 8) else {
            return Ok(());
        };
        let (layer, token, head) = (tensor.layer.name.clone(), row.token, row.head);
        let byte = row.from + u32::try_from(word * 8).unwrap_or(u32::MAX);
        let first = word_index(row.at) + word;
        let untouched = pattern::canary_mismatch(&words[word..=word], first).is_none();
        Err(if untouched {
            Fault::Missing { layer, token, head, byte, block }
        } else {
            Fault::Wrong { layer, token, head, byte, block }
        })
    }

    /// Slots of a group's blocks in which no layer of the group lies.
    fn inspect_padding(&self, tables: &[BlockTable]) -> Result<(), Fault> {
        for (group, table) in (0_u32..).zip(tables) {
            let used = |region: u32| {
                self.layout.layers.iter().filter(|layer| layer.group == group).any(|layer| {
                    layer.key.region == region || layer.value.is_some_and(|v| v.region == region)
                })
            };
            for bound in self.regions.iter().filter(|bound| !used(bound.id.0)) {
                for &id in &table.ids[..] {
                    let at = bound.offset + u64::from(id) * bound.region.block_stride;
                    self.inspect_span(at, bound.region.block_stride)?;
                }
            }
        }
        Ok(())
    }

    fn inspect_canary(&self, at: u64, len: u32) -> Result<(), Fault> {
        self.inspect_span(at, u64::from(len))
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
