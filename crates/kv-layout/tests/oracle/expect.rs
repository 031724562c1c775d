//! What must, may and must not happen to each token of a layer on one rank.

use kv_layout::{CacheLayout, PlacedLayer};

use super::judge::World;
use super::mask;
use super::memory::{WRITTEN, ZEROED};

/// Of one layer of one target rank.
pub struct Expected {
    /// Tokens that a query sees and that are not there.
    needed: Vec<bool>,
    /// Tokens for each block, on both sides.
    blocks: (u64, u64),
    /// First token from which what is not written is zeroed.
    zero_from: u64,
}

impl Expected {
    pub fn of(world: &World<'_>, rank: usize, layer: &PlacedLayer) -> Self {
        let resume_at = world.span.resume_at;
        let hit = world.hits[rank].get(layer.group as usize).copied().unwrap_or(0);
        if layer.kind.is_recurrent() {
            let needed = vec![resume_at > 0 && hit != resume_at];
            return Self { needed, blocks: (1, 1), zero_from: u64::MAX };
        }
        let size = |layout: &CacheLayout, layer: &PlacedLayer| {
            u64::from(layout.groups[layer.group as usize].block_size)
        };
        let mut sources = world.sources.iter();
        let from = sources.find_map(|source| {
            let had = source.layout.layers.iter().find(|had| had.name == layer.name)?;
            Some(size(source.layout, had))
        });
        let to = size(world.targets[rank].layout, layer);
        let mut needed = mask::visible(layer.kind, resume_at);
        for seen in needed.iter_mut().take(hit as usize) {
            *seen = false;
        }
        let zero_from = (mask::first_visible(layer.kind, resume_at) / to * to).max(hit);
        Self { needed, blocks: (from.unwrap(), to), zero_from }
    }

    /// Whether a byte of `token` may have this mark.
    pub fn judge(&self, token: u64, mark: u8) -> Result<(), &'static str> {
        let written = mark == WRITTEN;
        if self.needs(token) && !written {
            return Err("needed and not written");
        }
        if written && !self.beside(token) {
            return Err("written without need");
        }
        match (token >= self.zero_from && !written, mark == ZEROED) {
            (true, false) => Err("left stale: neither written nor zeroed"),
            (false, true) => Err("zeroed without need"),
            _ => Ok(()),
        }
    }

    /// Whether a query sees the token and it is not there.
    pub fn needs(&self, token: u64) -> bool {
        self.needed.get(token as usize).copied().unwrap_or(false)
    }

    /// Whether a needed token lies in the same block of both sides.
    fn beside(&self, token: u64) -> bool {
        let (from, to) = self.blocks;
        let start = (token / from * from).max(token / to * to);
        let end = (token / from * from + from).min(token / to * to + to);
        (start..end).any(|other| self.needs(other))
    }

    /// At most so many different ways tokens can share a block, or kernel block, of both sides.
    pub fn cuts(
        from: &CacheLayout,
        had: &PlacedLayer,
        to: &CacheLayout,
        wanted: &PlacedLayer,
    ) -> u64 {
        if had.kind.is_recurrent() {
            return 1;
        }
        let size = |layout: &CacheLayout, layer: &PlacedLayer| {
            let block = u64::from(layout.groups[layer.group as usize].block_size);
            let tiles = layer.parts.iter().filter_map(|part| part.tile);
            (block, tiles.map(|tile| u64::from(tile.tokens)).min().unwrap_or(block))
        };
        let ((a, tile_a), (b, tile_b)) = (size(from, had), size(to, wanted));
        let period = (1..=a).map(|times| times * b).find(|tokens| tokens % a == 0).unwrap();
        period / tile_a + period / tile_b
    }
}
