use std::ops::Range;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use strided::Region;

use crate::{Kind, Role};

/// Where an engine keeps the KV cache: its regions, its KV cache groups and the place of each
/// layer in them. O(regions + layers) numbers, whatever the number of blocks; this is what an
/// engine shows a peer in the handshake.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CacheLayout {
    /// The regions; a [`strided::RegionId`] indexes this list.
    #[serde(with = "regions_as_pairs")]
    pub regions: Vec<Region>,
    /// The KV cache groups; [`PlacedLayer::group`] and block tables index this list.
    pub groups: Vec<GroupLayout>,
    /// Every layer that keeps something.
    pub layers: Vec<PlacedLayer>,
}

/// What the layers of one KV cache group have in common.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct GroupLayout {
    /// Tokens per block. For a group of recurrent layers, whose blocks are states, the tokens
    /// between two states that an engine keeps; planning does not use it.
    pub block_size: u32,
    /// Which blocks of a sequence this rank keeps.
    #[serde(default)]
    pub context: ContextShare,
}

/// One rank's share of a sequence under context parallelism: it keeps the blocks whose index in
/// the sequence leaves `rank` when divided by `ways`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct ContextShare {
    /// Ranks that share a sequence.
    pub ways: u32,
    /// This one, below `ways`.
    pub rank: u32,
}

impl Default for ContextShare {
    fn default() -> Self {
        Self { ways: 1, rank: 0 }
    }
}

/// One layer's place.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PlacedLayer {
    /// Name by which the layers of two engines are paired.
    pub name: String,
    /// What a query sees of it.
    pub kind: Kind,
    /// Index of its KV cache group.
    pub group: u32,
    /// Its bytes, in the order in which both engines list them.
    pub parts: Vec<Part>,
    /// How the inside of a page is packed, where only its backend knows: such a page is moved
    /// whole, between equal packings, or not at all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub packing: Option<String>,
}

/// Where some bytes of a layer lie inside each block: those of unit `u` (counted from this
/// rank's first) and token `t` (counted from the block's first) are at
/// `offset + u × unit_stride + t × token_stride`, `bytes` long. A state has one token.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Part {
    /// What they are.
    pub role: Role,
    /// The units (heads, channels, groups of channels) that this rank keeps, counted over the
    /// whole model.
    pub units: Range<u32>,
    /// Bytes of one unit of one token.
    pub bytes: u32,
    /// Index of the region.
    pub region: u32,
    /// First byte within the block.
    pub offset: u64,
    /// Bytes from one unit to the next.
    pub unit_stride: u64,
    /// Bytes from one token to the next.
    pub token_stride: u64,
    /// How the block is cut for the attention kernel; `None` where it is not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tile: Option<Tile>,
}

/// A block made of several kernel blocks: tokens and units are laid out within each, and the
/// kernel blocks follow each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Tile {
    /// Tokens of a kernel block.
    pub tokens: u32,
    /// Bytes from one kernel block to the next.
    pub stride: u64,
}

/// The blocks of one request in one KV cache group.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct BlockTable {
    /// Position of the first token of `ids[0]`: lists may start late (blocks behind a window
    /// are freed) and never pair by length. Of a recurrent group, the number of tokens that
    /// the state has seen.
    pub first_token: u64,
    /// Block ids, one for each block of this rank from there on. Of a recurrent group, the one
    /// state.
    pub ids: Arc<[u32]>,
}

impl CacheLayout {
    /// The bytes that the layers of `group` use in each block of each region, region by region
    /// and first to last: what a peer that may read the group's blocks may see of them. Spans
    /// that touch are one.
    #[must_use]
    pub fn group_spans(&self, group: u32) -> Vec<(u32, Range<u64>)> {
        let Some(GroupLayout { block_size, .. }) = self.groups.get(group as usize) else {
            return Vec::new();
        };
        let layers = self.layers.iter().filter(|layer| layer.group == group);
        let spans = layers.flat_map(|layer| {
            let tokens = layer.kind.tokens_a_block(*block_size);
            layer.parts.iter().map(move |part| (part.region, part.offset, part.end(tokens)))
        });
        let mut spans: Vec<_> = spans.collect();
        spans.sort_unstable();
        let mut merged: Vec<(u32, Range<u64>)> = Vec::new();
        for (region, start, end) in spans {
            match merged.last_mut() {
                Some((last, span)) if *last == region && start <= span.end => {
                    span.end = span.end.max(end);
                }
                _ => merged.push((region, start..end)),
            }
        }
        merged
    }
}

/// A block that one request would have written twice.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("block {block} is in the tables of groups {first} and {second}, whose bytes overlap")]
pub struct Overlap {
    /// The block.
    pub block: u32,
    /// Index of one group.
    pub first: u32,
    /// Index of another, or the same.
    pub second: u32,
}

impl CacheLayout {
    /// Looks whether the tables of one request, one for each group, give any byte two owners:
    /// a block twice in one table, or in two whose groups use the same bytes of a block. Groups
    /// that lie in different bytes may use the same ids.
    ///
    /// # Errors
    /// [`Overlap`], the first by block id.
    pub fn check_distinct(&self, tables: &[BlockTable]) -> Result<(), Overlap> {
        let spans: Vec<_> = (0..).take(tables.len()).map(|group| self.group_spans(group)).collect();
        let meet = |a: u32, b: u32| {
            let (a, b) = (&spans[a as usize], &spans[b as usize]);
            a.iter().any(|(region, a)| {
                let same = b.iter().filter(|(other, _)| other == region);
                same.into_iter().any(|(_, b)| a.start < b.end && b.start < a.end)
            })
        };
        let owned = |(group, table): (u32, &BlockTable)| {
            table.ids.iter().map(move |&block| (block, group)).collect::<Vec<_>>()
        };
        let mut owned: Vec<_> = (0..).zip(tables).flat_map(owned).collect();
        owned.sort_unstable();
        for same in owned.chunk_by(|a, b| a.0 == b.0) {
            for (index, &(block, first)) in same.iter().enumerate() {
                let rest = same[index + 1..].iter().map(|&(_, second)| second);
                if let Some(second) = rest.into_iter().find(|&second| meet(first, second)) {
                    return Err(Overlap { block, first, second });
                }
            }
        }
        Ok(())
    }
}

impl Part {
    /// How many units this rank keeps.
    #[must_use]
    pub fn unit_count(&self) -> u32 {
        self.units.end.saturating_sub(self.units.start)
    }

    /// First byte after the part in a block of `tokens` tokens.
    fn end(&self, tokens: u32) -> u64 {
        let last =
            |count: u32, stride: u64| u64::from(count.saturating_sub(1)).saturating_mul(stride);
        let (tiles, tokens) = match self.tile {
            Some(tile) => (last(tokens.div_ceil(tile.tokens.max(1)), tile.stride), tile.tokens),
            None => (0, tokens),
        };
        self.offset
            .saturating_add(tiles)
            .saturating_add(last(self.unit_count(), self.unit_stride))
            .saturating_add(last(tokens, self.token_stride))
            .saturating_add(u64::from(self.bytes))
    }
}

mod regions_as_pairs {
    use serde::{Deserialize, Deserializer, Serialize, Serializer};
    use strided::Region;

    #[derive(Serialize, Deserialize)]
    struct Plain {
        block_stride: u64,
        block_count: u32,
    }

    pub(super) fn serialize<S: Serializer>(regions: &[Region], to: S) -> Result<S::Ok, S::Error> {
        let plain = |r: &Region| Plain { block_stride: r.block_stride, block_count: r.block_count };
        to.collect_seq(regions.iter().map(plain))
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Vec<Region>, D::Error> {
        let plain = Vec::<Plain>::deserialize(from)?;
        let region = |p: Plain| Region { block_stride: p.block_stride, block_count: p.block_count };
        Ok(plain.into_iter().map(region).collect())
    }
}
