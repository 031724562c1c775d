//! From which token a decode engine can go on when a load has failed.

use std::ops::Range;

use crate::Kind;

/// What a decode engine has of a request in one KV cache group after a load.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Loaded {
    /// What the group's layers see.
    pub kind: Kind,
    /// Tokens that were there before, from its own prefix cache: what a query at this position
    /// sees is intact. 0 where there was no hit.
    pub hit: u64,
    /// Tokens whose load failed: the tokens of the blocks, by position. Of a state that was not
    /// loaded, any range that is not empty.
    pub failed: Vec<Range<u64>>,
}

/// The last position, at most `resume_at`, from which every group can go on: everything before
/// it that is recomputed in vain, and nothing that is missing. It is a multiple of `align`, the
/// tokens in whose steps the engine can start (1 where it can start anywhere; 0 counts as 1).
///
/// 0 always works, with fresh states.
#[must_use]
pub fn restart_at(groups: &[Loaded], resume_at: u64, align: u64) -> u64 {
    let mut at = resume_at;
    loop {
        let aligned = at - at % align.max(1);
        // No group that must go back further makes an earlier one possible again by itself.
        let earliest = groups.iter().fold(aligned, |at, group| group.last_at(at, resume_at));
        if earliest == at {
            return at;
        }
        at = earliest;
    }
}

impl Loaded {
    /// The last position, at most `most`, from which this group can go on.
    fn last_at(&self, most: u64, resume_at: u64) -> u64 {
        if self.kind.is_recurrent() {
            return self.last_state(most, resume_at);
        }
        let mut at = most;
        while let Some((missing, start)) = self.missing_before(at, resume_at) {
            // Behind a missing token nothing works that sees it. Within the run of missing
            // tokens only a chunk's start does, which sees nothing.
            let fresh = self.kind.visible_before(missing).start;
            let blind = self.kind.visible_before(fresh).is_empty();
            at = if blind { fresh.max(start) } else { start };
        }
        at
    }

    /// A state is there as it was loaded, as it was cached, or as it begins.
    fn last_state(&self, most: u64, resume_at: u64) -> u64 {
        let loaded = self.failed.iter().all(Range::is_empty).then_some(resume_at);
        let there = loaded.into_iter().chain([self.hit]).filter(|&at| at <= most);
        there.max().unwrap_or(0)
    }

    /// The last token that a query at `at` sees and that is not there, with the start of the
    /// missing run that it belongs to.
    fn missing_before(&self, at: u64, resume_at: u64) -> Option<(u64, u64)> {
        let seen = self.kind.visible_before(at);
        let behind_hit = self.hit..self.kind.visible_before(resume_at).start;
        let before_hit = 0..self.kind.visible_before(self.hit).start;
        let failed = self.failed.iter().map(|run| run.start.max(self.hit)..run.end);
        let runs = failed.chain([before_hit, behind_hit]).filter(|run| !run.is_empty());
        let missing = runs.filter(|run| run.start < at);
        let last = missing.map(|run| (run.end.min(at) - 1, run.start)).max()?;
        (last.0 >= seen.start).then_some(last)
    }
}
