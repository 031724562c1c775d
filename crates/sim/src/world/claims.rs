//! What the workers of D have claimed, as they say it themselves.

use std::collections::{BTreeMap, BTreeSet};

use connector::message::{Answer, Body, Message, Request};
use connector::{AgentEpoch, ClaimId, Event, Fetch, LeaseId};

use super::events::Who;

/// The samples that each rank reads under each claim.
type Samples = BTreeMap<(Who, ClaimId), BTreeSet<ClaimId>>;

/// Of each worker of D, each rank of P and each lease: the claim that it has not ended.
#[derive(Debug, Default)]
pub(crate) struct Claims {
    open: BTreeMap<(Who, AgentEpoch, LeaseId), ClaimId>,
    /// Of each engine, those that have ended at one of its ranks, or are about to, since nothing
    /// is wanted that is read there: a sample that comes then has to have a claim of its own, also
    /// where another rank still reads.
    ended: BTreeSet<(usize, ClaimId)>,
    /// Of each engine and lease.
    samples: BTreeMap<(usize, LeaseId), Samples>,
    /// Samples that cannot succeed any more, though some ranks may not know.
    lost: BTreeSet<(usize, ClaimId)>,
}

impl Claims {
    /// A rank of D is to read a sample.
    pub(crate) fn ordered(&mut self, who: Who, fetch: &Fetch) {
        let sample = fetch.claim.clone();
        let under = fetch.shared.clone().unwrap_or_else(|| sample.request.clone());
        let claim = ClaimId { request: under, ..sample.clone() };
        let ranks = self.samples.entry((who.engine, sample.lease.clone())).or_default();
        ranks.entry((who, claim)).or_default().insert(sample);
    }

    /// One rank is done with a sample.
    pub(crate) fn read(&mut self, who: Who, sample: &ClaimId, event: &Event) {
        if matches!(event, Event::Failed { .. } | Event::Released { .. }) {
            self.lost.insert((who.engine, sample.clone()));
        }
        // A rank that has nothing to read goes on for ever, as far as a claim is concerned.
        let ranks = self.samples.get_mut(&(who.engine, sample.lease.clone()));
        if !matches!(event, Event::Nothing { .. }) {
            for ((rank, _), samples) in ranks.into_iter().flatten() {
                if *rank == who {
                    samples.remove(sample);
                }
            }
        }
        self.look(who.engine, &sample.lease);
    }

    /// The engine does not want a sample any more.
    pub(crate) fn unwanted(&mut self, engine: usize, sample: &ClaimId) {
        self.lost.insert((engine, sample.clone()));
        self.look(engine, &sample.lease);
    }

    fn look(&mut self, engine: usize, lease: &LeaseId) {
        let Some(ranks) = self.samples.get_mut(&(engine, lease.clone())) else { return };
        let idle = ranks.extract_if(.., |_, samples| {
            samples.iter().all(|sample| self.lost.contains(&(engine, sample.clone())))
        });
        self.ended.extend(idle.map(|((_, claim), _)| (engine, claim)));
    }

    /// D says something. Gives what is wrong with it.
    pub(crate) fn said(&mut self, who: Who, message: &Message) -> Option<String> {
        let Message { to, claim, body, .. } = message;
        let place = (who, *to, claim.lease.clone());
        match body {
            Body::Request(Request::Claim { readers, .. }) if !readers.is_empty() => {
                let other = self.open.insert(place, claim.clone()).filter(|open| {
                    open != claim && !self.ended.contains(&(who.engine, open.clone()))
                });
                other.map(|other| format!("{who:?} claims {claim:?} and has {}", other.request))
            }
            Body::Request(Request::Done | Request::Release) => {
                self.end(place, claim);
                None
            }
            Body::Request(_) | Body::Answer(_) => None,
        }
    }

    /// P says that a claim has ended.
    pub(crate) fn heard(&mut self, who: Who, from: AgentEpoch, claim: &ClaimId, answer: &Answer) {
        if let Answer::Over | Answer::Unknown = answer {
            self.end((who, from, claim.lease.clone()), claim);
        }
    }

    fn end(&mut self, place: (Who, AgentEpoch, LeaseId), claim: &ClaimId) {
        self.ended.insert((place.0.engine, claim.clone()));
        if self.open.get(&place) == Some(claim) {
            self.open.remove(&place);
        }
    }

    /// One of two workers takes the other for dead.
    pub(crate) fn lost(&mut self, who: Who, peer: AgentEpoch) {
        let of_both = |(d, p, _): &(Who, AgentEpoch, LeaseId)| (*d, *p) == (who, peer);
        let cut = self.open.extract_if(.., |place, _| of_both(place));
        self.ended.extend(cut.map(|(_, claim)| (who.engine, claim)));
    }
}
