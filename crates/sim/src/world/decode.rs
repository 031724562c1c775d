//! The scheduler of a decode engine: has requests fetched while they wait, gives them blocks
//! when there are some, and runs them when their bytes count.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use connector::{Allocation, ClaimId, Ended, Event, Failure, Offer, Outcome, RequestId};
use kv_layout::{BlockTable, Kind};

use super::World;
use super::endpoint::{Copied, ToRead};
use super::engine::Engine;
use super::events::{What, Who};
use super::memory::Tag;
use super::oracle::Oracle;
use super::planted::Planted;
use super::router::{BLOCK, Delivery, GROUPS, Prompt, WINDOW, first_block};
use super::setup::{Fault, MS, SEC};

#[derive(Debug, Default)]
pub(crate) struct DecodeDesk {
    pub(crate) arrivals: VecDeque<Delivery>,
    pub(crate) requests: BTreeMap<RequestId, Local>,
    /// Requests without blocks, in the order in which they came.
    pub(crate) queue: VecDeque<RequestId>,
    pub(crate) named: u64,
}

/// A request of a decode engine.
#[derive(Debug)]
pub(crate) struct Local {
    pub(crate) request: u32,
    pub(crate) owner: u32,
    pub(crate) claim: ClaimId,
    pub(crate) prompt: Prompt,
    /// Blocks at the front of the prompt that its own cache has.
    pub(crate) hit: u32,
    pub(crate) state: State,
    pub(crate) lists: Vec<Arc<[u32]>>,
    /// What the parameters said, for an engine that believes them.
    pub(crate) hint: Arc<[BlockTable]>,
    pub(crate) fetched: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum State {
    /// It has no blocks.
    Queued,
    /// Its blocks belong to the hand-off.
    Loading,
    Running,
}

impl World {
    pub(crate) fn params(&mut self, delivery: Delivery) {
        self.router.carried -= 1;
        let engine = delivery.engine;
        if !self.engines[engine].up {
            return self.book.tally.count("decode engine down");
        }
        self.engines[engine].decode.arrivals.push_back(delivery);
        self.kick(engine);
    }

    pub(crate) fn step_decode(&mut self, engine: usize, whole: bool) {
        for (rank, event) in std::mem::take(&mut self.engines[engine].inbox) {
            let (claim, how) = match event {
                Event::Received { claim } => (claim, Ended::Received),
                Event::Failed { claim, failure } => (claim, Ended::Failed(failure)),
                Event::Released { claim } => (claim, Ended::Released),
                Event::Nothing { claim } => (claim, Ended::Nothing),
                _ => continue,
            };
            self.engines[engine].scheduler.ended(rank, &claim, how);
        }
        while let Some(outcome) = self.engines[engine].scheduler.poll_outcome() {
            if self.is_planted(Planted::ReportTwice) {
                self.outcome(engine, outcome.clone());
            }
            self.outcome(engine, outcome);
        }
        if whole {
            while let Some(delivery) = self.engines[engine].decode.arrivals.pop_front() {
                self.arrive(engine, &delivery);
            }
            self.allocate(engine);
        }
    }

    /// First come, first served.
    fn allocate(&mut self, engine: usize) {
        while let Some(name) = self.engines[engine].decode.queue.front().cloned() {
            let Engine { memory, decode, scheduler, .. } = &mut self.engines[engine];
            if let Some(local) = decode.requests.get_mut(&name) {
                let Some(lists) = memory.take(&local.prompt.blocks(), local.owner) else { return };
                (local.lists, local.state) = (lists, State::Loading);
                scheduler.allocate(&name, local.allocation());
            }
            decode.queue.pop_front();
        }
    }

    fn outcome(&mut self, engine: usize, outcome: Outcome) {
        let (name, how) = match outcome {
            Outcome::Received(name) => (name, Ok(true)),
            Outcome::Released(name) => (name, Ok(false)),
            Outcome::Failed { request, failure, recompute_from } => {
                (request, Err((failure, recompute_from)))
            }
            Outcome::Freed(_) => return,
        };
        let Some(local) = self.engines[engine].decode.requests.get(&name) else {
            return self.broken(Oracle::Ends, None, || format!("{name} ended before: {how:?}"));
        };
        let (request, state) = (local.request, local.state);
        self.note(Some(request), || format!("engine {engine}: {name} ended: {how:?}"));
        match how {
            Ok(_) if state != State::Loading => {
                self.broken(Oracle::Ends, Some(request), || format!("{name} ends in {state:?}"));
            }
            Ok(true) => self.received(engine, &name),
            Ok(false) => self.leave(engine, &name, "released"),
            Err((failure, recompute)) => self.failed(engine, &name, &failure, recompute),
        }
    }

    fn failed(
        &mut self,
        engine: usize,
        name: &RequestId,
        failure: &Failure,
        recompute: Option<u64>,
    ) {
        let Some(local) = self.engines[engine].decode.requests.get(name) else { return };
        let (request, had) = (local.request, u64::from(local.hit * BLOCK));
        let born = self.oracles.born(&local.claim.lease);
        let well = born.is_some_and(|born| born > self.terrain.well_at());
        // An engine that is so far behind cannot hold a claim for ever.
        let behind = self.now > local.fetched + 500 * SEC;
        let right = match local.state {
            State::Queued => recompute.is_none(),
            State::Loading => recompute.is_some_and(|from| from <= had),
            State::Running => false,
        };
        if !right {
            let state = local.state;
            self.broken(Oracle::Ends, Some(request), || {
                format!("{name} fails in {state:?}, computes from {recompute:?}, had {had}")
            });
        }
        if !behind && (well || self.terrain.setup.faults.is_none()) {
            self.broken(Oracle::Unserved, Some(request), || {
                format!("{name} failed although nothing went wrong: {failure}")
            });
        }
        self.leave(engine, name, failure_name(failure));
    }

    /// Only now may anybody see the blocks.
    fn received(&mut self, engine: usize, name: &RequestId) {
        self.look_at_next_token(engine, name);
        self.look_at_bytes(engine, name);
        self.book.tally.count("received");
        let Some(local) = self.engines[engine].decode.requests.get_mut(name) else { return };
        local.state = State::Running;
        if self.fault(Fault::Abort, 600) {
            return self.leave(engine, name, "preempted");
        }
        let (at, life) = (self.now + self.between(20 * MS, 4 * SEC), self.engines[engine].life);
        self.queue.push(at, What::Decoded { engine, life, name: name.clone() });
    }

    pub(crate) fn decoded(&mut self, engine: usize, name: &RequestId) {
        if self.engines[engine].decode.requests.contains_key(name) {
            self.leave(engine, name, "decoded");
        }
    }

    /// A client goes away.
    pub(crate) fn abort(&mut self, engine: usize, name: &RequestId) {
        let Engine { decode, scheduler, .. } = &mut self.engines[engine];
        let Some(local) = decode.requests.get(name) else { return };
        match local.state {
            State::Running => self.leave(engine, name, "aborted"),
            // Its outcome says when its blocks may be used again.
            State::Loading => scheduler.release(name),
            State::Queued => {
                scheduler.release(name);
                self.leave(engine, name, "aborted");
            }
        }
        self.kick(engine);
    }

    /// A request is over: its blocks go back.
    pub(crate) fn leave(&mut self, engine: usize, name: &RequestId, how: &'static str) {
        let Some(local) = self.engines[engine].decode.requests.remove(name) else { return };
        self.book.tally.count(how);
        self.look_for_reads_into(engine, local.owner, local.request);
        self.give(engine, &local.lists, local.owner, local.request);
        self.engines[engine].decode.queue.retain(|queued| queued != name);
        if !self.engines[engine].decode.queue.is_empty() {
            self.kick(engine);
        }
    }

    /// A part of what is being decoded is gone.
    pub(crate) fn decodes_lost(&mut self, engine: usize, how: &'static str) {
        let all = self.engines[engine].decode.requests.iter();
        let running = all.filter(|(_, local)| local.state == State::Running);
        let names: Vec<_> = running.map(|(name, _)| name.clone()).collect();
        names.iter().for_each(|name| self.leave(engine, name, how));
    }

    /// What one rank is to read of what it was offered.
    pub(crate) fn plan(&self, who: Who, claim: &ClaimId, offers: &[Offer]) -> Reads {
        let requests = &self.engines[who.engine].decode.requests;
        let Some(local) = requests.get(&claim.request) else { return Reads::new() };
        let sources = &self.terrain.sources[who.rank];
        let of = |offer: &Offer| {
            let source = self.network.names.get(&offer.peer)?;
            let part = sources.iter().position(|rank| *rank == source.rank)?;
            let trusting = self.is_planted(Planted::TrustParams);
            let tables = if trusting { &local.hint } else { &offer.tables };
            let copies = local.copies(tables, part);
            let to_read = ToRead {
                token: offer.token,
                source: *source,
                owner: local.owner,
                copies,
                tries: 0,
            };
            Some((offer.peer, to_read))
        };
        offers.iter().filter_map(of).collect()
    }

    /// Every block must hold what the prefill of this request's lease wrote.
    fn look_at_bytes(&mut self, engine: usize, name: &RequestId) {
        let Some(local) = self.engines[engine].decode.requests.get(name) else { return };
        let Some(write) = self.oracles.write_of(&local.claim.lease) else { return };
        let prefilled = self.oracles.request_of(&local.claim.lease);
        let same = prefilled.map(|request| self.router.prompt_of(request));
        let right =
            same.is_some_and(|p| (p.text, p.tokens) == (local.prompt.text, local.prompt.tokens));
        let memory = &self.engines[engine].memory;
        let mut wrong = (!right).then(|| format!("the prompt was another: {same:?}"));
        for (rank, sources) in self.terrain.sources.iter().enumerate() {
            for (part, source) in sources.iter().enumerate() {
                for (group, block, id) in local.wanted() {
                    let tag = Tag { write, group, block, rank: *source };
                    let found = memory.read(rank, id, part).tag;
                    if found != tag {
                        wrong = Some(format!("rank {rank} has {found:?} instead of {tag:?}"));
                    }
                }
            }
        }
        let request = local.request;
        if let Some(wrong) = wrong {
            self.broken(Oracle::WrongBytes, Some(request), || format!("{name}: {wrong}"));
        }
    }

    pub(crate) fn requests_waiting(&self, engine: usize) -> usize {
        let desk = &self.engines[engine].decode;
        desk.requests.len() + desk.arrivals.len()
    }
}

/// Of each rank of P, what is to be read of it.
type Reads = BTreeMap<connector::AgentEpoch, ToRead>;

impl Local {
    fn allocation(&self) -> Allocation {
        let hit = u64::from(self.hit * BLOCK);
        let window = Kind::SlidingWindow { window: WINDOW };
        Allocation {
            // Its fake memory goes by the lists.
            tables: [].into(),
            resume_at: u64::from(self.prompt.tokens) - 1,
            align: 1,
            groups: vec![(Kind::Full, hit), (window, hit)],
        }
    }

    /// Each block that is not in its own cache: group, number and id.
    fn wanted(&self) -> impl Iterator<Item = (usize, u32, u32)> + '_ {
        (0..GROUPS).zip(&self.lists).flat_map(move |(group, list)| {
            let blocks = (first_block(group, self.prompt.tokens)..).zip(list.iter());
            let wanted = blocks.filter(|(block, _)| *block >= self.hit);
            wanted.map(move |(block, id)| (group, block, *id))
        })
    }

    fn copies(&self, tables: &[BlockTable], part: usize) -> Vec<Copied> {
        let from = |group: usize, block: u32| {
            let table = tables.get(group)?;
            let first = u32::try_from(table.first_token).ok()? / BLOCK;
            table.ids.get(block.checked_sub(first)? as usize).copied()
        };
        let copy = |(group, block, to)| Some(Copied { group, from: from(group, block)?, to, part });
        self.wanted().filter_map(copy).collect()
    }
}

fn failure_name(failure: &Failure) -> &'static str {
    match failure {
        Failure::Valid { .. } => "failed: other number of tokens",
        Failure::Digest => "failed: other prompt",
        Failure::Unknown => "failed: unknown lease",
        Failure::Over => "failed: over",
        Failure::NoAnswer => "failed: no answer",
        Failure::PeerLost => "failed: peer lost",
        Failure::Handshake => "failed: no handshake",
        Failure::Withdrawn => "failed: withdrawn",
        Failure::Read(_) => "failed: not read",
        _ => "failed: otherwise",
    }
}
