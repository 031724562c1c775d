use std::collections::BTreeMap;

use crate::bounds::{Bounds, Time};
use crate::digest::PromptDigest;
use crate::ids::{AgentEpoch, ClaimId};
use crate::io::{Event, Failure, Offer, Outbox, ReadFailure};
use crate::message::{Answer, Body, Grant, Request};

/// One request as D fetches it, from one or more ranks of P.
#[derive(Debug)]
pub(crate) struct Receive {
    id: ClaimId,
    prompt: PromptDigest,
    legs: BTreeMap<AgentEpoch, Leg>,
    phase: Phase,
    /// When the phase has taken too long.
    until: Time,
    renew_at: Time,
}

/// What one rank of P has answered.
#[derive(Debug)]
enum Leg {
    Asked,
    Granted {
        grant: Grant,
        /// When P lets the claim lapse, as far as D knows.
        lives_until: Time,
    },
    /// Its blocks were intact until the end of the reads.
    Alive,
}

#[derive(Debug)]
enum Phase {
    /// Until every leg is granted. Nothing is read.
    Claiming,
    /// Until the engine has blocks. Nothing is read.
    Offered,
    /// Until the reads have ended.
    Reading,
    /// The outcome is settled, but reads may still touch the blocks. The one state without a
    /// deadline: only the transfers' own ends, never a clock, make D's blocks free.
    Stopping(End),
    /// Until every leg is alive. Nothing is read any more.
    Committing,
    Ended,
}

/// How a request ends that is not received.
#[derive(Debug)]
pub(crate) enum End {
    Failed(Failure),
    Released,
}

impl Receive {
    /// Waits for the answers of `peers`, which have been asked.
    pub(crate) fn new(
        id: ClaimId,
        prompt: PromptDigest,
        peers: impl Iterator<Item = AgentEpoch>,
        now: Time,
        bounds: &Bounds,
    ) -> Self {
        Self {
            id,
            prompt,
            legs: peers.map(|peer| (peer, Leg::Asked)).collect(),
            phase: Phase::Claiming,
            until: now.saturating_add(bounds.answer),
            renew_at: now.saturating_add(bounds.renew_every),
        }
    }

    pub(crate) fn answer(
        &mut self,
        peer: AgentEpoch,
        answer: Answer,
        now: Time,
        bounds: &Bounds,
        out: &mut Outbox,
    ) {
        match (answer, self.legs.get_mut(&peer)) {
            (Answer::Granted(grant), Some(Leg::Asked)) => {
                self.granted(peer, grant, now, bounds, out);
            }
            (Answer::Renewed { left }, Some(Leg::Granted { lives_until, .. })) => {
                *lives_until = now.saturating_add(left.min(bounds.oldest));
            }
            (Answer::Alive, Some(Leg::Granted { .. })) => self.alive(peer, out),
            (Answer::Over, Some(Leg::Asked | Leg::Granted { .. })) => {
                self.leg_failed(peer, Failure::Over, out);
            }
            (Answer::Unknown, Some(Leg::Asked | Leg::Granted { .. })) => {
                self.leg_failed(peer, Failure::Unknown, out);
            }
            // Doubled, late, or news of no consequence.
            _ => {}
        }
    }

    fn granted(
        &mut self,
        peer: AgentEpoch,
        grant: Grant,
        now: Time,
        bounds: &Bounds,
        out: &mut Outbox,
    ) {
        if let Err(failure) = self.same_prompt(&grant.prompt) {
            return self.end(End::Failed(failure), out);
        }
        let lives_until = now.saturating_add(grant.left.min(bounds.oldest));
        self.legs.insert(peer, Leg::Granted { grant, lives_until });
        if self.legs.values().all(|leg| matches!(leg, Leg::Granted { .. })) {
            self.phase = Phase::Offered;
            self.until = now.saturating_add(bounds.oldest);
            let offers = self.legs.iter().filter_map(|(peer, leg)| leg.offer(*peer, now));
            let offers = offers.collect();
            out.events.push_back(Event::Offered { claim: self.id.clone(), offers });
        }
    }

    fn same_prompt(&self, theirs: &PromptDigest) -> Result<(), Failure> {
        let ours = &self.prompt;
        if ours.valid != theirs.valid {
            return Err(Failure::Valid { ours: ours.valid, theirs: theirs.valid });
        }
        if ours != theirs { Err(Failure::Digest) } else { Ok(()) }
    }

    /// A commit counts only while one is asked for.
    fn alive(&mut self, peer: AgentEpoch, out: &mut Outbox) {
        if !matches!(self.phase, Phase::Committing) {
            return;
        }
        self.legs.insert(peer, Leg::Alive);
        if self.legs.values().all(|leg| matches!(leg, Leg::Alive)) {
            self.phase = Phase::Ended;
            out.events.push_back(Event::Received { claim: self.id.clone() });
        }
    }

    /// A leg that can no longer succeed, so that nothing more is said to it.
    fn leg_failed(&mut self, peer: AgentEpoch, failure: Failure, out: &mut Outbox) {
        if self.legs.remove(&peer).is_some() {
            self.end(End::Failed(failure), out);
        }
    }

    pub(crate) fn peer_lost(&mut self, peer: AgentEpoch, out: &mut Outbox) {
        if !matches!(self.legs.get(&peer), Some(Leg::Alive)) {
            self.leg_failed(peer, Failure::PeerLost, out);
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

    /// No read can touch the blocks any more.
    pub(crate) fn reads_ended(
        &mut self,
        how: Result<(), ReadFailure>,
        now: Time,
        bounds: &Bounds,
        out: &mut Outbox,
    ) {
        match (std::mem::replace(&mut self.phase, Phase::Ended), how) {
            (Phase::Stopping(end), _) => self.report(end, out),
            (Phase::Reading, Ok(())) => {
                self.phase = Phase::Committing;
                self.until = now.saturating_add(bounds.answer);
                self.tell_granted(&Request::Done, out);
            }
            (Phase::Reading, Err(failure)) => {
                self.tell_all(&Request::Release, out);
                self.report(End::Failed(failure.into()), out);
            }
            (other, _) => self.phase = other,
        }
    }

    /// Ends the request: at once, or, where reads may run, when they have stopped. The first
    /// reason stands.
    pub(crate) fn end(&mut self, end: End, out: &mut Outbox) {
        match self.phase {
            Phase::Claiming | Phase::Offered | Phase::Committing => {
                self.tell_all(&Request::Release, out);
                self.report(end, out);
            }
            Phase::Reading => {
                self.tell_all(&Request::Release, out);
                out.stops.push(self.id.clone());
                self.phase = Phase::Stopping(end);
            }
            Phase::Stopping(_) | Phase::Ended => {}
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

    pub(crate) fn expire(&mut self, now: Time, bounds: &Bounds, out: &mut Outbox) {
        if self.lapses_at().is_some_and(|at| at <= now) {
            self.end(End::Failed(Failure::NoAnswer), out);
        }
        if self.renews() && self.renew_at <= now {
            self.renew_at = now.saturating_add(bounds.renew_every);
            self.tell_granted(&Request::Renew, out);
        }
    }

    /// When [`expire`](Self::expire) has something to do.
    pub(crate) fn deadline(&self) -> Option<Time> {
        let renew = self.renews().then_some(self.renew_at);
        self.lapses_at().into_iter().chain(renew).min()
    }

    fn renews(&self) -> bool {
        matches!(self.phase, Phase::Claiming | Phase::Offered | Phase::Reading)
    }

    /// When P has been silent for too long.
    fn lapses_at(&self) -> Option<Time> {
        match self.phase {
            Phase::Claiming | Phase::Offered | Phase::Reading => {
                self.legs.values().filter_map(Leg::lives_until).chain([self.until]).min()
            }
            Phase::Committing => Some(self.until),
            Phase::Stopping(_) | Phase::Ended => None,
        }
    }

    pub(crate) fn has_ended(&self) -> bool {
        matches!(self.phase, Phase::Ended)
    }

    fn tell_granted(&self, request: &Request, out: &mut Outbox) {
        let granted = self.legs.iter().filter(|(_, leg)| matches!(leg, Leg::Granted { .. }));
        granted.for_each(|(peer, _)| out.send(*peer, &self.id, Body::Request(request.clone())));
    }

    fn tell_all(&self, request: &Request, out: &mut Outbox) {
        let peers = self.legs.keys();
        peers.for_each(|peer| out.send(*peer, &self.id, Body::Request(request.clone())));
    }
}

impl Leg {
    fn lives_until(&self) -> Option<Time> {
        match self {
            Self::Granted { lives_until, .. } => Some(*lives_until),
            Self::Asked | Self::Alive => None,
        }
    }

    fn offer(&self, peer: AgentEpoch, now: Time) -> Option<Offer> {
        let Self::Granted { grant, lives_until } = self else { return None };
        let left = lives_until.saturating_sub(now);
        Some(Offer { peer, token: grant.token, left, tables: grant.tables.clone() })
    }
}
