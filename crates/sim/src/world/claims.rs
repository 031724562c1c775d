//! What the workers of D have claimed, as they say it themselves.

use std::collections::{BTreeMap, BTreeSet};

use connector::message::{Answer, Body, Message, Request};
use connector::{AgentEpoch, ClaimId, LeaseId};

use super::events::Who;

/// Of each worker of D, each rank of P and each lease: the claim that it has not ended.
#[derive(Debug, Default)]
pub(crate) struct Claims {
    open: BTreeMap<(Who, AgentEpoch, LeaseId), ClaimId>,
    /// Of each engine, those that have ended at one of its ranks: a sample that comes then has to
    /// have a claim of its own, also where another rank still reads.
    ended: BTreeSet<(usize, ClaimId)>,
}

impl Claims {
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
        let lost = self.open.extract_if(.., |place, _| of_both(place));
        self.ended.extend(lost.map(|(_, claim)| (who.engine, claim)));
    }
}
