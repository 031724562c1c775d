use std::sync::Arc;

use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;

/// A bounded pool that hands out block ids in random order, as a fragmented pool does.
/// Id 0 is the null block and never handed out.
#[derive(Debug)]
pub struct BlockPool {
    free: Vec<u32>,
    capacity: usize,
    random: ChaCha8Rng,
}

impl BlockPool {
    /// A pool of blocks `1 .. block_count`.
    #[must_use]
    pub fn new(block_count: u32, seed: u64) -> Self {
        let free: Vec<u32> = (1..block_count).collect();
        Self { capacity: free.len(), free, random: ChaCha8Rng::seed_from_u64(seed) }
    }

    /// Blocks that can ever be handed out.
    #[must_use]
    pub fn capacity(&self) -> usize {
        self.capacity
    }

    /// Blocks that can be handed out now.
    #[must_use]
    pub fn free(&self) -> usize {
        self.free.len()
    }

    /// Takes `count` blocks, or none if there are fewer.
    pub fn take(&mut self, count: usize) -> Option<Arc<[u32]>> {
        if count > self.free.len() {
            return None;
        }
        let pick = |_| {
            let index = self.random.random_range(0..self.free.len());
            self.free.swap_remove(index)
        };
        Some((0..count).map(pick).collect())
    }

    /// Gives blocks back.
    pub fn put(&mut self, ids: &[u32]) {
        self.free.extend_from_slice(ids);
    }
}
