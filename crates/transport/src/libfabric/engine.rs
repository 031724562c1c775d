//! Works become operations and operations become reports, without threads, clocks or a library:
//! what a random fabric can be put under.

use std::collections::{HashMap, HashSet, VecDeque};
use std::os::fd::AsFd;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags};

use super::notices::Notices;
use super::plan::Exposure;
use super::seam::{Fabric, Found, OperationFault, Post, PostFault, Registering, unique};
use super::slots::{Slots, Token};
use super::tally::Tally;
use super::work::Running;
use super::{
    FabricPeer, FenceError, MemoryError, Notice, Outcome, PeerError, Work, WorkError, WorkId,
};
use crate::bell::{Bell, sleep};
use crate::sync::lock;

/// Operations of one work before another has its turn.
const BURST: usize = 16;

/// One domain's works.
pub(super) struct Engine<F> {
    pub(super) fabric: F,
    slots: Slots<WorkId>,
    works: HashMap<WorkId, Running>,
    /// Works with something left to post, in the order of their turns.
    turns: VecDeque<WorkId>,
    peers: HashMap<FabricPeer, Leaving>,
    memories: HashSet<u64>,
    found: Vec<Found>,
    tally: Arc<Mutex<Tally>>,
    notices: Arc<Notices>,
    broken: Option<String>,
}

/// Whether a peer is to be forgotten when its last work ends.
type Leaving = bool;

impl<F: Fabric> Engine<F> {
    pub(super) fn new(fabric: F, tally: Arc<Mutex<Tally>>, notices: Arc<Notices>) -> Self {
        let slots = Slots::new(fabric.facts().operations);
        Self {
            fabric,
            slots,
            works: HashMap::new(),
            turns: VecDeque::new(),
            peers: HashMap::new(),
            memories: HashSet::new(),
            found: Vec::new(),
            tally,
            notices,
            broken: None,
        }
    }

    /// Whether works are open.
    pub(super) fn is_busy(&self) -> bool {
        !self.works.is_empty()
    }

    /// Whether nothing can happen any more before a fence.
    pub(super) fn is_broken(&self) -> bool {
        self.broken.is_some()
    }

    /// Waits until the bell rings, for so long, or less if there may be something to poll; true if
    /// the card has said that there is. A broken endpoint is not asked: it may say so for good.
    pub(super) fn sleep(&mut self, bell: &Bell, at_most: Duration) -> bool {
        if self.broken.is_none() {
            return self.fabric.sleep(bell, at_most);
        }
        let mut bell = [PollFd::from_borrowed_fd(bell.as_fd(), PollFlags::IN)];
        if sleep(&mut bell, Some(at_most)).is_err() {
            std::thread::sleep(at_most);
        }
        false
    }

    /// Whether there is memory that peers may reach for.
    pub(super) fn is_target(&self) -> bool {
        !self.memories.is_empty()
    }

    pub(super) fn insert(&mut self, address: &[u8]) -> Result<FabricPeer, PeerError> {
        let peer = FabricPeer::new();
        self.fabric.insert(peer, address)?;
        self.peers.insert(peer, false);
        Ok(peer)
    }

    /// Forgets a peer, as soon as nothing of its works flies any more; they fail.
    pub(super) fn remove(&mut self, peer: FabricPeer) {
        if let Some(leaving) = self.peers.get_mut(&peer) {
            *leaving = true;
        }
        let works = self.works.iter_mut().filter(|(_, work)| work.peer == peer);
        let ids: Vec<WorkId> = works
            .map(|(id, work)| {
                work.give_up(Outcome::Failed(WorkError::NoPeer));
                *id
            })
            .collect();
        ids.into_iter().for_each(|id| self.end_if_over(id));
        self.forget_if_left(peer);
    }

    /// Gives the registration's name and how its parts are reached.
    pub(super) fn register(
        &mut self,
        name: impl FnOnce(u64) -> Registering,
    ) -> Result<(u64, Vec<Exposure>), MemoryError> {
        let id = unique();
        let exposures = self.fabric.register(name(id))?;
        self.memories.insert(id);
        Ok((id, exposures))
    }

    pub(super) fn deregister(&mut self, id: u64) -> Result<(), MemoryError> {
        if !self.memories.contains(&id) {
            return Err(MemoryError::Unknown);
        }
        if self.works.values().any(|work| work.uses(id)) {
            return Err(MemoryError::InUse);
        }
        self.memories.remove(&id);
        self.fabric.deregister(id)
    }

    /// Takes a work, which is reported once from now on.
    pub(super) fn submit(&mut self, work: Work) {
        let id = work.id;
        if self.works.contains_key(&id) {
            // The driver refuses it: a report would be taken for that of the work under way.
            return tracing::error!(?id, "a work of this name is open");
        }
        if let Err(why) = self.admit(&work) {
            return self.notices.push(Notice::Ended { id, outcome: Outcome::Failed(why) });
        }
        self.works.insert(id, Running::new(work));
        self.turns.push_back(id);
        self.end_if_over(id);
    }

    fn admit(&self, work: &Work) -> Result<(), WorkError> {
        if let Some(why) = &self.broken {
            return Err(WorkError::Broken { why: why.clone() });
        }
        if self.peers.get(&work.peer) != Some(&false) {
            return Err(WorkError::NoPeer);
        }
        let mut segments = work.plan.segments().iter();
        let known = segments.all(|segment| self.memories.contains(&segment.memory));
        if known { Ok(()) } else { Err(WorkError::NoMemory) }
    }

    pub(super) fn cancel(&mut self, id: WorkId) {
        if let Some(work) = self.works.get_mut(&id) {
            work.give_up(Outcome::Cancelled);
            self.end_if_over(id);
        }
    }

    /// Posts what can be posted, and takes in what is over; true if anything was.
    pub(super) fn turn(&mut self) -> bool {
        let posted = self.broken.is_none() && self.post();
        // Also where nothing is under way: others' operations run in it.
        let took = self.broken.is_none() && self.poll();
        posted || took
    }

    /// Each work has a turn, until all have had one in vain. A fabric that is full for one peer,
    /// which may not be connected yet, may have room for another.
    fn post(&mut self) -> bool {
        let mut any = false;
        let mut full: Vec<FabricPeer> = Vec::new();
        let mut vain = 0;
        while vain < self.turns.len() && !self.slots.is_full() {
            let Some(id) = self.turns.pop_front() else { break };
            let Some(peer) = self.works.get(&id).map(|work| work.peer) else { continue };
            let (posted, is_full) = if full.contains(&peer) { (0, true) } else { self.burst(id) };
            if is_full && !full.contains(&peer) {
                full.push(peer);
            }
            any |= posted > 0;
            vain = if posted > 0 { 0 } else { vain + 1 };
            if self.works.get(&id).is_some_and(|work| work.next().is_some()) {
                self.turns.push_back(id);
            }
        }
        any
    }

    /// Posts some operations of a work: how many, and whether the fabric is full.
    fn burst(&mut self, id: WorkId) -> (usize, bool) {
        let mut posted = 0;
        while posted < BURST
            && let Some(work) = self.works.get_mut(&id)
            && let Some((action, segment)) = work.next()
            && let Some(token) = self.slots.take(id)
        {
            match self.fabric.post(&Post { token, action, peer: work.peer, segment }) {
                Ok(()) => work.posted(),
                Err(fault) => {
                    self.slots.give_back(token);
                    let PostFault::Refused(why) = fault else { return (posted, true) };
                    let (code, why) = (why.code, why.why);
                    work.give_up(Outcome::Failed(WorkError::Operation { code, why }));
                    self.end_if_over(id);
                    return (posted, false);
                }
            }
            posted += 1;
        }
        (posted, false)
    }

    fn poll(&mut self) -> bool {
        let mut found = std::mem::take(&mut self.found);
        let polled = self.fabric.poll(&mut found);
        let any = !found.is_empty();
        for found in found.drain(..) {
            match found {
                Found::Ended(token, result) => self.landed(token, result),
                Found::Word(word) => self.arrived(word),
            }
        }
        self.found = found;
        if let Err(why) = polled {
            self.breaks(why);
        }
        any
    }

    fn landed(&mut self, token: Token, result: Result<(), OperationFault>) {
        // A name that is over means nothing any more.
        let Some(id) = self.slots.give_back(token) else { return };
        if let Some(work) = self.works.get_mut(&id) {
            work.landed(result);
            self.end_if_over(id);
        }
    }

    fn arrived(&self, word: u32) {
        let arrived = lock(&self.tally).arrive(word);
        if let Some(counter) = arrived {
            self.notices.push(Notice::Arrived { counter });
        }
    }

    /// Nothing is posted any more. What flies stays in flight: only a fence ends it.
    fn breaks(&mut self, why: String) {
        let ids: Vec<WorkId> = self.works.keys().copied().collect();
        for id in ids {
            if let Some(work) = self.works.get_mut(&id) {
                work.give_up(Outcome::Failed(WorkError::Broken { why: why.clone() }));
            }
            self.end_if_over(id);
        }
        self.notices.push(Notice::Broken { why: why.clone() });
        self.broken = Some(why);
    }

    fn end_if_over(&mut self, id: WorkId) {
        let Some(outcome) = self.works.get(&id).and_then(Running::ended) else { return };
        self.end(id, outcome);
    }

    fn end(&mut self, id: WorkId, outcome: Outcome) {
        let Some(work) = self.works.remove(&id) else { return };
        self.turns.retain(|turn| *turn != id);
        self.notices.push(Notice::Ended { id, outcome });
        self.forget_if_left(work.peer);
    }

    fn forget_if_left(&mut self, peer: FabricPeer) {
        let leaving = self.peers.get(&peer) == Some(&true);
        if leaving && self.works.values().all(|work| work.peer != peer) {
            self.peers.remove(&peer);
            self.fabric.remove(peer);
        }
    }

    /// Closes the endpoint, so that nothing flies any more, ends all works, and opens another.
    /// Peers have to be inserted anew, and to learn the new address.
    pub(super) fn fence(&mut self) -> Result<Vec<u8>, FenceError> {
        let reopened = self.fabric.reopen();
        if let Err(FenceError::StillOpen { why }) = reopened {
            // Nobody knows whether it is there: nothing more may be asked of it.
            if self.broken.is_none() {
                self.breaks(why.clone());
            }
            return Err(FenceError::StillOpen { why });
        }
        self.slots.clear();
        self.peers.clear();
        let ids: Vec<WorkId> = self.works.keys().copied().collect();
        for id in ids {
            let outcome = self.works.get(&id).map(Running::fenced);
            outcome.into_iter().for_each(|outcome| self.end(id, outcome));
        }
        self.broken = reopened.as_ref().err().map(ToString::to_string);
        reopened.map(|()| self.fabric.address().to_vec())
    }
}
