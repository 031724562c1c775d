//! The same blocks from memory to memory.

use std::sync::{Arc, Barrier};
use std::thread;

use kvferry::transport::memory::SharedMemory;
use kvferry::transport::shm::plain;

use crate::bench::bytes;
use crate::bench::case::{Case, Kind};
use crate::bench::provided::Target;
use crate::bench::usage::Taken;
use crate::bench::words::Bare;
use crate::failure::{Code, Failure};

/// Blocks copied within this process, by one thread, out of memory of the kind that processes
/// share.
pub(in crate::bench) struct Memcpy {
    source: SharedMemory,
    moves: Vec<plain::Move>,
    target: Arc<Target>,
}

impl Memcpy {
    pub(in crate::bench) const NAME: &str = "memcpy";

    pub(in crate::bench) fn new(target: &Arc<Target>) -> Result<Self, Failure> {
        let source = SharedMemory::new(target.memory.words().len() * size_of::<u64>());
        let source = source.map_err(|why| Failure::new(Code::Failed, why))?;
        bytes::fill(source.words());
        Ok(Self { source, moves: moves(target), target: Arc::clone(target) })
    }
}

impl Case for Memcpy {
    fn name(&self) -> &str {
        Self::NAME
    }

    fn kind(&self) -> Kind {
        Kind::Memory
    }

    fn is_limit(&self) -> bool {
        true
    }

    fn poison(&mut self) {
        self.target.poison();
    }

    fn run(&mut self) -> Result<Taken, Failure> {
        Taken::by(|| {
            let copied = plain::copy(&self.source, &self.moves, &*self.target.memory);
            copied.map_err(|why| Failure::new(Code::Failed, why))
        })
    }

    fn wrong_bytes(&self) -> u64 {
        self.target.wrong_bytes()
    }
}

/// Blocks that the kernel copies out of the source's process, in as few calls as there can be.
pub(in crate::bench) struct Readv {
    name: String,
    threads: usize,
    source: Bare,
    moves: Vec<plain::Move>,
    target: Arc<Target>,
}

impl Readv {
    pub(in crate::bench) fn name_of(threads: usize) -> String {
        let word = if threads == 1 { "thread" } else { "threads" };
        format!("process_vm_readv {threads} {word}")
    }

    pub(in crate::bench) fn new(threads: usize, source: Bare, target: &Arc<Target>) -> Self {
        let (name, moves) = (Self::name_of(threads), moves(target));
        Self { name, threads, source, moves, target: Arc::clone(target) }
    }

    fn read(&self, moves: &[plain::Move]) -> Result<(), Failure> {
        let Bare { process, base } = self.source;
        plain::read(process, base, moves, &*self.target.memory).map_err(|why| {
            Failure::new(Code::Peer, format!("the kernel does not read the source's memory: {why}"))
        })
    }
}

impl Case for Readv {
    fn name(&self) -> &str {
        &self.name
    }

    fn kind(&self) -> Kind {
        Kind::Process
    }

    fn is_limit(&self) -> bool {
        true
    }

    fn poison(&mut self) {
        self.target.poison();
    }

    fn run(&mut self) -> Result<Taken, Failure> {
        if self.threads == 1 {
            return Taken::by(|| self.read(&self.moves));
        }
        let (start, this) = (&Barrier::new(self.threads + 1), &*self);
        thread::scope(|scope| {
            let mut shares = self.moves.chunks(self.moves.len().div_ceil(self.threads));
            let threads: Vec<_> = (0..self.threads)
                .map(|_| {
                    let share = shares.next().unwrap_or_default();
                    scope.spawn(move || {
                        start.wait();
                        this.read(share)
                    })
                })
                .collect();
            // The threads are there: only the moving is timed.
            Taken::by(|| {
                start.wait();
                let panicked = |_| Failure::new(Code::Failed, "a thread panicked");
                threads.into_iter().try_for_each(|thread| thread.join().map_err(panicked)?)
            })
        })
    }

    fn wrong_bytes(&self) -> u64 {
        self.target.wrong_bytes()
    }
}

fn moves(target: &Target) -> Vec<plain::Move> {
    let block = target.block as u64;
    let each = target.moves.iter();
    each.map(|at| plain::Move { from: at.source as u64, to: at.target as u64, len: block })
        .collect()
}
