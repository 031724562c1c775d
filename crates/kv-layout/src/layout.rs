use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use strided::Region;

use crate::Kind;

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
    /// Tokens per block.
    pub block_size: u32,
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
    /// The KV heads that this rank keeps, as indices into all heads of the model.
    pub heads: Range<u32>,
    /// The keys, or the latent of MLA.
    pub key: Part,
    /// The values; `None` where the key part holds all.
    pub value: Option<Part>,
}

/// Where the keys or the values of a layer lie inside each block: head `h` (counted from this
/// rank's first) of token `t` (counted from the block's first) is at
/// `offset + h × head_stride + t × token_stride`, `bytes` long.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Part {
    /// Index of the region.
    pub region: u32,
    /// First byte within the block.
    pub offset: u64,
    /// Bytes from one head to the next.
    pub head_stride: u64,
    /// Bytes from one token to the next.
    pub token_stride: u64,
    /// Bytes of one token of one head.
    pub bytes: u32,
}

/// The blocks of one request in one KV cache group.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct BlockTable {
    /// Position of the first token of `ids[0]`: lists may start late (blocks behind a window
    /// are freed) and never pair by length.
    pub first_token: u64,
    /// Block ids, one for each `block_size` tokens from `first_token` on.
    pub ids: Arc<[u32]>,
}

impl CacheLayout {
    /// The bytes that the layers of `group` use in each block of each region, first to last:
    /// what a peer that may read the group's blocks may see of them.
    #[must_use]
    pub fn group_spans(&self, group: u32) -> BTreeMap<u32, Range<u64>> {
        let mut spans: BTreeMap<u32, Range<u64>> = BTreeMap::new();
        let Some(GroupLayout { block_size }) = self.groups.get(group as usize) else {
            return spans;
        };
        for layer in self.layers.iter().filter(|layer| layer.group == group) {
            let heads = layer.heads.end.saturating_sub(layer.heads.start);
            for part in std::iter::once(&layer.key).chain(&layer.value) {
                let end = part.end(heads, *block_size);
                let span = spans.entry(part.region).or_insert(part.offset..end);
                *span = span.start.min(part.offset)..span.end.max(end);
            }
        }
        spans
    }
}

impl Part {
    /// First byte after the part, within the block.
    fn end(&self, heads: u32, tokens: u32) -> u64 {
        let last =
            |count: u32, stride: u64| u64::from(count.saturating_sub(1)).saturating_mul(stride);
        self.offset
            .saturating_add(last(heads, self.head_stride))
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
