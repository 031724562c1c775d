//! A fake engine: a pool, block tables, and bytes that know where they belong.

use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use kv_layout::{
    BlockTable, CacheLayout, ContextShare, EngineShape, Group, Kept, Kind, Model, PageOrder, Part,
    PlacedLayer, RankShape, ShapeError, kept,
};
use strided::RegionId;
use transport::BoundRegion;
use transport::memory::{HostMemory, MemoryError, PageSize};

use crate::truth::{Place, Row, Tensor};
use crate::{BlockPool, pattern};

/// An engine that keeps the KV cache of one model in host memory. Shared by the tasks of its
/// requests: each touches its own blocks only.
#[derive(Debug)]
pub struct Engine {
    pub(crate) model: Model,
    pub(crate) layout: CacheLayout,
    groups: Vec<Group>,
    /// Of each group, the bytes of a block in which nothing of it lies.
    pub(crate) gaps: Vec<Vec<Gap>>,
    pub(crate) regions: Vec<BoundRegion>,
    memory: Arc<HostMemory>,
    pool: Mutex<BlockPool>,
}

/// Bytes of every block of a region in which nothing of a group lies.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Gap {
    /// First byte in block 0, from the start of the memory.
    pub(crate) at: u64,
    pub(crate) len: u64,
    pub(crate) block_stride: u64,
}

/// Why a fake engine cannot be made.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum EngineError {
    /// The model cannot be spread like this.
    #[error(transparent)]
    Shape(#[from] ShapeError),
    /// The engine has no such rank.
    #[error("rank {rank} of {ranks}")]
    Rank {
        /// The rank.
        rank: usize,
        /// How many there are.
        ranks: usize,
    },
    /// Not even one block fits, beside the null block.
    #[error("a pool of {pool} bytes holds no block of {block} bytes beside the null block")]
    PoolTooSmall {
        /// Bytes of the pool.
        pool: u64,
        /// Bytes of one block over all slots.
        block: u64,
    },
    /// The patterns are made of words.
    #[error("{layer}: {bytes} bytes that lie together are not whole 8-byte words")]
    OddRow {
        /// The layer.
        layer: String,
        /// How many.
        bytes: u64,
    },
    /// The pool's memory cannot be had.
    #[error(transparent)]
    Memory(#[from] MemoryError),
}

impl Engine {
    /// An engine of one rank whose pool takes at most `pool` bytes; block ids come in an order
    /// that `seed` decides. Every byte of the pool is a canary at first.
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
        Self::of_rank(model, EngineShape::single(block_size, order), 0, pool, seed)
    }

    /// One rank of an engine.
    ///
    /// # Errors
    /// [`EngineError`].
    pub fn of_rank(
        model: &Model,
        shape: EngineShape,
        rank: usize,
        pool: u64,
        seed: u64,
    ) -> Result<Self, EngineError> {
        let mut ranks = shape.ranks(model)?;
        if rank >= ranks.len() {
            return Err(EngineError::Rank { rank, ranks: ranks.len() });
        }
        let RankShape { shard, grouping } = ranks.swap_remove(rank);
        let block = grouping.block_bytes();
        let count = u32::try_from(pool.checked_div(block).unwrap_or(0)).unwrap_or(u32::MAX);
        if count < 2 {
            return Err(EngineError::PoolTooSmall { pool, block });
        }
        let layout = CacheLayout::of_shard(&shard, &grouping, shape.placement(count));
        let (regions, bytes) = bind(&layout);
        // A pool is touched all over: with small pages, half of the time goes to the page table.
        let memory = Arc::new(HostMemory::with_pages(bytes, PageSize::Huge)?);
        pattern::write_canary(memory.words(), 0);
        let pool = Mutex::new(BlockPool::new(count, seed));
        let groups = grouping.groups;
        let (model, gaps) = (model.clone(), Vec::new());
        let mut engine = Self { model, layout, groups, gaps, regions, memory, pool };
        engine.check_rows()?;
        engine.gaps =
            (0_u32..).zip(&engine.groups).map(|(group, _)| engine.gaps_of(group)).collect();
        Ok(engine)
    }

    /// The model whose cache it keeps.
    #[must_use]
    pub fn model(&self) -> &Model {
        &self.model
    }

    /// Tokens of a prompt of `tokens` that it computes as prefill engine.
    #[must_use]
    pub fn prefill_tokens(&self, tokens: u64) -> u64 {
        Kind::prefill_tokens(self.model.layers.iter().map(|layer| layer.kind), tokens)
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
        self.kept(tokens, resume_at).map(|kept| kept.blocks).sum()
    }

    fn kept(&self, tokens: u64, resume_at: u64) -> impl Iterator<Item = Kept> + '_ {
        let groups = self.groups.iter().zip(&self.layout.groups);
        groups.map(move |(group, placed)| {
            let all = kept(group.kind, group.block_size, resume_at, tokens);
            all.of_share(group.block_size, share(group.kind, placed.context))
        })
    }

    /// Takes the blocks of a prompt of `tokens` from the pool, one table for each group; `None`
    /// while too few are free.
    pub fn allocate(&self, tokens: u64, resume_at: u64) -> Option<Vec<BlockTable>> {
        let needed = usize::try_from(self.blocks_needed(tokens, resume_at)).ok()?;
        let mut pool = self.pool();
        if needed > pool.free() {
            return None;
        }
        let table = |kept: Kept| {
            let ids = pool.take(usize::try_from(kept.blocks).ok()?)?;
            Some(BlockTable { first_token: kept.first_token, ids })
        };
        self.kept(tokens, resume_at).map(table).collect()
    }

    /// Plays a prefill: writes what a forward pass over tokens `0 .. tokens` of request
    /// `request` leaves in the blocks of `tables`.
    pub fn prefill(&self, request: u64, tokens: u64, tables: &[BlockTable]) {
        for (index, tensor, table) in self.tensors(tables) {
            let state = tensor.layer.kind.is_recurrent();
            for (id, first) in self.own_blocks(table, &tensor) {
                for row in tensor.rows(id, first).filter(|row| state || row.token < tokens) {
                    let seed = pattern::seed(request, index, row.token, row.part);
                    pattern::write(self.words(row.at, row.len), seed, row.from / 8);
                }
            }
        }
    }

    /// The blocks of a table of this rank's with the position of their first token.
    pub(crate) fn own_blocks<'a>(
        &self,
        table: &'a BlockTable,
        tensor: &Tensor<'_>,
    ) -> impl Iterator<Item = (u32, u64)> + use<'a> {
        let ContextShare { ways, rank } = self.share(tensor);
        let (ways, rank, size) = (u64::from(ways), u64::from(rank), u64::from(tensor.block_size));
        let first = table.first_token / size;
        let first = first + (rank + ways - first % ways) % ways;
        let firsts = (first..).step_by(usize::try_from(ways).unwrap_or(usize::MAX));
        table.ids.iter().copied().zip(firsts.map(move |block| block * size))
    }

    /// Whether a token of a layer is of this rank's share of the sequence.
    pub(crate) fn owns(&self, tensor: &Tensor<'_>, token: u64) -> bool {
        let ContextShare { ways, rank } = self.share(tensor);
        token / u64::from(tensor.block_size) % u64::from(ways) == u64::from(rank)
    }

    /// This rank's share of the sequence in a layer.
    fn share(&self, tensor: &Tensor<'_>) -> ContextShare {
        // Groups of states, which are not shared, say nothing of it.
        let mut contexts = self.layout.groups.iter().map(|group| group.context);
        let context = contexts.find(|context| context.ways > 1).unwrap_or_default();
        share(tensor.layer.kind, context)
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
        self.layout.layers.iter().filter_map(move |placed| {
            let (index, tensor) = self.tensor(placed)?;
            Some((index, tensor, tables.get(placed.group as usize)?))
        })
    }

    fn tensor(&self, placed: &PlacedLayer) -> Option<(usize, Tensor<'_>)> {
        let index = self.model.layers.iter().position(|layer| layer.name == placed.name)?;
        let layer = &self.model.layers[index];
        let block_size = match layer.kind.is_recurrent() {
            true => 1,
            false => self.layout.groups[placed.group as usize].block_size,
        };
        let parts = placed.parts.iter().enumerate();
        let places = parts.map(|(index, part)| self.place(index, part)).collect();
        Some((index, Tensor { layer, block_size, places }))
    }

    fn place(&self, index: usize, part: &Part) -> Place {
        let bound = &self.regions[part.region as usize];
        Place {
            part: index,
            bytes: part.bytes,
            first_unit: part.units.start,
            units: part.unit_count(),
            start: bound.offset + part.offset,
            block_stride: bound.region.block_stride,
            unit_stride: part.unit_stride,
            token_stride: part.token_stride,
            tile_tokens: part.tile.map_or(u32::MAX, |tile| tile.tokens),
            tile_stride: part.tile.map_or(0, |tile| tile.stride),
        }
    }

    /// Words of the memory; `at` and `len` are whole words by [`check_rows`](Self::check_rows).
    pub(crate) fn words(&self, at: u64, len: u64) -> &[AtomicU64] {
        let first = word_index(at);
        &self.memory.words()[first..first + word_index(len)]
    }

    /// What the rows of a group leave free of a block.
    fn gaps_of(&self, group: u32) -> Vec<Gap> {
        let layers = self.layout.layers.iter().filter(|layer| layer.group == group);
        let mut rows: Vec<(u64, u64)> = layers
            .filter_map(|layer| self.tensor(layer))
            .flat_map(|(_, tensor)| {
                tensor.rows(0, 0).map(|row| (row.at, row.len)).collect::<Vec<_>>()
            })
            .collect();
        rows.sort_unstable();
        let mut gaps = Vec::new();
        for bound in &self.regions {
            let block_stride = bound.region.block_stride;
            let (mut at, end) = (bound.offset, bound.offset + block_stride);
            let inside = rows.iter().filter(|row| (bound.offset..end).contains(&row.0));
            for &(start, len) in inside.chain(std::iter::once(&(end, 0))) {
                if start > at {
                    gaps.push(Gap { at, len: start - at, block_stride });
                }
                at = at.max(start + len);
            }
        }
        gaps
    }

    /// Every row must begin and end with a word, in memory and in its series.
    fn check_rows(&self) -> Result<(), EngineError> {
        let odd = |row: &Row| [row.at, row.len, row.from].iter().any(|n| !n.is_multiple_of(8));
        for placed in &self.layout.layers {
            let Some((_, tensor)) = self.tensor(placed) else { continue };
            if let Some(row) = tensor.rows(1, 0).find(odd) {
                return Err(EngineError::OddRow { layer: placed.name.clone(), bytes: row.len });
            }
        }
        Ok(())
    }
}

/// A state belongs to the whole sequence, all else to a rank's share of it.
fn share(kind: Kind, context: ContextShare) -> ContextShare {
    if kind.is_recurrent() { ContextShare::default() } else { context }
}

/// Index of the word at byte `at`; memory that is mapped fits the address space.
pub(crate) fn word_index(at: u64) -> usize {
    usize::try_from(at / 8).unwrap_or(usize::MAX)
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
