//! Where an engine that allocates like vLLM puts each layer.

use strided::Region;

use crate::{
    BlockTable, CacheLayout, GroupLayout, Grouping, Kind, Layer, Model, Part, PlacedLayer,
};

/// How keys and values share the memory of a slot. Heads lie outside tokens in both.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum PageOrder {
    /// One region a slot; key and value of a token side by side (vLLM's `LBHNC`).
    Joint,
    /// Two regions a slot, one of keys and one of values.
    Apart,
}

impl CacheLayout {
    /// The layout of one rank that keeps all heads, with `block_count` blocks in its pool.
    #[must_use]
    pub fn new(model: &Model, grouping: &Grouping, order: PageOrder, block_count: u32) -> Self {
        let region = |block_stride| Region { block_stride, block_count };
        let mut layout = Self { regions: Vec::new(), groups: Vec::new(), layers: Vec::new() };
        let mut slots = Vec::new();
        for (slot, &page) in grouping.slot_bytes.iter().enumerate() {
            let keys = key_page(model, grouping, slot, page, order);
            slots.push(u32::try_from(layout.regions.len()).unwrap_or(u32::MAX));
            layout.regions.push(region(keys));
            if keys < page {
                layout.regions.push(region(page - keys));
            }
        }
        for (index, group) in (0u32..).zip(&grouping.groups) {
            layout.groups.push(GroupLayout { block_size: group.block_size });
            for (&slot, &layer) in slots.iter().zip(&group.layers) {
                let layer = &model.layers[layer];
                layout.layers.push(place(layer, index, group.block_size, slot, order));
            }
        }
        layout
    }
}

/// Bytes of a slot's page that belong to keys; all of it when values lie between them.
fn key_page(model: &Model, grouping: &Grouping, slot: usize, page: u64, order: PageOrder) -> u64 {
    if order == PageOrder::Joint {
        return page;
    }
    let keys = |group: &crate::Group| {
        let layer = &model.layers[*group.layers.get(slot)?];
        let token = u64::from(layer.heads).saturating_mul(u64::from(layer.key_bytes));
        Some(token.saturating_mul(u64::from(group.block_size)))
    };
    grouping.groups.iter().filter_map(keys).max().unwrap_or(page)
}

fn place(layer: &Layer, group: u32, block_size: u32, slot: u32, order: PageOrder) -> PlacedLayer {
    let part = |region: u32, offset: u64, token_stride: u64, bytes: u32| Part {
        region,
        offset,
        head_stride: u64::from(block_size).saturating_mul(token_stride),
        token_stride,
        bytes,
    };
    let (key_bytes, value_bytes) = (layer.key_bytes, layer.value_bytes);
    let (key, value) = (u64::from(key_bytes), u64::from(value_bytes));
    let (key, value) = match order {
        _ if value == 0 => (part(slot, 0, key, key_bytes), None),
        PageOrder::Joint => {
            let token = key + value;
            (part(slot, 0, token, key_bytes), Some(part(slot, key, token, value_bytes)))
        }
        PageOrder::Apart => {
            (part(slot, 0, key, key_bytes), Some(part(slot + 1, 0, value, value_bytes)))
        }
    };
    PlacedLayer {
        name: layer.name.clone(),
        kind: layer.kind,
        group,
        heads: 0..layer.heads,
        key,
        value,
    }
}

/// The blocks, by index in the sequence, that an engine keeps of a prompt of `tokens` so that
/// it, or a peer, can compute from `resume_at` on.
#[must_use]
pub fn kept_blocks(
    kind: Kind,
    block_size: u32,
    resume_at: u64,
    tokens: u64,
) -> std::ops::Range<u64> {
    let block_size = u64::from(block_size.max(1));
    let start = kind.visible_before(resume_at).start / block_size;
    start..tokens.div_ceil(block_size).max(start)
}

impl BlockTable {
    /// The table of blocks `first..`, counted in blocks of `block_size` tokens.
    #[must_use]
    pub fn from_block(first: u64, block_size: u32, ids: impl Into<std::sync::Arc<[u32]>>) -> Self {
        Self { first_token: first.saturating_mul(u64::from(block_size)), ids: ids.into() }
    }
}
