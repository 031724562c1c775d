//! What is moved: blocks of regions, with ids at random.

use std::str::FromStr;

use bytesize::ByteSize;
use rand::seq::SliceRandom;
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use serde::{Deserialize, Serialize};

/// Bytes of the smallest block, and the grain of all: what memory is mapped in.
const GRAIN: u64 = 4 << 10;

/// Far above any block of any engine.
const MAX_BLOCK: u64 = 64 << 20;

/// Blocks of a workload, and of each of its pools.
const MAX_BLOCKS: u64 = 1 << 22;

/// What one repair of an order may try: a draw fails once in as many as there are blocks.
const TRIES: usize = 1 << 20;

/// Blocks to move: the same ids in each region, as the layers of one model have.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Workload {
    pub(super) name: String,
    pub(super) regions: u32,
    /// Blocks of a region.
    pub(super) pool: u32,
    /// Blocks of a region that are moved.
    pub(super) moved: u32,
    /// Bytes of a block.
    pub(super) block: u32,
}

/// Where a block starts, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Move {
    pub(super) source: usize,
    pub(super) target: usize,
}

/// The ids of one side, in the order of the moves.
#[derive(Clone, Copy)]
pub(super) enum Side {
    Source,
    Target,
}

/// The named ones: regions, pool, moved, bytes of a block.
const NAMED: [(&str, [u32; 4]); 4] = [
    ("W1", [10, 400, 165, 128 << 10]),
    ("W2", [68, 80, 63, 128 << 10]),
    ("W3", [64, 1024, 128, 4 << 10]),
    ("W4", [1, 64, 1, 4 << 10]),
];

/// Each block size with each count, up to [`SWEEP_BYTES`].
const SWEEP_BLOCKS: [u32; 5] = [4 << 10, 16 << 10, 64 << 10, 256 << 10, 1 << 20];
const SWEEP_COUNTS: [u32; 3] = [16, 128, 1024];
const SWEEP_BYTES: u64 = 256 << 20;

/// One workload, or several under one name.
#[derive(Clone, Debug)]
pub(crate) struct Workloads(pub(super) Vec<Workload>);

impl FromStr for Workloads {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if text.eq_ignore_ascii_case("sweep") {
            return Ok(Self(sweep()));
        }
        let named = NAMED.iter().find(|(name, _)| text.eq_ignore_ascii_case(name));
        if let Some(&(name, [regions, pool, moved, block])) = named {
            let name = name.to_owned();
            return Ok(Self(vec![Workload { name, regions, pool, moved, block }]));
        }
        let unknown = || "must be W1, W2, W3, W4, sweep or BLOCKxCOUNT, such as 64KiBx128";
        let (block, count) = text.split_once('x').ok_or_else(unknown)?;
        let block = block.parse::<ByteSize>().map_err(|_| unknown())?.as_u64();
        let count = count.parse::<u32>().map_err(|_| unknown())?;
        let block = u32::try_from(block).map_err(|_| "blocks of 64 MiB are the largest")?;
        let workload = Workload::flat(block, count).ok_or("so many blocks cannot be counted")?;
        workload.check()?;
        Ok(Self(vec![workload]))
    }
}

fn sweep() -> Vec<Workload> {
    let each = SWEEP_BLOCKS.iter().flat_map(|&block| {
        SWEEP_COUNTS.iter().filter_map(move |&count| Workload::flat(block, count))
    });
    each.filter(|workload| workload.bytes() <= SWEEP_BYTES).collect()
}

impl Workload {
    /// So many blocks of one region, every second one of its pool.
    fn flat(block: u32, moved: u32) -> Option<Self> {
        let name = format!("{}x{moved}", size(block, ""));
        let pool = moved.checked_mul(2)?;
        Some(Self { name, regions: 1, pool, moved, block })
    }

    /// Whether it can be asked for at all; what comes from a peer is checked like the rest.
    pub(super) fn check(&self) -> Result<(), String> {
        let Self { regions, pool, moved, block, .. } = self;
        let block = u64::from(*block);
        let blocks = u64::from(*regions) * u64::from(*pool);
        if !(GRAIN..=MAX_BLOCK).contains(&block) || !block.is_multiple_of(GRAIN) {
            return Err("a block has a multiple of 4 KiB, up to 64 MiB".to_owned());
        }
        if *moved == 0 || *regions == 0 {
            return Err("there must be at least one block".to_owned());
        }
        if moved > pool || blocks > MAX_BLOCKS {
            return Err(format!("a pool has all blocks that are moved, and {MAX_BLOCKS} at most"));
        }
        Ok(())
    }

    /// A single block, whose time says nothing but how long an answer takes.
    pub(super) fn is_latency(&self) -> bool {
        self.regions == 1 && self.moved == 1
    }

    /// Bytes that are moved.
    pub(super) fn bytes(&self) -> u64 {
        u64::from(self.regions) * u64::from(self.moved) * u64::from(self.block)
    }

    pub(super) fn region_bytes(&self) -> u64 {
        u64::from(self.pool) * u64::from(self.block)
    }

    pub(super) fn pool_bytes(&self) -> u64 {
        u64::from(self.regions) * self.region_bytes()
    }

    /// What it is, in words.
    pub(super) fn words(&self) -> String {
        let Self { regions, pool, moved, block, .. } = self;
        let each = if *regions == 1 { "region" } else { "regions" };
        let blocks = if *pool == 1 { "block" } else { "blocks" };
        let size = size(*block, " ");
        format!("{moved} of {pool} {blocks} of {size} in {regions} {each}")
    }

    /// Different ids in random order, no two of which follow each other: nothing merges.
    pub(super) fn ids(&self, side: Side, seed: u64) -> Vec<u32> {
        let mut random = ChaCha8Rng::seed_from_u64(seed.wrapping_mul(2).wrapping_add(side as u64));
        let apart = u64::from(self.moved) * 2 <= u64::from(self.pool);
        let step = if apart { 2 } else { 1 };
        let mut ids: Vec<u32> = (0..self.pool).step_by(step).collect();
        ids.shuffle(&mut random);
        ids.truncate(self.moved as usize);
        for _ in 0..TRIES {
            let next = ids.windows(2).position(|pair| pair[0].abs_diff(pair[1]) == 1);
            let Some(at) = next else { break };
            let other = random.random_range(0..ids.len());
            ids.swap(at, other);
        }
        ids
    }

    /// All moves, region by region.
    pub(super) fn moves(&self, seed: u64) -> Vec<Move> {
        let [sources, targets] = [Side::Source, Side::Target].map(|side| self.ids(side, seed));
        let (region, block) = (self.region_bytes(), u64::from(self.block));
        let start = |index: u32, id: u32| {
            let byte = u64::from(index) * region + u64::from(id) * block;
            usize::try_from(byte).unwrap_or(usize::MAX)
        };
        let of = |index: u32| {
            let pairs = sources.iter().zip(&targets);
            let place = move |(&source, &target): (&u32, &u32)| Move {
                source: start(index, source),
                target: start(index, target),
            };
            pairs.map(place).collect::<Vec<_>>()
        };
        (0..self.regions).flat_map(of).collect()
    }
}

/// In whole units, of which a block has as many.
fn size(block: u32, between: &str) -> String {
    match (block >> 20, block % (1 << 20)) {
        (mebibytes, 0) => format!("{mebibytes}{between}MiB"),
        _ => format!("{}{between}KiB", block >> 10),
    }
}

#[cfg(test)]
mod tests;
