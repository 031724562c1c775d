use std::collections::BTreeSet;

use crate::bounds::Time;
use crate::digest::PromptDigest;
use crate::ids::{AgentEpoch, ClaimId};
use crate::io::{Event, Failure, Offer, Outbox, ReadFailure};

/// One request as D fetches it, under a claim that it may share with others of the same lease.
#[derive(Debug)]
pub(crate) struct Receive {
    id: ClaimId,
    prompt: PromptDigest,
    phase: Phase,
    /// When the phase has taken too long.
    until: Time,
}

#[derive(Debug)]
enum Phase {
    /// Until the claim is granted. Nothing is read.
    Claiming,
    /// Until the engine has blocks. Nothing is read.
    Offered,
    /// Until the reads have ended.
    Reading,
    /// The outcome is settled, but reads may still touch the blocks. The one state without a
    /// deadline: only the transfers' own ends, never a clock, make D's blocks free.
    Stopping(End),
    /// Until every rank of P has said that what was read counts. Nothing is read any more.
    Committing {
        commit: Commit,
        /// Ranks that have not said so.
        open: BTreeSet<AgentEpoch>,
    },
    Ended,
}

/// What P was asked when the reads of a request had ended, and what its answer names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Commit {
    /// Others still read under the claim, which goes on.
    Check(u64),
    /// Nobody does: the claim ends with it.
    Done,
}

/// How a request ends that is not received.
#[derive(Clone, Debug)]
pub(crate) enum End {
    Failed(Failure),
    Released,
}

impl Receive {
    /// Waits until `until` for a claim to be granted.
    pub(crate) fn new(id: ClaimId, prompt: PromptDigest, until: Time) -> Self {
        Self { id, prompt, phase: Phase::Claiming, until }
    }

    /// Refuses blocks of another prompt: routers mix requests up.
    pub(crate) fn same_prompt(&self, theirs: &PromptDigest) -> Result<(), Failure> {
        let ours = &self.prompt;
        if ours.valid != theirs.valid {
            return Err(Failure::Valid { ours: ours.valid, theirs: theirs.valid });
        }
        if ours != theirs { Err(Failure::Digest) } else { Ok(()) }
    }

    /// Everything may be read, from now until `until`.
    pub(crate) fn offered(&mut self, offers: Vec<Offer>, until: Time, out: &mut Outbox) {
        if let Phase::Claiming = self.phase {
            self.phase = Phase::Offered;
            self.until = until;
            out.events.push_back(Event::Offered { claim: self.id.clone(), offers });
        }
    }

    /// The engine has blocks; false where nothing is to be read any more, or already.
    pub(crate) fn read(&mut self) -> bool {
        let offered = matches!(self.phase, Phase::Offered);
        if offered {
            self.phase = Phase::Reading;
        }
        offered
    }

    /// No read can touch the blocks any more. True where P is to be asked for this `commit`,
    /// which these ranks have until `until` to answer.
    pub(crate) fn reads_ended(
        &mut self,
        how: Result<(), ReadFailure>,
        (commit, open): (Commit, BTreeSet<AgentEpoch>),
        until: Time,
        out: &mut Outbox,
    ) -> bool {
        match (std::mem::replace(&mut self.phase, Phase::Ended), how) {
            (Phase::Stopping(end), _) => self.report(end, out),
            (Phase::Reading, Ok(())) => {
                self.phase = Phase::Committing { commit, open };
                self.until = until;
                return true;
            }
            (Phase::Reading, Err(failure)) => self.report(End::Failed(failure.into()), out),
            (other, _) => self.phase = other,
        }
        false
    }

    /// A rank of P has said that a commit counts, which holds only for those that asked for
    /// this one. True where it was the last rank.
    pub(crate) fn committed(
        &mut self,
        peer: AgentEpoch,
        answered: Commit,
        out: &mut Outbox,
    ) -> bool {
        let Phase::Committing { commit, open } = &mut self.phase else { return false };
        if *commit != answered || !open.remove(&peer) || !open.is_empty() {
            return false;
        }
        self.phase = Phase::Ended;
        out.events.push_back(Event::Received { claim: self.id.clone() });
        true
    }

    /// Ends the request: at once, or, where reads may run, when they have stopped. The first
    /// reason stands.
    pub(crate) fn end(&mut self, end: End, out: &mut Outbox) {
        match self.phase {
            Phase::Claiming | Phase::Offered | Phase::Committing { .. } => self.report(end, out),
            Phase::Reading => {
                out.stops.push(self.id.clone());
                self.phase = Phase::Stopping(end);
            }
            Phase::Stopping(_) | Phase::Ended => {}
        }
    }

    /// Ends the request if it needs a rank of P for which the claim is over.
    pub(crate) fn peer_failed(&mut self, peer: AgentEpoch, failure: &Failure, out: &mut Outbox) {
        let needed = match &self.phase {
            Phase::Committing { open, .. } => open.contains(&peer),
            _ => self.is_open(),
        };
        if needed {
            self.end(End::Failed(failure.clone()), out);
        }
    }

    fn report(&mut self, end: End, out: &mut Outbox) {
        self.phase = Phase::Ended;
        let claim = self.id.clone();
        out.events.push_back(match end {
            End::Failed(failure) => Event::Failed { claim, failure },
            End::Released => Event::Released { claim },
        });
    }

    pub(crate) fn expire(&mut self, now: Time, out: &mut Outbox) {
        if self.deadline().is_some_and(|at| at <= now) {
            self.end(End::Failed(Failure::NoAnswer), out);
        }
    }

    /// When [`expire`](Self::expire) has something to do.
    pub(crate) fn deadline(&self) -> Option<Time> {
        match self.phase {
            Phase::Claiming | Phase::Offered | Phase::Reading | Phase::Committing { .. } => {
                Some(self.until)
            }
            Phase::Stopping(_) | Phase::Ended => None,
        }
    }

    /// It reads under its claim, or means to.
    pub(crate) fn is_open(&self) -> bool {
        matches!(self.phase, Phase::Claiming | Phase::Offered | Phase::Reading)
    }

    pub(crate) fn is_committing(&self) -> bool {
        matches!(self.phase, Phase::Committing { .. })
    }

    pub(crate) fn has_ended(&self) -> bool {
        matches!(self.phase, Phase::Ended)
    }
}
