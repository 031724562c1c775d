//! One side's blocks: which of them hold which tokens.

use std::sync::Arc;

use super::{PlanError, Side};
use crate::{BlockTable, ContextShare, GroupLayout};

/// One side's blocks of one group.
pub(super) struct Blocked<'a> {
    side: Side,
    group: u32,
    /// Tokens per block; never 0.
    pub(super) size: u32,
    pub(super) context: ContextShare,
    table: &'a BlockTable,
}

impl<'a> Blocked<'a> {
    /// The blocks of `group`, for the sake of a layer called `name`.
    pub(super) fn new(
        side: Side,
        groups: &[GroupLayout],
        tables: &'a [BlockTable],
        group: u32,
        name: &str,
    ) -> Result<Self, PlanError> {
        let refuse = |field, value| {
            let layer = name.to_owned();
            Err(PlanError::Layout { side, layer, field, value })
        };
        let found = groups.get(group as usize).zip(tables.get(group as usize));
        let Some((&GroupLayout { block_size: size @ 1.., context }, table)) = found else {
            return refuse("group", group);
        };
        if context.rank >= context.ways {
            return refuse("context rank", context.rank);
        }
        let first_token = table.first_token;
        if !first_token.is_multiple_of(u64::from(size)) {
            return Err(PlanError::Misaligned { side, group, first_token, block_size: size });
        }
        Ok(Self { side, group, size, context, table })
    }

    /// The ids of `count` blocks: the one that holds token `at`, and one every `period` tokens
    /// after it, which is a multiple of the tokens from one block of this rank's to the next.
    pub(super) fn ids(&self, at: u64, period: u64, count: u64) -> Result<Arc<[u32]>, PlanError> {
        let index = at / u64::from(self.size);
        let step = period / u64::from(self.size) / self.ways();
        let range = || {
            let first = index.checked_sub(self.first())? / self.ways();
            let last = first.checked_add(count.checked_sub(1)?.checked_mul(step)?)?;
            Some(usize::try_from(first).ok()?..=usize::try_from(last).ok()?)
        };
        let ids = range().and_then(|range| self.table.ids.get(range));
        let ids = ids.ok_or_else(|| self.not_held(index))?;
        Ok(match usize::try_from(step) {
            // The list of the table serves as it is.
            Ok(1) if ids.len() == self.table.ids.len() => Arc::clone(&self.table.ids),
            Ok(step @ 2..) => ids.iter().copied().step_by(step).collect(),
            _ => Arc::from(ids),
        })
    }

    pub(super) fn ways(&self) -> u64 {
        self.context.ways.into()
    }

    /// Index of the first block from `index` on that is this rank's.
    fn next(&self, index: u64) -> u64 {
        let (ways, rank) = (self.ways(), u64::from(self.context.rank));
        index.saturating_add((rank + ways - index % ways) % ways)
    }

    /// First token from `token` on that is in a block of this rank's.
    pub(super) fn next_token(&self, token: u64) -> u64 {
        let size = u64::from(self.size);
        self.next(token / size).saturating_mul(size).max(token)
    }

    /// Start of the block that holds `token`.
    pub(super) fn floor(&self, token: u64) -> u64 {
        token - token % u64::from(self.size)
    }

    /// End of the block that holds the token before `token`.
    pub(super) fn ceil(&self, token: u64) -> u64 {
        token.div_ceil(u64::from(self.size)).saturating_mul(u64::from(self.size))
    }

    /// Token after the last block of the table.
    pub(super) fn end(&self) -> u64 {
        let Some(last) = (self.table.ids.len() as u64).checked_sub(1) else {
            return self.table.first_token;
        };
        let block = self.first().saturating_add(last.saturating_mul(self.ways()));
        block.saturating_add(1).saturating_mul(u64::from(self.size))
    }

    /// Refuses tokens behind the next block that the table would list: no walk over the blocks of
    /// a sequence is longer than the tables are.
    pub(super) fn reaches(&self, token: u64) -> Result<(), PlanError> {
        let blocks = (self.table.ids.len() as u64).saturating_mul(self.ways());
        let next = self.first().saturating_add(blocks);
        if token <= next.saturating_mul(self.size.into()) {
            Ok(())
        } else {
            Err(self.not_held(next))
        }
    }

    /// Index of the first block of the table: the first one from its first token on that is
    /// this rank's.
    fn first(&self) -> u64 {
        self.next(self.table.first_token / u64::from(self.size))
    }

    fn not_held(&self, index: u64) -> PlanError {
        let size = u64::from(self.size);
        PlanError::NotHeld {
            side: self.side,
            group: self.group,
            wanted_start: index.saturating_mul(size),
            wanted_end: index.saturating_add(1).saturating_mul(size),
            held_start: self.table.first_token,
            held_end: self.end(),
        }
    }
}
