//! What less exact schemes would move of the same prompt, for comparison.

use crate::{Group, Grouping, Kind, Layer, Model, Role};

/// Size of a hand-off.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Moved {
    /// Contiguous ranges when the keys and values of a page lie together: one a page.
    pub ranges_joint: u64,
    /// Contiguous ranges when they lie apart: two a page, except MLA.
    pub ranges_apart: u64,
    /// Bytes over all ranges.
    pub bytes: u64,
}

impl Moved {
    fn add(&mut self, pages: u64, page_bytes: u64, has_values: bool) {
        let parts = if has_values { 2 } else { 1 };
        self.ranges_joint = self.ranges_joint.saturating_add(pages);
        self.ranges_apart = self.ranges_apart.saturating_add(pages.saturating_mul(parts));
        self.bytes = self.bytes.saturating_add(pages.saturating_mul(page_bytes));
    }
}

/// Every layer as full attention: each keeps all blocks of the prompt. A recurrent layer keeps
/// its state.
#[must_use]
pub fn all_full(model: &Model, grouping: &Grouping, tokens: u64) -> Moved {
    let mut moved = Moved::default();
    for group in &grouping.groups {
        let (kind, block_size) = (group.kind, group.block_size);
        let pages = match kind.is_recurrent() {
            true => 1,
            false => tokens.div_ceil(u64::from(block_size.max(1))),
        };
        for &layer in &group.layers {
            let layer = &model.layers[layer];
            let tokens_a_block = u64::from(kind.tokens_a_block(block_size));
            let page_bytes = layer.row_bytes().saturating_mul(tokens_a_block);
            moved.add(pages, page_bytes, has_values(layer));
        }
    }
    moved
}

/// Every region × every group: what vLLM's connector sent when hybrid support landed
/// (vllm-project/vllm#35758). Padding slots are sent like filled ones.
#[must_use]
pub fn flat_hybrid(model: &Model, grouping: &Grouping, tokens: u64) -> Moved {
    let blocks = grouping
        .groups
        .iter()
        .fold(0_u64, |sum, group| sum.saturating_add(flat_blocks(group, tokens)));
    let mut moved = Moved::default();
    for (slot, &page_bytes) in grouping.slot_bytes.iter().enumerate() {
        let layers = grouping.groups.iter().filter_map(|group| group.layers.get(slot));
        let has_values = layers.into_iter().any(|&layer| has_values(&model.layers[layer]));
        moved.add(blocks, page_bytes, has_values);
    }
    moved
}

fn has_values(layer: &Layer) -> bool {
    layer.part(Role::Value).is_some()
}

/// Blocks that the flat scheme sends of one group: of a window the last `⌈window / block⌉ + 1`,
/// and nowhere more than a finished prefill of `tokens` has kept.
fn flat_blocks(group: &Group, tokens: u64) -> u64 {
    let block_size = u64::from(group.block_size.max(1));
    let all = tokens.div_ceil(block_size);
    match group.kind {
        Kind::SlidingWindow { window } => {
            let window = u64::from(window);
            let skipped = tokens.saturating_add(1).saturating_sub(window);
            all.saturating_sub(skipped / block_size).min(window.div_ceil(block_size) + 1)
        }
        Kind::ChunkedLocal { chunk } => {
            let skipped = tokens - tokens % u64::from(chunk.max(1));
            all - skipped / block_size
        }
        Kind::Full | Kind::Mla => all,
        Kind::Recurrent { .. } => 1,
    }
}
