//! The scheduler of a prefill engine: admits prompts while blocks are free, computes, and keeps
//! the blocks of what it has finished until its workers have given them back.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use connector::{Event, Finished, LeaseId, Nonce, Outcome, RequestId};
use kv_layout::BlockTable;
use rand::RngExt;

use super::World;
use super::memory::{Cell, NotOwned, Tag};
use super::oracle::Oracle;
use super::planted::Planted;
use super::router::{BLOCK, GROUPS, Prompt, first_block};
use super::setup::{Fault, SEC};
use super::story::Story;

#[derive(Debug, Default)]
pub(crate) struct PrefillDesk {
    /// Prompts that wait for blocks.
    queue: VecDeque<u32>,
    running: Vec<Running>,
    pub(crate) kept: BTreeMap<LeaseId, Kept>,
}

/// A prompt that is being computed.
#[derive(Debug)]
struct Running {
    request: u32,
    owner: u32,
    lists: Vec<Arc<[u32]>>,
    steps: u64,
}

/// The blocks of a lease.
#[derive(Debug)]
pub(crate) struct Kept {
    pub(crate) request: u32,
    pub(crate) owner: u32,
    pub(crate) lists: Vec<Arc<[u32]>>,
    /// What the workers were told to keep.
    pub(crate) lease: connector::Lease,
}

impl World {
    /// A prompt reaches a prefill engine.
    pub(crate) fn prompt(&mut self, request: u32, engine: usize) {
        self.engines[engine].prefill.queue.push_back(request);
        self.kick(engine);
    }

    pub(crate) fn step_prefill(&mut self, engine: usize, whole: bool) {
        for (rank, event) in std::mem::take(&mut self.engines[engine].inbox) {
            if let Event::Freed { lease, .. } = event {
                self.engines[engine].scheduler.freed(&lease, rank);
            }
        }
        while let Some(outcome) = self.engines[engine].scheduler.poll_outcome() {
            if let Outcome::Freed(lease) = outcome {
                self.lease_freed(engine, &lease);
            }
        }
        if !whole {
            return;
        }
        if self.is_planted(Planted::FreeEarly) && self.chance(50) {
            self.free_early(engine);
        }
        self.compute(engine);
        self.admit_prompts(engine);
        let desk = &self.engines[engine].prefill;
        if !desk.running.is_empty() {
            self.kick(engine);
        }
    }

    fn lease_freed(&mut self, engine: usize, lease: &LeaseId) {
        let Some(kept) = self.engines[engine].prefill.kept.remove(lease) else {
            return self.broken(Oracle::FreedTwice, self.lease_of(lease), || {
                format!("{lease:?} is freed, and nobody keeps it")
            });
        };
        let (request, late) = (kept.request, self.oracles.returned(lease));
        let stood = self.engines[engine].steps.stood_until;
        if late.is_some_and(|since| self.now > since.max(stood) + SEC) {
            self.broken(Oracle::LateFree, Some(request), || {
                format!("the blocks of {lease:?} came back a second late")
            });
        }
        self.give_at_p(engine, &kept);
        if self.is_planted(Planted::FreeTwice) {
            self.give_at_p(engine, &kept);
        }
        if self.engines[engine].prefill.queue.front().is_some() {
            self.kick(engine);
        }
    }

    /// Blocks go back to the pool, and are painted over at once.
    pub(crate) fn give_at_p(&mut self, engine: usize, kept: &Kept) {
        let mut served = self.endpoints.reads.values().filter(|read| {
            read.serving && read.source().engine == engine && self.agent(read.source()).is_some()
        });
        let block = kept.lists.iter().flat_map(|list| list.iter()).copied();
        let hit = served.find(|read| block.clone().any(|block| read.sends(engine, block)));
        if let Some(reader) = hit.map(super::endpoint::Read::reader) {
            return self.broken(Oracle::FreedWhileServed, Some(kept.request), || {
                format!("engine {engine} frees blocks that it is sending to {reader:?}")
            });
        }
        self.give(engine, &kept.lists, kept.owner, kept.request);
    }

    /// Gives blocks of either side back.
    pub(crate) fn give(&mut self, engine: usize, lists: &[Arc<[u32]>], owner: u32, request: u32) {
        if let Err(NotOwned { block }) = self.engines[engine].memory.give(lists, owner) {
            self.broken(Oracle::FreedTwice, Some(request), || {
                format!("engine {engine} frees block {block} of another owner")
            });
        }
    }

    fn admit_prompts(&mut self, engine: usize) {
        while let Some(&request) = self.engines[engine].prefill.queue.front() {
            let prompt = self.router.prompt_of(request);
            let owner = self.book.owners + 1;
            let Some(lists) = self.engines[engine].memory.take(&prompt.blocks(), owner) else {
                return;
            };
            self.book.owners = owner;
            self.engines[engine].prefill.queue.pop_front();
            self.write(engine, prompt, owner, &lists);
            let steps = self.between(1, 4);
            self.note(Some(request), || format!("engine {engine} prefills into {lists:?}"));
            let running = Running { request, owner, lists, steps };
            self.engines[engine].prefill.running.push(running);
        }
    }

    /// What the forward pass leaves on every rank.
    fn write(&mut self, engine: usize, prompt: Prompt, write: u32, lists: &[Arc<[u32]>]) {
        let (story, terrain) = (self.router.story(prompt, self.terrain.heads()), &self.terrain);
        let engine = &mut self.engines[engine];
        for (group, list) in lists.iter().enumerate() {
            for (block, &id) in (first_block(group, prompt.tokens)..).zip(list.iter()) {
                for rank in 0..engine.agents.len() {
                    let tag = Tag { write, group, block, rank };
                    let page = |story: &Story| story.page(group, block, terrain.head(rank));
                    let numbers = story.as_deref().map(page);
                    engine.memory.write(rank, id, 0, Cell { tag, numbers });
                }
            }
        }
    }

    fn compute(&mut self, engine: usize) {
        let running = std::mem::take(&mut self.engines[engine].prefill.running);
        for mut running in running {
            running.steps -= 1;
            if running.steps > 0 {
                self.engines[engine].prefill.running.push(running);
            } else if self.fault(Fault::Abort, 300) {
                self.prompt_lost(engine, &running);
            } else {
                self.finish(engine, running);
            }
        }
    }

    /// The client went away, or the engine could not compute: nothing is handed off.
    fn prompt_lost(&mut self, engine: usize, running: &Running) {
        self.give(engine, &running.lists, running.owner, running.request);
        self.book.tally.count("not prefilled");
    }

    fn finish(&mut self, engine: usize, running: Running) {
        let Running { request, owner, lists, .. } = running;
        let prompt = self.router.prompt_of(request);
        let table = |(group, ids): (usize, &Arc<[u32]>)| {
            let first_token = u64::from(first_block(group, prompt.tokens)) * u64::from(BLOCK);
            BlockTable { first_token, ids: Arc::clone(ids) }
        };
        let tables: Arc<[BlockTable]> = lists.iter().enumerate().map(table).collect();
        let Ok(name) = RequestId::new(&format!("p{request}-{owner}")) else { return };
        let (digest, nonce) = (self.router.digest(prompt, prompt.tokens), self.random.random());
        let prompt = digest;
        let finished = Finished { request: name, nonce: Nonce(nonce), prompt, tables };
        let tables = Arc::clone(&finished.tables);
        match self.engines[engine].scheduler.finish(finished) {
            Ok(params) => {
                let id = params.lease.clone();
                self.note(Some(request), || format!("engine {engine} grants {id:?}"));
                self.oracles.granted(self.now, engine, &id, (request, owner));
                let lease = connector::Lease { id: id.clone(), prompt, tables };
                let kept = Kept { request, owner, lists, lease };
                let hint = Arc::clone(&kept.lease.tables);
                self.engines[engine].prefill.kept.insert(id, kept);
                self.answered(request, &params, hint);
            }
            Err(why) => {
                self.broken(Oracle::Ends, Some(request), || format!("not finished: {why}"));
            }
        }
    }

    /// A worker is gone: what is being computed cannot go on.
    pub(crate) fn prefills_lost(&mut self, engine: usize) {
        for running in std::mem::take(&mut self.engines[engine].prefill.running) {
            self.prompt_lost(engine, &running);
        }
    }

    pub(crate) fn prompts_waiting(&self, engine: usize) -> usize {
        let desk = &self.engines[engine].prefill;
        desk.queue.len() + desk.running.len()
    }
}

impl Prompt {
    /// Blocks of each group.
    pub(crate) fn blocks(self) -> [usize; GROUPS] {
        let last = self.tokens.div_ceil(BLOCK);
        std::array::from_fn(|group| (last - first_block(group, self.tokens)) as usize)
    }
}
