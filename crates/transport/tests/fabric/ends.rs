//! One end of a transfer: a driver with a memory whose bytes are known.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use transport::Memory;
use transport::libfabric::{
    Backing, Driver, Exposure, FabricPeer, LocalMemory, Move, Notice, Outcome, Plan, RemoteMemory,
    Rights, Work, WorkId, WorkKind,
};
use transport::memory::HostMemory;

use crate::stage::Stage;

pub const PATIENCE: Duration = Duration::from_secs(30);

pub struct End {
    pub driver: Driver,
    pub memory: Arc<HostMemory>,
    pub registered: LocalMemory,
}

/// The word at a place of a memory that was painted with this seed.
pub fn painted(seed: u64, at: usize) -> u64 {
    (at as u64 + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ seed
}

pub fn register(driver: &Driver, memory: &Arc<HostMemory>) -> LocalMemory {
    let rights = Rights { read: true, write: true };
    let memory = Arc::clone(memory) as Arc<dyn Memory>;
    driver.register(memory, Backing::Host, rights).unwrap()
}

impl End {
    pub fn new(stage: &Stage, bytes: usize) -> Self {
        Self::with(stage.open(), bytes)
    }

    pub fn with(driver: Driver, bytes: usize) -> Self {
        let memory = Arc::new(HostMemory::new(bytes).unwrap());
        let registered = register(&driver, &memory);
        Self { driver, memory, registered }
    }

    pub fn paint(&self, seed: u64) {
        let words = self.memory.words().iter().enumerate();
        words.for_each(|(at, word)| word.store(painted(seed, at), Relaxed));
    }

    pub fn word(&self, at: usize) -> u64 {
        self.memory.words()[at].load(Relaxed)
    }

    pub fn plan(&self, remote: &RemoteMemory, moves: &[Move]) -> Plan {
        let mut plan = self.driver.plan();
        moves.iter().for_each(|bytes| plan.add(&self.registered, remote, *bytes).unwrap());
        plan
    }

    pub fn submit(&self, id: u64, peer: FabricPeer, kind: WorkKind, plan: Plan) {
        self.driver.submit(Work { id: WorkId(id), peer, kind, plan }).unwrap();
    }

    /// What there is to hear next, within so long.
    pub fn hear_within(&self, patience: Duration) -> Vec<Notice> {
        let begun = Instant::now();
        let mut notices = Vec::new();
        while notices.is_empty() && begun.elapsed() < patience {
            let mut fds = [PollFd::from_borrowed_fd(self.driver.ready_fd(), PollFlags::IN)];
            poll(&mut fds, Some(&Timespec { tv_sec: 0, tv_nsec: 50_000_000 })).unwrap();
            self.driver.poll(&mut notices);
        }
        notices
    }

    pub fn outcome(&self, id: u64) -> Outcome {
        let notices = self.hear_within(PATIENCE);
        match &notices[..] {
            [Notice::Ended { id: found, outcome }] if *found == WorkId(id) => outcome.clone(),
            _ => panic!("{notices:?}"),
        }
    }

    pub fn read(
        &self,
        id: u64,
        peer: FabricPeer,
        remote: &RemoteMemory,
        moves: &[Move],
    ) -> Outcome {
        self.submit(id, peer, WorkKind::Read, self.plan(remote, moves));
        self.outcome(id)
    }

    /// How others reach it, as text that fits a line.
    pub fn card(&self) -> String {
        let exposed = self.registered.exposed();
        let numbers = [exposed.len(), exposed.grain()].into_iter();
        let parts = exposed.exposures().iter().flat_map(|part| [part.key, part.base]);
        let numbers: Vec<String> = numbers.chain(parts).map(|number| number.to_string()).collect();
        let address: Vec<String> =
            self.driver.address().iter().map(|byte| format!("{byte:02x}")).collect();
        format!("{} {}", address.concat(), numbers.join(" "))
    }
}

/// Reads what [`End::card`] has written.
pub fn read_card(card: &str) -> (Vec<u8>, RemoteMemory) {
    let mut words = card.split(' ');
    let hex = words.next().unwrap();
    let byte = |at| u8::from_str_radix(&hex[at..at + 2], 16).unwrap();
    let address = (0..hex.len()).step_by(2).map(byte).collect();
    let numbers: Vec<u64> = words.map(|word| word.parse().unwrap()).collect();
    let part = |pair: &[u64]| Exposure { key: pair[0], base: pair[1] };
    let parts: Vec<Exposure> = numbers[2..].chunks(2).map(part).collect();
    (address, RemoteMemory::new(numbers[0], numbers[1], &parts).unwrap())
}

/// Every block of the source, to a place of its own in the target; `count` times `block` bytes.
pub fn shuffled(count: u64, block: u64) -> Vec<Move> {
    // 7 has no factor in common with the powers of two that tests use.
    let place = |at: u64| at * 7 % count;
    (0..count).map(|at| Move { local: place(at) * block, remote: at * block, len: block }).collect()
}

/// Whether the moves have brought a memory that was painted with the seed.
pub fn brought(end: &End, seed: u64, moves: &[Move]) -> bool {
    moves.iter().all(|bytes| {
        let (to, from) = (bytes.local as usize / 8, bytes.remote as usize / 8);
        (0..bytes.len as usize / 8).all(|word| end.word(to + word) == painted(seed, from + word))
    })
}
