//! Which transfers belong to which claim.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

use connector::{AgentEpoch, ClaimId, Input, ReadFailure};
use transport::{
    Endpoint, GrantToken, Outcome, PeerId, SubmitErrorKind, Transfer, TransferError, TransferId,
};

use super::Read;

/// What is to be read, transfers under way, and those that wait for room in the endpoint's
/// queue.
pub(super) struct Reads {
    timeout: Duration,
    next: u64,
    wanted: BTreeMap<ClaimId, Vec<Read>>,
    open: BTreeMap<TransferId, Leg>,
    waiting: VecDeque<Transfer>,
}

/// One read: of which claim, and of which rank of P.
type Leg = (ClaimId, AgentEpoch);

impl Reads {
    pub(super) fn new(timeout: Duration) -> Self {
        let (wanted, open, waiting) = (BTreeMap::new(), BTreeMap::new(), VecDeque::new());
        Self { timeout, next: 0, wanted, open, waiting }
    }

    /// What is to be read of a claim, when the machine says so. Gives the ranks of P that
    /// something is to be read from.
    pub(super) fn want(&mut self, claim: &ClaimId, reads: Vec<Read>) -> Vec<AgentEpoch> {
        let peers = reads.iter().filter(|read| !read.copies.is_empty());
        let peers = peers.map(|read| read.peer).collect();
        self.wanted.insert(claim.clone(), reads);
        peers
    }

    /// A claim has ended.
    pub(super) fn forget(&mut self, claim: &ClaimId) {
        self.wanted.remove(claim);
    }

    /// Starts one read of a claim. Gives what the machine must be told at once, if anything.
    pub(super) fn start(
        &mut self,
        endpoint: &mut dyn Endpoint,
        leg: Leg,
        data: Option<PeerId>,
    ) -> Vec<Input> {
        let mut reads = self.wanted.get(&leg.0).into_iter().flatten();
        let wanted = reads.find(|read| read.peer == leg.1);
        let (Some(peer), Some(read)) = (data, wanted) else {
            return vec![ended(leg, Err(ReadFailure::PeerLost))];
        };
        let id = TransferId(self.next);
        self.next += 1;
        let (token, copies) = (GrantToken(read.token.0), read.copies.clone());
        self.waiting.push_back(Transfer { id, peer, token, copies, timeout: self.timeout });
        self.open.insert(id, leg);
        self.submit(endpoint)
    }

    /// Fills the endpoint's queues. Gives what the machine must be told of reads that it refused.
    fn submit(&mut self, endpoint: &mut dyn Endpoint) -> Vec<Input> {
        let mut told = Vec::new();
        // Whoever has refused one would refuse all that wait for it, at the cost of each.
        let mut full = BTreeSet::new();
        for transfer in std::mem::take(&mut self.waiting) {
            if full.contains(&transfer.peer) {
                self.waiting.push_back(transfer);
                continue;
            }
            let Err(refused) = endpoint.submit(transfer) else { continue };
            if refused.why == SubmitErrorKind::QueueFull {
                full.insert(refused.transfer.peer);
                self.waiting.push_back(*refused.transfer);
                continue;
            }
            tracing::warn!(why = %refused.why, "a read cannot be asked for");
            let leg = self.open.remove(&refused.transfer.id);
            let why = match refused.why {
                SubmitErrorKind::UnknownPeer => ReadFailure::PeerLost,
                _ => ReadFailure::Impossible,
            };
            told.extend(leg.map(|leg| ended(leg, Err(why))));
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
        let leg = self.open.remove(&id);
        let mut told: Vec<_> = leg.map(|leg| ended(leg, verdict(outcome))).into_iter().collect();
        told.extend(self.submit(endpoint));
        told
    }

    /// The claim that a transfer belongs to.
    pub(super) fn claim_of(&self, id: TransferId) -> Option<ClaimId> {
        self.open.get(&id).map(|(claim, _)| claim.clone())
    }

    /// Cancels one read. Gives what the machine must be told where it had not begun.
    pub(super) fn cancel(&mut self, endpoint: &mut dyn Endpoint, leg: &Leg) -> Option<Input> {
        let (&id, _) = self.open.iter().find(|(_, open)| *open == leg)?;
        let before = self.waiting.len();
        self.waiting.retain(|transfer| transfer.id != id);
        if self.waiting.len() == before {
            endpoint.cancel(id);
            return None;
        }
        let leg = self.open.remove(&id)?;
        Some(ended(leg, Err(ReadFailure::Stopped)))
    }
}

fn ended((claim, peer): Leg, how: Result<(), ReadFailure>) -> Input {
    Input::ReadEnded { claim, peer, how }
}

fn verdict(outcome: &Outcome) -> Result<(), ReadFailure> {
    Err(match outcome {
        Outcome::Done => return Ok(()),
        Outcome::Cancelled => ReadFailure::Stopped,
        Outcome::Failed(TransferError::NotGranted | TransferError::Protocol { .. }) => {
            ReadFailure::Refused
        }
        // Cut off with another transfer that was overdue.
        Outcome::Failed(TransferError::Fenced) => ReadFailure::Transport,
        Outcome::Failed(_) => ReadFailure::PeerLost,
    })
}

#[cfg(test)]
#[path = "reads_tests.rs"]
mod tests;
