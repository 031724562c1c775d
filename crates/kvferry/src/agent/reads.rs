//! Which transfers belong to which claim.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use connector::{ClaimId, Input};
use transport::{Endpoint, GrantToken, Outcome, PeerId, SubmitErrorKind, Transfer, TransferId};

use super::Read;

/// Transfers under way, and those that wait for room in the endpoint's queue.
pub(super) struct Reads {
    timeout: Duration,
    next: u64,
    open: BTreeMap<TransferId, ClaimId>,
    waiting: VecDeque<Transfer>,
    claims: BTreeMap<ClaimId, Progress>,
}

#[derive(Default)]
struct Progress {
    left: usize,
    failed: bool,
}

impl Reads {
    pub(super) fn new(timeout: Duration) -> Self {
        Self {
            timeout,
            next: 0,
            open: BTreeMap::new(),
            waiting: VecDeque::new(),
            claims: BTreeMap::new(),
        }
    }

    /// Starts the reads of a claim. Gives what the machine must be told at once, if anything:
    /// nothing to read is done, a peer that is gone is a failure.
    pub(super) fn start(
        &mut self,
        endpoint: &mut dyn Endpoint,
        claim: &ClaimId,
        reads: Vec<(Option<PeerId>, Read)>,
    ) -> Vec<Input> {
        let progress = self.claims.entry(claim.clone()).or_default();
        for (peer, read) in reads.into_iter().filter(|(_, read)| !read.copies.is_empty()) {
            let Some(peer) = peer else {
                progress.failed = true;
                continue;
            };
            let id = TransferId(self.next);
            self.next += 1;
            progress.left += 1;
            self.open.insert(id, claim.clone());
            let token = GrantToken(read.token.0);
            let (copies, timeout) = (read.copies, self.timeout);
            self.waiting.push_back(Transfer { id, peer, token, copies, timeout });
        }
        let mut told = self.submit(endpoint);
        told.extend(self.settle(claim));
        told
    }

    /// Fills the endpoint's queue. Gives what the machine must be told of reads that it refused.
    fn submit(&mut self, endpoint: &mut dyn Endpoint) -> Vec<Input> {
        let mut told = Vec::new();
        while let Some(transfer) = self.waiting.pop_front() {
            let Err(refused) = endpoint.submit(transfer) else { continue };
            if refused.why == SubmitErrorKind::QueueFull {
                self.waiting.push_front(*refused.transfer);
                break;
            }
            tracing::warn!(why = %refused.why, "a read was refused");
            told.extend(self.ended(refused.transfer.id, false));
        }
        told
    }

    /// A transfer has ended. Gives what the machine must be told.
    pub(super) fn completed(
        &mut self,
        endpoint: &mut dyn Endpoint,
        id: TransferId,
        outcome: &Outcome,
    ) -> Vec<Input> {
        if let Outcome::Failed(why) = outcome {
            tracing::warn!(transfer = id.0, %why, "a read failed");
        }
        let ended = self.ended(id, *outcome == Outcome::Done);
        ended.into_iter().chain(self.submit(endpoint)).collect()
    }

    /// Stops the reads of a claim. Gives what the machine must be told when none is under way.
    pub(super) fn stop(&mut self, endpoint: &mut dyn Endpoint, claim: &ClaimId) -> Option<Input> {
        self.claims.entry(claim.clone()).or_default().failed = true;
        let (dropped, kept): (VecDeque<_>, VecDeque<_>) =
            self.waiting.drain(..).partition(|transfer| self.open.get(&transfer.id) == Some(claim));
        self.waiting = kept;
        for (&id, _) in self.open.iter().filter(|(_, of)| *of == claim) {
            endpoint.cancel(id);
        }
        dropped
            .into_iter()
            .fold(None, |told, transfer| self.ended(transfer.id, false).or(told))
            .or_else(|| self.settle(claim))
    }

    fn ended(&mut self, id: TransferId, done: bool) -> Option<Input> {
        let claim = self.open.remove(&id)?;
        let progress = self.claims.get_mut(&claim)?;
        progress.left -= 1;
        progress.failed |= !done;
        self.settle(&claim)
    }

    /// Once nothing of a claim is under way, says how it went.
    fn settle(&mut self, claim: &ClaimId) -> Option<Input> {
        let progress = self.claims.get(claim)?;
        if progress.left > 0 {
            return None;
        }
        let failed = progress.failed;
        self.claims.remove(claim);
        let claim = claim.clone();
        Some(if failed { Input::ReadsFailed(claim) } else { Input::ReadsDone(claim) })
    }
}
