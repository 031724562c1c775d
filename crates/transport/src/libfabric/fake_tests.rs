//! The engine under a fabric that does everything wrong that a card may do.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use super::engine::Engine;
use super::fake::{Dice, Fake, Manners};
use super::notices::Notices;
use super::seam::Registering;
use super::tally::Tally;
use super::{
    Backing, Counter, FabricPeer, LocalMemory, MemoryError, Move, Notice, Outcome, Plan,
    RemoteMemory, Rights, Work, WorkError, WorkId, WorkKind,
};
use crate::memory::{HostMemory, Slice};
use crate::sync::lock;

/// Each takes some ten turns of its engine.
const SCHEDULES: u64 = 10_000;

/// Bytes of one work's own corner of the target.
pub(super) const CORNER: u64 = 512;

const WORKS: u64 = 6;

/// What a corner is painted with when its work has ended: nothing may come any more.
const OVER: u8 = 0xee;

/// Turns after which everything has ended.
pub(super) const PATIENCE: usize = 100_000;

pub(super) struct Room {
    memory: Arc<HostMemory>,
    pub(super) registered: LocalMemory,
}

impl Room {
    fn new(engine: &mut Engine<Fake>, len: u64) -> Self {
        let memory = Arc::new(HostMemory::new(usize::try_from(len).unwrap()).unwrap());
        let given = Arc::clone(&memory);
        let rights = Rights { read: true, write: true };
        let name =
            |id| Registering { id, memory: given, backing: Backing::Host, rights, grain: 1 << 21 };
        let (id, exposures) = engine.register(name).unwrap();
        let exposed = RemoteMemory::new(len, 1 << 21, &exposures).unwrap();
        Self { memory, registered: LocalMemory { id, exposed } }
    }

    fn write(&self, at: u64, bytes: &[u8]) {
        Slice::of(&*self.memory, at, bytes.len() as u64).unwrap().write_from(bytes);
    }

    fn read(&self, at: u64, len: u64) -> Vec<u8> {
        let mut bytes = vec![0; usize::try_from(len).unwrap()];
        Slice::of(&*self.memory, at, len).unwrap().read_into(&mut bytes);
        bytes
    }
}

/// A work, and what is known of it.
struct Watched {
    corner: u64,
    moves: Vec<Move>,
    kind: WorkKind,
    operations: u32,
    announced: bool,
    ended: Option<Outcome>,
    arrived: bool,
}

pub(super) struct Play {
    pub(super) engine: Engine<Fake>,
    pub(super) notices: Arc<Notices>,
    tally: Arc<Mutex<Tally>>,
    dice: Dice,
    pub(super) source: Room,
    pub(super) target: Room,
    pub(super) peer: FabricPeer,
    works: HashMap<WorkId, Watched>,
    pub(super) limit: u64,
    fenced: bool,
}

fn pattern(at: u64) -> u8 {
    (at * 7 + at / 256).to_le_bytes()[0] % 0xe0
}

impl Play {
    pub(super) fn new(seed: u64) -> Self {
        let mut dice = Dice::new(seed);
        let rough = dice.one_in(4);
        let room = 1 + usize::try_from(dice.below(8)).unwrap();
        let never = u64::MAX;
        let fails = if rough { 30 } else { never };
        let breaks = if rough && dice.one_in(2) { 30 } else { never };
        let (operations, limit) =
            (1 + usize::try_from(dice.below(12)).unwrap(), 8 + dice.below(90));
        let refuses = if rough { 40 } else { never };
        let manners = Manners { room, fails, breaks, refuses, fence_fails: None, keeps: false };
        let fake = Fake::new(Dice::new(!seed), manners, operations, limit);
        let (notices, tally) =
            (Arc::new(Notices::new().unwrap()), Arc::new(Mutex::new(Tally::new())));
        let mut engine = Engine::new(fake, Arc::clone(&tally), Arc::clone(&notices));
        let source = Room::new(&mut engine, 4096);
        let target = Room::new(&mut engine, CORNER * WORKS);
        source.write(0, &(0..4096).map(pattern).collect::<Vec<_>>());
        let peer = engine.insert(b"self").unwrap();
        let works = HashMap::new();
        Self { engine, notices, tally, dice, source, target, peer, works, limit, fenced: false }
    }

    /// Pieces of the source, one behind the other in the work's corner, some of them side by side.
    fn moves(&mut self, corner: u64, kind: WorkKind) -> Vec<Move> {
        let (mut to, mut from) = (corner * CORNER, self.dice.below(2048));
        let mut moves = Vec::new();
        for _ in 0..self.dice.below(10) {
            if self.dice.one_in(2) {
                (to, from) = (to + self.dice.below(8), self.dice.below(2048));
            }
            let len = self.dice.below(43);
            moves.push(match kind {
                WorkKind::Read => Move { local: to, remote: from, len },
                _ => Move { local: from, remote: to, len },
            });
            (to, from) = (to + len, from + len);
        }
        moves
    }

    pub(super) fn submit(&mut self, number: u64) {
        let kind = match self.dice.below(3) {
            0 => WorkKind::Read,
            1 => WorkKind::Write,
            _ => WorkKind::Counted(lock(&self.tally).open().unwrap()),
        };
        let moves = self.moves(number, kind);
        let (local, remote) = match kind {
            WorkKind::Read => (&self.target.registered, self.source.registered.exposed()),
            _ => (&self.source.registered, self.target.registered.exposed()),
        };
        let mut plan = Plan::new(self.limit);
        moves.iter().for_each(|bytes| plan.add(local, remote, *bytes).unwrap());
        let (id, operations) = (WorkId(number), u32::try_from(plan.operations()).unwrap());
        let (announced, ended, arrived) = (false, None, false);
        let watched =
            Watched { corner: number, moves, kind, operations, announced, ended, arrived };
        self.works.insert(id, watched);
        self.engine.submit(Work { id, peer: self.peer, kind, plan });
    }

    fn announce(&mut self, id: WorkId) {
        let work = self.works.get_mut(&id).unwrap();
        let WorkKind::Counted(counter) = work.kind else { return };
        if work.announced || work.operations == 0 {
            return;
        }
        work.announced = true;
        let whole = lock(&self.tally).expect(counter, work.operations).unwrap();
        if whole {
            self.arrived(counter);
        }
    }

    fn arrived(&mut self, counter: Counter) {
        let of = |work: &&mut Watched| work.kind == WorkKind::Counted(counter);
        let work = self.works.values_mut().find(of).unwrap();
        assert!(!work.arrived, "told of twice");
        work.arrived = true;
        let landed = self.engine.fabric.landed[&u32::from(counter.number())];
        assert_eq!(landed, u64::from(work.operations), "an early commit");
        assert_bytes(&self.target, work);
    }

    fn hear(&mut self) {
        for notice in self.notices.take() {
            match notice {
                Notice::Ended { id, outcome } => self.ended(id, outcome),
                Notice::Arrived { counter } => self.arrived(counter),
                Notice::Broken { .. } => self.fence(),
            }
        }
    }

    fn ended(&mut self, id: WorkId, outcome: Outcome) {
        let work = self.works.get_mut(&id).unwrap();
        assert_eq!(work.ended, None, "told of twice");
        if outcome == Outcome::Done {
            assert_bytes(&self.target, work);
        }
        // What a read has left may be used for something else from now on.
        if work.kind == WorkKind::Read {
            self.target.write(work.corner * CORNER, &vec![OVER; usize::try_from(CORNER).unwrap()]);
        }
        work.ended = Some(outcome);
    }

    fn fence(&mut self) {
        self.engine.fence().unwrap();
        assert_eq!(self.engine.fabric.flying(), 0);
        assert!(!self.engine.is_busy(), "a work is open behind a fence");
        self.peer = self.engine.insert(b"self").unwrap();
        self.fenced = true;
    }

    fn disturb(&mut self) {
        let id = WorkId(self.dice.below(WORKS));
        match self.dice.below(60) {
            0..4 => self.engine.cancel(id),
            4 => self.fence(),
            5 => {
                self.engine.remove(self.peer);
                self.peer = self.engine.insert(b"self").unwrap();
            }
            6..20 if self.works.contains_key(&id) => self.announce(id),
            _ => {}
        }
    }

    fn run(&mut self) {
        let mut next = 0;
        for _ in 0..PATIENCE {
            if next < WORKS && self.dice.one_in(3) {
                self.submit(next);
                next += 1;
            }
            self.engine.turn();
            self.hear();
            self.disturb();
            if next == WORKS && !self.engine.is_busy() && self.is_quiet() {
                return self.judge();
            }
        }
        panic!("works never end: {:?}", self.engine.is_busy());
    }

    /// Whether all words have come that there will be.
    fn is_quiet(&mut self) -> bool {
        (0..WORKS).for_each(|id| self.announce(WorkId(id)));
        self.hear();
        let comes = |work: &Watched| {
            matches!(work.kind, WorkKind::Counted(_)) && work.ended == Some(Outcome::Done)
        };
        self.fenced
            || self.works.values().all(|work| !comes(work) || work.operations == 0 || work.arrived)
    }

    fn judge(&self) {
        assert_eq!(self.engine.fabric.early, 0, "a slot was used again early");
        for (id, work) in &self.works {
            assert!(work.ended.is_some(), "{id:?} was never told of");
            if work.kind == WorkKind::Read {
                let corner = self.target.read(work.corner * CORNER, CORNER);
                assert!(corner.iter().all(|byte| *byte == OVER), "{id:?}: bytes came late");
            }
        }
    }
}

fn assert_bytes(target: &Room, work: &Watched) {
    for bytes in &work.moves {
        let (to, from) = match work.kind {
            WorkKind::Read => (bytes.local, bytes.remote),
            _ => (bytes.remote, bytes.local),
        };
        let expected: Vec<u8> = (from..from + bytes.len).map(pattern).collect();
        assert_eq!(target.read(to, bytes.len), expected, "an early commit");
    }
}

#[test]
fn nothing_is_over_before_it_is_under_ten_thousand_schedules() {
    for seed in 0..SCHEDULES {
        let played = std::panic::catch_unwind(|| Play::new(seed).run());
        assert!(played.is_ok(), "schedule {seed}");
    }
}

/// The judge sees what it is there for.
#[test]
fn schedules_have_all_that_they_should() {
    let mut seen = HashMap::<&str, usize>::new();
    for seed in 0..500 {
        let mut play = Play::new(seed);
        play.run();
        *seen.entry("strays").or_default() += usize::try_from(lock(&play.tally).strays()).unwrap();
        for work in play.works.values() {
            let name = match &work.ended {
                Some(Outcome::Done) => "done",
                Some(Outcome::Cancelled) => "cancelled",
                Some(Outcome::Failed(WorkError::Operation { code: 22, .. })) => "refused",
                Some(Outcome::Failed(WorkError::Operation { .. })) => "failed",
                Some(Outcome::Failed(WorkError::Fenced)) => "fenced",
                Some(Outcome::Failed(WorkError::NoPeer)) => "no peer",
                Some(Outcome::Failed(WorkError::Broken { .. })) => "broken",
                _ => "other",
            };
            *seen.entry(name).or_default() += 1;
            *seen.entry("arrived").or_default() += usize::from(work.arrived);
        }
    }
    for name in [
        "done",
        "cancelled",
        "failed",
        "refused",
        "fenced",
        "no peer",
        "broken",
        "arrived",
        "strays",
    ] {
        assert!(seen.get(name).is_some_and(|&count| count > 10), "{name}: {seen:?}");
    }
    assert!(!seen.contains_key("other"), "{seen:?}");
}

#[test]
fn what_is_not_known_fails_at_once_and_what_is_used_stays() {
    let mut play = Play::new(1);
    play.submit(0);
    play.submit(0);
    let (id, memory) = (WorkId(9), play.target.registered.id);
    let work = |peer| Work { id, peer, kind: WorkKind::Read, plan: Plan::new(8) };
    play.engine.submit(work(FabricPeer::new()));
    let failed = |notice: &Notice, why: WorkError| matches!(notice, Notice::Ended { outcome: Outcome::Failed(found), .. } if *found == why);
    let notices = play.notices.take();
    assert!(notices.iter().any(|notice| failed(notice, WorkError::NoPeer)), "{notices:?}");
    // A work of no bytes needs no operation.
    play.engine.submit(work(play.peer));
    let done = Notice::Ended { id, outcome: Outcome::Done };
    assert_eq!(play.notices.take(), [done]);
    assert!(matches!(play.engine.deregister(77), Err(MemoryError::Unknown)));
    play.engine.fence().unwrap();
    assert_eq!(play.engine.deregister(memory), Ok(()));
    let mut plan = Plan::new(8);
    let bytes = Move { local: 0, remote: 0, len: 8 };
    plan.add(&play.target.registered, play.source.registered.exposed(), bytes).unwrap();
    let peer = play.engine.insert(b"self").unwrap();
    play.notices.take();
    play.engine.submit(Work { id, peer, kind: WorkKind::Read, plan });
    let notices = play.notices.take();
    assert!(failed(&notices[0], WorkError::NoMemory), "{notices:?}");
}
