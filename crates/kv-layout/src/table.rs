//! Block tables: what an engine keeps of a prompt.

use std::sync::Arc;

use crate::{BlockTable, ContextShare, Kind};

/// What an engine keeps of a prompt in one group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Kept {
    /// Where the table starts: the first token of its first block, or the tokens that the state
    /// has seen.
    pub first_token: u64,
    /// Number of blocks.
    pub blocks: u64,
}

/// What an engine keeps of a prompt of `tokens` in a group of blocks of `block_size` so that
/// it, or a peer, can compute from `resume_at` on: this, not the number of tokens, decides
/// which blocks may be dropped.
#[must_use]
pub fn kept(kind: Kind, block_size: u32, resume_at: u64, tokens: u64) -> Kept {
    if kind.is_recurrent() {
        return Kept { first_token: resume_at, blocks: 1 };
    }
    let block_size = u64::from(block_size.max(1));
    let first = kind.visible_before(resume_at).start / block_size;
    let end = tokens.div_ceil(block_size).max(first);
    Kept { first_token: first.saturating_mul(block_size), blocks: end - first }
}

impl Kept {
    /// The share of one rank where several share a sequence block by block: as many blocks, from
    /// the same token on, as are this rank's.
    #[must_use]
    pub fn of_share(self, block_size: u32, share: ContextShare) -> Self {
        let ways = u64::from(share.ways.max(1));
        let others = (ways - 1).saturating_sub(u64::from(share.rank));
        let own = |end: u64| end.saturating_add(others) / ways;
        let first = self.first_token / u64::from(block_size.max(1));
        let end = first.saturating_add(self.blocks);
        Self { first_token: self.first_token, blocks: own(end) - own(first) }
    }
}

impl Kind {
    /// Whether a prefill engine must stop one token before the end of a prompt of `tokens`, so
    /// that a peer which computes the last token itself finds what that token's query sees:
    /// where a state would have seen the token already, and where the engine, done with all
    /// tokens, frees a block that the last one's query still sees.
    #[must_use]
    pub fn must_stop_early(self, block_size: u32, tokens: u64) -> bool {
        let Some(last) = tokens.checked_sub(1).filter(|&last| last > 0) else { return false };
        let seen = self.visible_before(last);
        let freed = kept(self, block_size, tokens, tokens).first_token;
        self.is_recurrent() || (!seen.is_empty() && seen.start < freed)
    }
}

impl BlockTable {
    /// The table of a list that begins with null blocks, or has them all over, as engines that
    /// index by position keep it: the nulls in front are left out, and what they stood for is
    /// told by where the table starts. `None` where a null stands behind a block.
    #[must_use]
    pub fn from_positions(block_size: u32, null: u32, ids: &[u32]) -> Option<Self> {
        let first = ids.iter().position(|&id| id != null).unwrap_or(ids.len());
        let (nulls, ids) = ids.split_at(first);
        let first_token = (nulls.len() as u64).checked_mul(u64::from(block_size))?;
        (!ids.contains(&null)).then(|| Self { first_token, ids: ids.into() })
    }

    /// The state among the blocks of a recurrent group, whose list may hold `scratch` blocks for
    /// speculative decoding behind it.
    #[must_use]
    pub fn state(tokens: u64, ids: &[u32], scratch: usize) -> Option<Self> {
        let behind = scratch.min(ids.len().checked_sub(1)?);
        let id = ids.get(ids.len() - 1 - behind)?;
        Some(Self { first_token: tokens, ids: Arc::from([*id]) })
    }

    /// The table with each id looked up in `physical`, as a pool that hands out virtual ids
    /// needs it; `None` where one is not there.
    #[must_use]
    pub fn translated(&self, physical: &[u32]) -> Option<Self> {
        let look_up = |&id: &u32| physical.get(usize::try_from(id).ok()?).copied();
        let ids = self.ids.iter().map(look_up).collect::<Option<_>>()?;
        Some(Self { first_token: self.first_token, ids })
    }
}
