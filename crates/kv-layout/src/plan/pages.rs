//! Which blocks of a pair of groups hold a token that is needed.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

use super::{Holding, PlanError, Side};
use crate::PlacedLayer;

/// Blocks of the two sides, paired by token position.
#[derive(Clone, Debug)]
pub(super) struct Pages {
    /// Tokens per block, on both sides.
    pub(super) block_size: u32,
    pub(super) source: Arc<[u32]>,
    pub(super) target: Arc<[u32]>,
}

/// Pages of each pair of groups, made once and shared by all layers of the pair. The first
/// token is part of the key because layers of one group may see differently far.
pub(super) struct PageLists<'a> {
    source: Holding<'a>,
    target: Holding<'a>,
    resume_at: u64,
    made: BTreeMap<(u32, u32, u64), Option<Pages>>,
}

impl<'a> PageLists<'a> {
    pub(super) fn new(source: Holding<'a>, target: Holding<'a>, resume_at: u64) -> Self {
        Self { source, target, resume_at, made: BTreeMap::new() }
    }

    /// The pages that `wanted` needs of `had`; `None` when it needs no token at all.
    pub(super) fn of(
        &mut self,
        had: &PlacedLayer,
        wanted: &PlacedLayer,
    ) -> Result<Option<Pages>, PlanError> {
        let tokens = wanted.kind.visible_before(self.resume_at);
        let key = (had.group, wanted.group, tokens.start);
        if let Some(pages) = self.made.get(&key) {
            return Ok(pages.clone());
        }
        let pages = self.pair(had, wanted, &tokens)?;
        self.made.insert(key, pages.clone());
        Ok(pages)
    }

    fn pair(
        &self,
        had: &PlacedLayer,
        wanted: &PlacedLayer,
        tokens: &Range<u64>,
    ) -> Result<Option<Pages>, PlanError> {
        let block_size = self.source.block_size(Side::Source, had)?;
        let other = self.target.block_size(Side::Target, wanted)?;
        if block_size != other {
            return Err(PlanError::NotYet {
                layer: wanted.name.clone(),
                field: "block size",
                source_value: block_size.to_string(),
                target_value: other.to_string(),
            });
        }
        if tokens.is_empty() {
            return Ok(None);
        }
        let source = self.source.cut(Side::Source, had.group, block_size, tokens)?;
        let target = self.target.cut(Side::Target, wanted.group, block_size, tokens)?;
        Ok(Some(Pages { block_size, source, target }))
    }
}

impl Holding<'_> {
    /// Tokens per block of a layer's group; never 0.
    fn block_size(&self, side: Side, layer: &PlacedLayer) -> Result<u32, PlanError> {
        match self.layout.groups.get(layer.group as usize) {
            Some(group) if group.block_size > 0 => Ok(group.block_size),
            _ => Err(PlanError::Layout {
                side,
                layer: layer.name.clone(),
                field: "group",
                value: layer.group,
            }),
        }
    }

    /// The ids of the blocks that hold `tokens`.
    fn cut(
        &self,
        side: Side,
        group: u32,
        block_size: u32,
        tokens: &Range<u64>,
    ) -> Result<Arc<[u32]>, PlanError> {
        let table = &self.tables[group as usize];
        let size = u64::from(block_size);
        if !table.first_token.is_multiple_of(size) {
            let first_token = table.first_token;
            return Err(PlanError::Misaligned { side, group, first_token, block_size });
        }
        let first = table.first_token / size;
        let blocks = tokens.start / size..tokens.end.div_ceil(size);
        blocks
            .start
            .checked_sub(first)
            .zip(blocks.end.checked_sub(first))
            .and_then(|(start, end)| Some(usize::try_from(start).ok()?..usize::try_from(end).ok()?))
            .and_then(|indices| table.ids.get(indices))
            .map(Arc::from)
            .ok_or_else(|| PlanError::NotHeld {
                side,
                group,
                wanted_start: tokens.start,
                wanted_end: tokens.end,
                held_start: table.first_token,
                held_end: table
                    .first_token
                    .saturating_add(size.saturating_mul(table.ids.len() as u64)),
            })
    }
}
