use std::collections::{BTreeMap, BTreeSet, VecDeque};

use crate::ids::{AgentEpoch, ClaimId};
use crate::io::{Action, Outbox, ReadFailure};
use crate::limits::MAX_OPEN_READS;

/// D's side: the reads of one worker. A request's read of one rank of P is tried once more if
/// it fails, and each rank has a window: more reads of it than that wait for their turn,
/// while those of other ranks go on.
#[derive(Debug, Default)]
pub(crate) struct Reads {
    requests: BTreeMap<ClaimId, Progress>,
    windows: BTreeMap<AgentEpoch, Window>,
}

#[derive(Debug, Default)]
struct Progress {
    legs: BTreeMap<AgentEpoch, Leg>,
    /// Why nothing more is read, if nothing is.
    stopped: Option<ReadFailure>,
    /// An overdue read may still write.
    overdue: bool,
}

/// One read, until it is done or given up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Leg {
    Waiting { again: bool },
    Reading { again: bool },
}

#[derive(Debug, Default)]
struct Window {
    open: usize,
    waiting: VecDeque<ClaimId>,
}

/// How the reads of a request have ended; none of them can touch its blocks any more.
pub(crate) type Settled = (ClaimId, Result<(), ReadFailure>);

impl Reads {
    /// Reads from these ranks, or has the request wait for its turn.
    pub(crate) fn start(
        &mut self,
        claim: &ClaimId,
        peers: BTreeSet<AgentEpoch>,
        out: &mut Outbox,
    ) -> Option<Settled> {
        let legs = peers.iter().map(|peer| (*peer, Leg::Waiting { again: false })).collect();
        self.requests.insert(claim.clone(), Progress { legs, ..Progress::default() });
        for peer in peers {
            self.windows.entry(peer).or_default().waiting.push_back(claim.clone());
            self.fill(peer, out);
        }
        self.settle(claim)
    }

    /// One read has ended, and cannot touch the blocks any more.
    pub(crate) fn ended(
        &mut self,
        claim: &ClaimId,
        peer: AgentEpoch,
        how: Result<(), ReadFailure>,
        out: &mut Outbox,
    ) -> Option<Settled> {
        let progress = self.requests.get_mut(claim)?;
        let Some(Leg::Reading { again }) = progress.legs.get(&peer).copied() else { return None };
        progress.legs.remove(&peer);
        let window = self.windows.entry(peer).or_default();
        window.open = window.open.saturating_sub(1);
        match how {
            Ok(()) => {}
            Err(failure) if progress.stopped.is_none() && !again && failure.is_worth_a_retry() => {
                progress.legs.insert(peer, Leg::Waiting { again: true });
                window.waiting.push_back(claim.clone());
            }
            Err(failure) => self.give_up(claim, failure, out),
        }
        self.fill(peer, out);
        self.settle(claim)
    }

    /// A read has taken too long: its blocks are in quarantine until it ends.
    pub(crate) fn overdue(&mut self, claim: &ClaimId, out: &mut Outbox) {
        if let Some(progress) = self.requests.get_mut(claim) {
            progress.overdue = true;
            self.give_up(claim, ReadFailure::Overdue, out);
        }
    }

    /// Reads no more of a request.
    pub(crate) fn stop(&mut self, claim: &ClaimId, out: &mut Outbox) -> Option<Settled> {
        self.give_up(claim, ReadFailure::Stopped, out);
        self.settle(claim)
    }

    /// The rank is gone: what waits for it has failed, what is being read ends by itself.
    pub(crate) fn peer_lost(&mut self, peer: AgentEpoch, out: &mut Outbox) -> Vec<Settled> {
        let of = |(claim, progress): (&ClaimId, &Progress)| {
            progress.legs.contains_key(&peer).then(|| claim.clone())
        };
        let claims: Vec<_> = self.requests.iter().filter_map(of).collect();
        for claim in &claims {
            self.give_up(claim, ReadFailure::PeerLost, out);
        }
        claims.iter().filter_map(|claim| self.settle(claim)).collect()
    }

    /// Starts nothing more of a request and cancels what runs. The first reason stands.
    fn give_up(&mut self, claim: &ClaimId, why: ReadFailure, out: &mut Outbox) {
        let Some(progress) = self.requests.get_mut(claim) else { return };
        if progress.stopped.is_some() {
            return;
        }
        progress.stopped = Some(why);
        for (peer, leg) in &progress.legs {
            if let Leg::Reading { .. } = leg {
                out.actions.push_back(Action::Cancel { claim: claim.clone(), peer: *peer });
            } else if let Some(window) = self.windows.get_mut(peer) {
                window.waiting.retain(|other| other != claim);
            }
        }
        progress.legs.retain(|_, leg| matches!(leg, Leg::Reading { .. }));
        self.windows.retain(|_, window| window.open > 0 || !window.waiting.is_empty());
    }

    fn fill(&mut self, peer: AgentEpoch, out: &mut Outbox) {
        let Some(window) = self.windows.get_mut(&peer) else { return };
        while window.open < MAX_OPEN_READS
            && let Some(claim) = window.waiting.pop_front()
        {
            let leg = self.requests.get_mut(&claim).and_then(|p| p.legs.get_mut(&peer));
            if let Some(leg @ Leg::Waiting { .. }) = leg {
                *leg = leg.begun();
                window.open += 1;
                out.actions.push_back(Action::Read { claim, peer });
            }
        }
        if window.open == 0 && window.waiting.is_empty() {
            self.windows.remove(&peer);
        }
    }

    /// Forgets a request of which nothing is under way, and says how it went.
    fn settle(&mut self, claim: &ClaimId) -> Option<Settled> {
        let progress = self.requests.get(claim).filter(|progress| progress.legs.is_empty())?;
        let how = progress.stopped.map_or(Ok(()), Err);
        self.requests.remove(claim);
        Some((claim.clone(), how))
    }

    /// Why a request is read no more, while reads of it still run.
    pub(crate) fn given_up(&self, claim: &ClaimId) -> Option<ReadFailure> {
        self.requests.get(claim)?.stopped
    }

    /// Requests whose blocks an overdue read may still touch.
    pub(crate) fn quarantined(&self) -> usize {
        self.requests.values().filter(|progress| progress.overdue).count()
    }
}

impl Leg {
    fn begun(self) -> Self {
        let (Self::Waiting { again } | Self::Reading { again }) = self;
        Self::Reading { again }
    }
}
