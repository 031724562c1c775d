use std::sync::Arc;
use std::sync::Barrier;
use std::thread;

use transport::memory::{HostMemory, SharedMemory};
use transport::shm::plain::{self, Move};

use crate::other::{Other, filled_shared};
use crate::ours::Target;
use crate::table::Taken;
use crate::workload::Workload;
use crate::{Fallible, Mover};

/// The same blocks by hand: calls of `process_vm_readv`, or of `memcpy`.
pub struct Floor {
    from: From,
    moves: Vec<Move>,
    target: Target,
    threads: usize,
}

enum From {
    Process(Arc<Other>),
    Memory(Arc<SharedMemory>),
}

impl Floor {
    pub fn across(workload: &Workload, other: &Arc<Other>, threads: usize) -> Fallible<Self> {
        Self::new(workload, From::Process(Arc::clone(other)), threads)
    }

    pub fn memcpy(workload: &Workload) -> Fallible<Self> {
        Self::new(workload, From::Memory(filled_shared(workload.pool_bytes())?), 1)
    }

    fn new(workload: &Workload, from: From, threads: usize) -> Fallible<Self> {
        let block =
            |(from, to)| Move { from: from as u64, to: to as u64, len: workload.block as u64 };
        let moves = workload.moves().into_iter().map(block).collect();
        let memory = Arc::new(HostMemory::new(workload.pool_bytes())?);
        Ok(Self { from, moves, target: Target::new(workload, memory), threads })
    }

    fn share(&self, moves: &[Move]) -> std::io::Result<()> {
        let target = &*self.target.memory;
        match &self.from {
            From::Process(other) => plain::read(other.id(), other.base, moves, target),
            From::Memory(source) => plain::copy(&**source, moves, target),
        }
    }
}

impl Mover for Floor {
    fn name(&self) -> String {
        match self.from {
            From::Process(_) => format!("process_vm_readv, {} threads", self.threads),
            From::Memory(_) => "memcpy".to_owned(),
        }
    }

    fn poison(&mut self) {
        self.target.poison();
    }

    fn run(&mut self) -> Fallible<Taken> {
        if self.threads == 1 {
            return Taken::by(|| Ok(self.share(&self.moves)?));
        }
        let start = Barrier::new(self.threads + 1);
        let process = match &self.from {
            From::Process(other) => (other.id(), other.base),
            From::Memory(_) => return Err("memcpy has one thread here".into()),
        };
        let (start, target) = (&start, &*self.target.memory);
        thread::scope(|scope| {
            let shares = self.moves.chunks(self.moves.len().div_ceil(self.threads));
            let threads: Vec<_> = shares
                .map(|moves| {
                    scope.spawn(move || {
                        start.wait();
                        plain::read(process.0, process.1, moves, target)
                    })
                })
                .collect();
            // The threads are there: only the moving is timed.
            Taken::by(|| {
                start.wait();
                threads
                    .into_iter()
                    .try_for_each(|thread| Ok(thread.join().map_err(|_| "panic")??))
            })
        })
    }

    fn wrong_words(&self) -> usize {
        self.target.wrong_words()
    }
}
