//! The data channels: reads that copy blocks over time, and what P lets be read.

use std::collections::BTreeMap;

use connector::{AgentEpoch, ClaimId, Input, ReadFailure, ReadToken};

use super::World;
use super::events::{What, Who};
use super::memory::Cell;
use super::oracle::Oracle;
use super::planted::Planted;
use super::setup::{Fault, MS, SEC};

/// An endpoint cuts a read that was given up within this.
const FENCE: u64 = 2 * SEC;

/// What one rank of P is to be read for one request.
#[derive(Clone, Debug)]
pub(crate) struct ToRead {
    pub(crate) token: ReadToken,
    pub(crate) source: Who,
    /// Who owns the blocks at D.
    pub(crate) owner: u32,
    pub(crate) copies: Vec<Copied>,
    /// How often it was tried.
    pub(crate) tries: u32,
}

/// One block: where it lies at P, and where it goes at D.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Copied {
    pub(crate) group: usize,
    pub(crate) from: u32,
    pub(crate) to: u32,
    pub(crate) part: usize,
}

/// A read under way.
#[derive(Debug)]
pub(crate) struct Read {
    claim: ClaimId,
    pub(crate) d: Who,
    peer: AgentEpoch,
    pub(crate) what: ToRead,
    pace: Pace,
    /// Copies that have been taken from P.
    taken: usize,
    /// Taken, and not yet written at D.
    flying: Vec<(Copied, Cell)>,
    /// P's side is sending.
    pub(crate) serving: bool,
    pub(crate) ends: Option<ReadFailure>,
    last: u64,
}

#[derive(Clone, Copy, Debug)]
struct Pace {
    /// Copies at a time.
    piece: usize,
    gap: u64,
    /// After so many copies it stands still, for ever or for a time.
    stall: Option<(usize, u64)>,
    /// After so many copies it fails.
    fails: Option<usize>,
}

#[derive(Debug, Default)]
pub(crate) struct Endpoints {
    pub(crate) reads: BTreeMap<u64, Read>,
    next: u64,
}

impl Read {
    pub(crate) fn claim(&self) -> &ClaimId {
        &self.claim
    }

    pub(crate) fn reader(&self) -> Who {
        self.d
    }

    pub(crate) fn source(&self) -> Who {
        self.what.source
    }

    pub(crate) fn owner(&self) -> u32 {
        self.what.owner
    }

    /// Whether P's side may be sending this block.
    pub(crate) fn sends(&self, engine: usize, block: u32) -> bool {
        let of = |copied: &Copied| copied.from == block;
        self.serving && self.what.source.engine == engine && self.what.copies.iter().any(of)
    }
}

impl Endpoints {
    pub(crate) fn open(&self, d: Who, peer: AgentEpoch) -> usize {
        self.reads.values().filter(|read| read.d == d && read.peer == peer).count()
    }

    pub(crate) fn of(&self, fits: impl Fn(&Read) -> bool) -> Vec<u64> {
        self.reads.iter().filter(|(_, read)| fits(read)).map(|(id, _)| *id).collect()
    }

    /// A process has died: what it read ends with it.
    pub(crate) fn reader_died(&mut self, d: Who) {
        self.reads.retain(|_, read| read.d != d);
    }
}

impl World {
    /// Starts a read. Gives what the machine must be told at once, if anything.
    pub(crate) fn start_read(
        &mut self,
        who: Who,
        claim: ClaimId,
        peer: AgentEpoch,
    ) -> Option<Input> {
        let ended = |how| Some(Input::ReadEnded { claim: claim.clone(), peer, how: Err(how) });
        let agent = self.agent(who)?;
        if !agent.links.contains_key(&peer) {
            return ended(ReadFailure::PeerLost);
        }
        let Some(fetching) = self.agent_mut(who)?.fetching.get_mut(&claim) else {
            self.broken(Oracle::Reads, None, || format!("{who:?} reads {claim:?}, which ended"));
            return None;
        };
        let what = fetching.to_read.get_mut(&peer)?;
        what.tries += 1;
        let what = what.clone();
        if what.tries > 2 {
            self.broken(Oracle::Limits, None, || format!("{who:?} tries a third time: {claim:?}"));
        }
        if self.fault(Fault::Read, 100) {
            let how = [ReadFailure::Transport, ReadFailure::Refused][usize::from(self.chance(200))];
            return ended(how);
        }
        let mine = self.endpoints.reads.values().filter(|read| read.d == who).count();
        if mine >= self.terrain.queue {
            self.agent_mut(who)?.waiting.push_back((claim, peer));
        } else {
            self.submit(who, claim, peer, what);
        }
        None
    }

    fn submit(&mut self, d: Who, claim: ClaimId, peer: AgentEpoch, what: ToRead) {
        let pace = self.pace(what.copies.len());
        let id = self.endpoints.next;
        self.endpoints.next += 1;
        self.note(self.request_of(&claim), || format!("{d:?} reads {:?}: {pace:?}", what.source));
        let (taken, flying, serving) = (0, Vec::new(), false);
        let read = Read { claim, d, peer, what, pace, taken, flying, serving, ends: None, last: 0 };
        self.endpoints.reads.insert(id, read);
        let first = self.now + self.delay();
        self.queue.push(first, What::Piece { read: id });
        self.queue.push(self.now + self.terrain.overdue, What::Overdue { read: id });
    }

    fn pace(&mut self, copies: usize) -> Pace {
        let piece = 1 + self.pick(4);
        let mut pace = Pace { piece, gap: self.between(MS / 20, 2 * MS), stall: None, fails: None };
        let at = |world: &mut Self| world.pick(copies + 1);
        match self.between(0, 1000) {
            _ if !self.fault(Fault::Read, 2000) => {}
            0..250 => pace.gap = self.between(100 * MS, 3 * SEC),
            250..400 => pace.stall = Some((at(self), u64::MAX)),
            400..600 => {
                let time = self.between(SEC, self.terrain.overdue + FENCE);
                pace.stall = Some((at(self), time));
            }
            600..850 => pace.fails = Some(at(self)),
            _ => {}
        }
        pace
    }

    /// Writes what was under way, then takes the next blocks, or ends the read.
    pub(crate) fn piece(&mut self, id: u64) {
        self.land(id);
        let Some(read) = self.endpoints.reads.get_mut(&id) else { return };
        if read.ends.is_some() {
            return;
        }
        if read.taken == read.what.copies.len() {
            return self.end_read(id, Ok(()));
        }
        if let Some((at, time)) = read.pace.stall.filter(|(at, _)| read.taken >= *at) {
            if time < u64::MAX {
                read.pace.stall = None;
                self.queue.push(self.now + time, What::Piece { read: id });
            }
            let _ = at;
            return;
        }
        if read.pace.fails.is_some_and(|at| read.taken >= at) {
            return self.break_read(id, ReadFailure::Transport);
        }
        self.take(id);
    }

    /// Takes blocks from P's memory as it is now.
    fn take(&mut self, id: u64) {
        let Some(read) = self.endpoints.reads.get(&id) else { return };
        let (source, reader) = (read.what.source, read.d);
        let Some(agent) = self.agent(source) else {
            return self.break_read(id, ReadFailure::PeerLost);
        };
        if !self.terrain.one_sided && !self.may_read(agent.granted.get(&read.what.token), read) {
            return self.break_read(id, ReadFailure::Refused);
        }
        let end = (read.taken + read.pace.piece).min(read.what.copies.len());
        let memory = &self.engines[source.engine].memory;
        let copies = &read.what.copies[read.taken..end];
        let of = |copied: &Copied| (*copied, memory.read(source.rank, copied.from, 0));
        let flying = copies.iter().map(of).collect();
        let served = !self.terrain.one_sided;
        let now = self.now;
        let Some(read) = self.endpoints.reads.get_mut(&id) else { return };
        (read.flying, read.taken, read.last) = (flying, end, now);
        read.serving = served && end < read.what.copies.len();
        let _ = reader;
        self.queue.push(self.now + read.pace.gap, What::Piece { read: id });
    }

    /// What was taken before arrives in D's memory.
    fn land(&mut self, id: u64) {
        let Some(read) = self.endpoints.reads.get_mut(&id) else { return };
        let (flying, d, owner) = (std::mem::take(&mut read.flying), read.d, read.what.owner);
        let claim = read.claim.clone();
        for (copied, cell) in flying {
            let memory = &mut self.engines[d.engine].memory;
            if memory.owned(copied.to, owner).is_err() {
                let request = self.request_of(&claim);
                return self.broken(Oracle::WriteAfterFree, request, || {
                    format!("{d:?} writes into block {} of another owner", copied.to)
                });
            }
            memory.write(d.rank, copied.to, copied.part, cell);
        }
    }

    /// A read will end without being complete, but not at once.
    fn break_read(&mut self, id: u64, how: ReadFailure) {
        let after = match how {
            ReadFailure::PeerLost => self.between(0, FENCE),
            _ => self.delay(),
        };
        self.break_read_after(id, how, after);
    }

    fn break_read_after(&mut self, id: u64, how: ReadFailure, after: u64) {
        let Some(read) = self.endpoints.reads.get_mut(&id) else { return };
        read.serving = false;
        if read.ends.replace(how).is_none() {
            self.queue.push(self.now + after, What::Broken { read: id });
        }
    }

    pub(crate) fn read_broken(&mut self, id: u64) {
        self.land(id);
        let how = self.endpoints.reads.get(&id).and_then(|read| read.ends);
        if let Some(how) = how {
            self.end_read(id, Err(how));
        }
    }

    /// The terminal completion: nothing of this read touches memory any more.
    fn end_read(&mut self, id: u64, how: Result<(), ReadFailure>) {
        let Some(read) = self.endpoints.reads.remove(&id) else { return };
        let Read { claim, d, peer, what, last, .. } = read;
        self.note(self.request_of(&claim), || format!("{d:?} has read {:?}: {how:?}", what.source));
        let now = self.now;
        if let Some(fetching) = self.agent_mut(d).and_then(|agent| agent.fetching.get_mut(&claim)) {
            fetching.since = now;
            if how.is_ok() {
                fetching.taken.insert(what.source.rank, last);
            }
        }
        self.input(d, Input::ReadEnded { claim: claim.clone(), peer, how });
        if self.is_planted(Planted::SkipCommit) {
            self.publish_at_once(d, &claim);
        }
        self.next_read(d);
    }

    /// Room in the endpoint for a read that waits.
    fn next_read(&mut self, d: Who) {
        let Some((claim, peer)) = self.agent_mut(d).and_then(|agent| agent.waiting.pop_front())
        else {
            return;
        };
        let fetching = self.agent(d).and_then(|agent| agent.fetching.get(&claim));
        if let Some(what) = fetching.and_then(|fetching| fetching.to_read.get(&peer)).cloned() {
            self.submit(d, claim, peer, what);
        }
    }

    /// D wants a read to stop. Gives what the machine must be told where it had not begun.
    pub(crate) fn cancel_read(
        &mut self,
        who: Who,
        claim: &ClaimId,
        peer: AgentEpoch,
    ) -> Option<Input> {
        let agent = self.agent_mut(who)?;
        let before = agent.waiting.len();
        agent.waiting.retain(|(other, of)| other != claim || *of != peer);
        if agent.waiting.len() < before {
            let how = Err(ReadFailure::Stopped);
            return Some(Input::ReadEnded { claim: claim.clone(), peer, how });
        }
        let of = |read: &Read| read.d == who && read.claim == *claim && read.peer == peer;
        for id in self.endpoints.of(of) {
            let stuck = self.endpoints.reads.get(&id).is_some_and(|read| read.pace.stall.is_some());
            // What the network card does by itself cannot be called back.
            if !self.terrain.one_sided && !stuck {
                self.break_read(id, ReadFailure::Stopped);
            }
        }
        None
    }

    /// The channel to a peer is gone: its reads are cut within the bound of a fence.
    pub(crate) fn disconnect(&mut self, d: Who, peer: AgentEpoch) {
        for id in self.endpoints.of(|read| read.d == d && read.peer == peer) {
            self.break_read(id, ReadFailure::PeerLost);
        }
    }

    pub(crate) fn overdue(&mut self, id: u64) {
        let Some(read) = self.endpoints.reads.get(&id) else { return };
        let (d, claim) = (read.d, read.claim.clone());
        self.note(self.request_of(&claim), || format!("{d:?}: a read is overdue"));
        let after = self.between(0, FENCE);
        self.queue.push(self.now + after, What::Fence { read: id });
        self.input(d, Input::Overdue(claim.clone()));
        if self.is_planted(Planted::FreeByClock) {
            self.free_by_clock(d, &claim);
        }
    }

    /// An overdue read still has not ended: everything of its peer, or of its endpoint, is cut.
    pub(crate) fn fence(&mut self, id: u64) {
        let Some(read) = self.endpoints.reads.get(&id) else { return };
        let (d, peer, all) = (read.d, read.peer, self.terrain.fence_all);
        for id in self.endpoints.of(|read| read.d == d && (all || read.peer == peer)) {
            let how = ReadFailure::Transport;
            self.land(id);
            self.end_read(id, Err(how));
        }
    }
}
