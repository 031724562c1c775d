/// Blocks to move: the same ids in each region, as the layers of one model have.
pub struct Workload {
    pub regions: u32,
    /// Blocks of a region.
    pub pool: u32,
    /// Blocks of a region that are moved.
    pub moved: usize,
    /// Bytes of a block.
    pub block: usize,
}

impl Workload {
    pub fn bytes(&self) -> usize {
        self.regions as usize * self.moved * self.block
    }

    pub fn region_bytes(&self) -> usize {
        self.pool as usize * self.block
    }

    pub fn pool_bytes(&self) -> usize {
        self.regions as usize * self.region_bytes()
    }

    pub fn source_ids(&self) -> Vec<u32> {
        self.ids(1)
    }

    pub fn target_ids(&self) -> Vec<u32> {
        self.ids(2)
    }

    /// Different ids in random order, no two of which follow each other.
    fn ids(&self, seed: u64) -> Vec<u32> {
        let mut ids: Vec<u32> = (0..self.pool).step_by(2).collect();
        let mut state = seed;
        for at in (1..ids.len()).rev() {
            state = scramble(state);
            ids.swap(at, usize::try_from(state % (at as u64 + 1)).unwrap_or(0));
        }
        ids.truncate(self.moved);
        ids
    }

    /// For each moved block, where it starts in the pools of source and target.
    pub fn moves(&self) -> Vec<(usize, usize)> {
        let (sources, targets) = (self.source_ids(), self.target_ids());
        let start =
            |region: u32, id: u32| region as usize * self.region_bytes() + id as usize * self.block;
        let region = |region| {
            let pairs = sources.iter().zip(&targets);
            pairs.map(move |(&source, &target)| (start(region, source), start(region, target)))
        };
        (0..self.regions).flat_map(region).collect()
    }
}

/// The word that a source pool has at `index`.
pub fn word(index: usize) -> u64 {
    scramble(index as u64)
}

fn scramble(seed: u64) -> u64 {
    let word = seed.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let word = (word ^ (word >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let word = (word ^ (word >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    word ^ (word >> 31)
}
