//! Makes the planted mistakes, around the machines and never in them.

use std::collections::BTreeMap;
use std::rc::Rc;

use connector::message::{Answer, Body, Message, Request};
use connector::{AgentEpoch, ClaimId, Event, Input, LeaseId};
use serde_json::Value;

use super::World;
use super::engine::Engine;
use super::events::Who;
use super::planted::Planted;

/// What mistaken engines remember.
#[derive(Debug, Default)]
pub(crate) struct Mistakes {
    /// Claims, and of which lease P took them to be.
    looked_up: Vec<(ClaimId, LeaseId)>,
    /// What a reader should have asked, by whom it told that it is done instead.
    done_early: BTreeMap<(AgentEpoch, AgentEpoch, ClaimId), u64>,
}

impl World {
    /// A message as its receiver takes it.
    pub(crate) fn incoming(&mut self, who: Who, mut message: Message) -> Vec<Message> {
        match (self.terrain.setup.planted, &mut message.body) {
            (Some(Planted::DropDone), Body::Request(Request::Done)) if self.chance(50) => {
                return Vec::new();
            }
            (Some(Planted::CountTwice), Body::Request(Request::Done)) => {
                return self.forged(who, message);
            }
            (Some(Planted::IgnoreNonce), Body::Request(_)) => {
                let lease = self.look_up(who, &message.claim);
                message.claim.lease = lease;
            }
            (Some(Planted::SkipDigest), Body::Answer(Answer::Granted(grant))) => {
                let desk = &self.engines[who.engine].decode;
                let local = desk.requests.get(&message.claim.request);
                if let Some(prompt) = local.map(|local| local.prompt) {
                    grant.prompt = self.router.digest(prompt, prompt.tokens);
                }
            }
            (Some(Planted::DoneEarly), Body::Answer(Answer::Alive)) => {
                let Message { from, to, claim, .. } = &message;
                let asked = self.mistakes.done_early.remove(&(*to, *from, claim.clone()));
                if let Some(number) = asked {
                    message.body = Body::Answer(Answer::Intact { number });
                }
            }
            _ => {}
        }
        vec![message]
    }

    /// A message as its sender puts it on the wire.
    pub(crate) fn outgoing(&mut self, mut message: Message) -> Message {
        if let (true, Body::Request(Request::Check { number })) =
            (self.is_planted(Planted::DoneEarly), &message.body)
        {
            let reader = (message.from, message.to, message.claim.clone());
            self.mistakes.done_early.insert(reader, *number);
            message.body = Body::Request(Request::Done);
        }
        if let (true, Body::Answer(_)) = (self.is_planted(Planted::IgnoreNonce), &message.body) {
            let claim = &message.claim;
            let asked = self.mistakes.looked_up.iter().rev().find(|(asked, lease)| {
                *lease == claim.lease
                    && (asked.engine, &asked.request) == (claim.engine, &claim.request)
            });
            if let Some((asked, _)) = asked {
                message.claim = asked.clone();
            }
        }
        message
    }

    /// One reader's notice, and the same in the name of the others.
    fn forged(&self, who: Who, message: Message) -> Vec<Message> {
        let engine = self.network.names.get(&message.from).map(|reader| reader.engine);
        let others = self.engines[who.engine].agents[who.rank].links.keys().copied();
        let others = others.filter(|agent| {
            *agent != message.from && self.network.names.get(agent).map(|who| who.engine) == engine
        });
        let forged: Vec<_> = others.map(|from| Message { from, ..message.clone() }).collect();
        std::iter::once(message).chain(forged).collect()
    }

    /// The youngest lease of the same prompt.
    fn look_up(&mut self, who: Who, claim: &ClaimId) -> LeaseId {
        if let Some((_, lease)) = self.mistakes.looked_up.iter().find(|(asked, _)| asked == claim) {
            return lease.clone();
        }
        let kept = &self.engines[who.engine].prefill.kept;
        let Some(asked) = kept.get(&claim.lease) else { return claim.lease.clone() };
        let prompt = self.router.prompt_of(asked.request);
        let same = kept.iter().filter(|(_, kept)| self.router.prompt_of(kept.request) == prompt);
        let found = same.max_by_key(|(_, kept)| kept.owner).map(|(lease, _)| lease.clone());
        let lease = found.unwrap_or_else(|| claim.lease.clone());
        self.mistakes.looked_up.push((claim.clone(), lease.clone()));
        lease
    }

    /// D takes blocks for good as soon as its own reads are done.
    pub(crate) fn publish_at_once(&mut self, d: Who, claim: &ClaimId) {
        let Some(fetching) = self.agent_mut(d).and_then(|agent| agent.fetching.get_mut(claim))
        else {
            return;
        };
        if fetching.told || fetching.to_read.len() != fetching.taken.len() {
            return;
        }
        fetching.told = true;
        self.look_for_stale_reads(d, claim);
        self.report(d, Event::Received { claim: claim.clone() });
    }

    /// P gives the blocks of some lease back on its own account.
    pub(crate) fn free_early(&mut self, engine: usize) {
        let kept = &self.engines[engine].prefill.kept;
        let Some(lease) = kept.keys().next().cloned() else { return };
        let Some(kept) = self.engines[engine].prefill.kept.get_mut(&lease) else { return };
        let lists = std::mem::take(&mut kept.lists);
        let given = super::prefill::Kept {
            request: kept.request,
            owner: kept.owner,
            lists,
            lease: kept.lease.clone(),
        };
        self.give_at_p(engine, &given);
    }

    /// D gives the blocks of an overdue read back although it has not ended.
    pub(crate) fn free_by_clock(&mut self, d: Who, claim: &ClaimId) {
        let name = claim.request.clone();
        if self.engines[d.engine].decode.requests.contains_key(&name) {
            self.leave(d.engine, &name, "taken back by the clock");
        }
    }

    /// A new life takes over what the last one promised, without its memory.
    pub(crate) fn honour_old_leases(&mut self, engine: usize, before: &Engine) {
        let (epoch, ranks) = (self.engines[engine].epoch, self.engines[engine].agents.len());
        for kept in before.prefill.kept.values() {
            let id = LeaseId { engine: epoch, ..kept.lease.id.clone() };
            let lease = connector::Lease { id: id.clone(), ..kept.lease.clone() };
            self.oracles.granted(self.now, engine, &id, (kept.request, kept.owner));
            for rank in 0..ranks {
                let who = Who::of(engine, rank, &self.engines[engine].agents[rank]);
                self.oracles.kept(self.now, who, &id);
                self.input(who, Input::Lease(lease.clone()));
            }
        }
    }

    /// Parameters as an engine reads them.
    pub(crate) fn params_as_read(&self, _engine: usize, params: &Rc<Value>) -> Rc<Value> {
        if !self.is_planted(Planted::OldEpoch) {
            return Rc::clone(params);
        }
        let port = params["remote_port"].as_u64().and_then(|port| usize::try_from(port).ok());
        let Some(engine) = port.and_then(|port| self.engines.get(port - 1)) else {
            return Rc::clone(params);
        };
        let mut params = Value::clone(params);
        params["kvferry"]["engine"] = Value::String(format!("{:016x}", engine.epoch.0));
        Rc::new(params)
    }
}
