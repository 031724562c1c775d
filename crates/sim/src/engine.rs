//! A fake engine: a pool, block tables, and bytes that know where they belong.

use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use kv_layout::{
    BlockTable, CacheLayout, GroupError, Grouping, Layer, Model, PageOrder, Part, PlacedLayer,
    kept_blocks,
};
use strided::RegionId;
use transport::BoundRegion;
use transport::memory::{HostMemory, MemoryError, PageSize};

use crate::truth::{Place, Tensor};
use crate::{BlockPool, pattern};

/// An engine that keeps the KV cache of one model in host memory. Shared by the tasks of its
/// requests: each touches its own blocks only.
#[derive(Debug)]
pub struct Engine {
    pub(crate) model: Model,
    pub(crate) layout: CacheLayout,
    grouping: Grouping,
    pub(crate) regions: Vec<BoundRegion>,
    memory: Arc<HostMemory>,
    pool: Mutex<BlockPool>,
}

/// Why a fake engine cannot be made.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum EngineError {
    /// The model's layers cannot be grouped.
    #[error(transparent)]
    Group(#[from] GroupError),
    /// Not even one block fits, beside the null block.
    #[error("a pool of {pool} bytes holds no block of {block} bytes beside the null block")]
    PoolTooSmall {
        /// Bytes of the pool.
        pool: u64,
        /// Bytes of one block over all slots.
        block: u64,
    },
    /// The patterns are made of words.
    #[error("{layer}: keys of {key} and values of {value} bytes are not whole 8-byte words")]
    OddRow {
        /// The layer.
        layer: String,
        /// Bytes of a key.
        key: u32,
        /// Bytes of a value.
        value: u32,
    },
    /// The pool's memory cannot be had.
    #[error(transparent)]
    Memory(#[from] MemoryError),
}

impl Engine {
    /// An engine whose pool takes at most `pool` bytes; block ids come in an order that `seed`
    /// decides. Every byte of the pool is a canary at first.
    ///
    /// # Errors
    /// [`EngineError`].
    pub fn new(
        model: &Model,
        block_size: u32,
        order: PageOrder,
        pool: u64,
        seed: u64,
    ) -> Result<Self, EngineError> {
        let grouping = Grouping::new(model, block_size)?;
        check_rows(&model.layers)?;
        let block = grouping.block_bytes();
        let count = u32::try_from(pool.checked_div(block).unwrap_or(0)).unwrap_or(u32::MAX);
        if count < 2 {
            return Err(EngineError::PoolTooSmall { pool, block });
        }
        let layout = CacheLayout::new(model, &grouping, order, count);
        let (regions, bytes) = bind(&layout);
        // A pool is touched all over: with small pages, half of the time goes to the page table.
        let memory = Arc::new(HostMemory::with_pages(bytes, PageSize::Huge)?);
        pattern::write_canary(memory.words(), 0);
        let pool = Mutex::new(BlockPool::new(count, seed));
        Ok(Self { model: model.clone(), layout, grouping, regions, memory, pool })
    }

    /// The model whose cache it keeps.
    #[must_use]
    pub fn model(&self) -> &Model {
        &self.model
    }

    /// Where it keeps each layer.
    #[must_use]
    pub fn layout(&self) -> &CacheLayout {
        &self.layout
    }

    /// Its memory, for registration.
    #[must_use]
    pub fn memory(&self) -> &Arc<HostMemory> {
        &self.memory
    }

    /// Where the regions lie in its memory.
    #[must_use]
    pub fn regions(&self) -> &[BoundRegion] {
        &self.regions
    }

    /// The blocks that are free now.
    #[must_use]
    pub fn free_blocks(&self) -> usize {
        self.pool().free()
    }

    /// The blocks of an empty pool.
    #[must_use]
    pub fn capacity(&self) -> usize {
        self.pool().capacity()
    }

    /// Blocks that a prompt of `tokens` takes once the engine can compute from `resume_at` on.
    #[must_use]
    pub fn blocks_needed(&self, tokens: u64, resume_at: u64) -> u64 {
        let kept = |group: &kv_layout::Group| {
            let kept = kept_blocks(group.kind, group.block_size, resume_at, tokens);
            kept.end - kept.start
        };
        self.grouping.groups.iter().map(kept).sum()
    }

    /// Takes the blocks of a prompt of `tokens` from the pool, one table for each group; `None`
    /// while too few are free.
    pub fn allocate(&self, tokens: u64, resume_at: u64) -> Option<Vec<BlockTable>> {
        let needed = usize::try_from(self.blocks_needed(tokens, resume_at)).ok()?;
        let mut pool = self.pool();
        if needed > pool.free() {
            return None;
        }
        let table = |group: &kv_layout::Group| {
            let kept = kept_blocks(group.kind, group.block_size, resume_at, tokens);
            let ids = pool.take(usize::try_from(kept.end - kept.start).ok()?)?;
            Some(BlockTable::from_block(kept.start, group.block_size, ids))
        };
        self.grouping.groups.iter().map(table).collect()
    }

    /// Plays a prefill: writes what a forward pass over tokens `0 .. tokens` of request
    /// `request` leaves in the blocks of `tables`.
    pub fn prefill(&self, request: u64, tokens: u64, tables: &[BlockTable]) {
        for (index, tensor, table) in self.tensors(tables) {
            for (id, first) in blocks_of(table, tensor.block_size) {
                for row in tensor.rows(id, first).filter(|row| row.token < tokens) {
                    let seed = pattern::seed(request, index, row.token, row.head);
                    pattern::write(self.words(row.at, row.len), seed, u64::from(row.from) / 8);
                }
            }
        }
    }

    /// Gives the blocks of a request back without a look at them.
    pub fn free(&self, tables: &[BlockTable]) {
        let mut pool = self.pool();
        for table in tables {
            pool.put(&table.ids);
        }
    }

    /// A pool is whole between any two of its calls, whoever panicked.
    fn pool(&self) -> MutexGuard<'_, BlockPool> {
        self.pool.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Each layer with its index in the model, its tensor and its table.
    pub(crate) fn tensors<'a>(
        &'a self,
        tables: &'a [BlockTable],
    ) -> impl Iterator<Item = (usize, Tensor<'a>, &'a BlockTable)> {
        let group_of = move |placed: &PlacedLayer| tables.get(placed.group as usize);
        self.layout.layers.iter().filter_map(move |placed| {
            let index = self.model.layers.iter().position(|layer| layer.name == placed.name)?;
            let tensor = Tensor {
                layer: &self.model.layers[index],
                block_size: self.layout.groups[placed.group as usize].block_size,
                key: self.place(&placed.key),
                value: placed.value.as_ref().map(|part| self.place(part)),
            };
            Some((index, tensor, group_of(placed)?))
        })
    }

    fn place(&self, part: &Part) -> Place {
        let bound = &self.regions[part.region as usize];
        Place {
            start: bound.offset + part.offset,
            block_stride: bound.region.block_stride,
            head_stride: part.head_stride,
            token_stride: part.token_stride,
        }
    }

    /// Words of the memory; `at` and `len` are whole words by [`check_rows`].
    pub(crate) fn words(&self, at: u64, len: u32) -> &[AtomicU64] {
        let first = word_index(at);
        &self.memory.words()[first..first + len as usize / 8]
    }
}

/// Index of the word at byte `at`; memory that is mapped fits the address space.
pub(crate) fn word_index(at: u64) -> usize {
    usize::try_from(at / 8).unwrap_or(usize::MAX)
}

/// The blocks of a table with the position of their first token.
pub(crate) fn blocks_of(table: &BlockTable, block_size: u32) -> impl Iterator<Item = (u32, u64)> {
    let firsts = (table.first_token..).step_by(block_size as usize);
    table.ids.iter().copied().zip(firsts)
}

fn check_rows(layers: &[Layer]) -> Result<(), EngineError> {
    let odd =
        |layer: &&Layer| !layer.key_bytes.is_multiple_of(8) || !layer.value_bytes.is_multiple_of(8);
    match layers.iter().find(odd) {
        Some(layer) => Err(EngineError::OddRow {
            layer: layer.name.clone(),
            key: layer.key_bytes,
            value: layer.value_bytes,
        }),
        None => Ok(()),
    }
}

/// The regions one after the other, and the bytes of all.
fn bind(layout: &CacheLayout) -> (Vec<BoundRegion>, usize) {
    let mut offset = 0;
    let mut regions = Vec::new();
    for (id, region) in (0..).zip(&layout.regions) {
        regions.push(BoundRegion { id: RegionId(id), offset, region: *region });
        offset += region.block_stride * u64::from(region.block_count);
    }
    (regions, usize::try_from(offset).unwrap_or(usize::MAX))
}
