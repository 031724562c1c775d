//! Two processes that share memory, and what becomes of one when the other fails.

use std::io::Write;
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use crate::common::*;
use crate::shm_other::{BLOCK, BLOCKS, Other, endless, pool};
use rustix::process::Signal;
use strided::BlockCopy;
use transport::shm::{ShmConfig, ShmEndpoint, Unusable, probe};
use transport::{Card, Endpoint, Event, Outcome, PeerId, Transfer, TransferError, TransferId};

/// The user that owns nothing, if this process may start another one as that.
fn nobody() -> Option<u32> {
    const NOBODY: u32 = 65534;
    let mut command = Command::new(std::env::current_exe().unwrap());
    let listed = command.arg("--list").uid(NOBODY).stdout(Stdio::null()).status();
    let nobody = listed.is_ok_and(|status| status.success()).then_some(NOBODY);
    if nobody.is_none() {
        let _ = std::io::stdout().write_all(b"skipped: cannot start a process of another user\n");
    }
    nobody
}

/// How long a test waits for a transfer to be well under way.
const UNDER_WAY: Duration = Duration::from_millis(100);

/// The bound on what the kernel tells, with room for a busy machine.
const AT_ONCE: Duration = Duration::from_secs(2);

struct Reading {
    reader: ShmEndpoint,
    peer: PeerId,
    pool: Pool,
}

impl Reading {
    fn new(card: &Card) -> Self {
        let mut reader = ShmEndpoint::bind(ShmConfig::new(READER, 1)).unwrap();
        let pool = Pool::new(BLOCK, BLOCKS);
        pool.register(&mut reader, 0);
        let peer = reader.connect(card).unwrap();
        Self { reader, peer, pool }
    }

    fn submit(&mut self, id: u64, copies: Vec<BlockCopy>, timeout: Duration) {
        let id = TransferId(id);
        self.reader
            .submit(Transfer { id, peer: self.peer, token: TOKEN, copies, timeout })
            .unwrap();
    }

    /// Connected, and reading without end.
    fn endless(card: &Card) -> Self {
        let mut reading = Self::new(card);
        reading.submit(1, vec![], PATIENCE);
        assert_eq!(outcome(&mut reading.reader, 1), Outcome::Done);
        reading.submit(2, endless(), Duration::from_secs(600));
        std::thread::sleep(UNDER_WAY);
        reading
    }
}

fn lost(events: &[Event]) -> bool {
    matches!(
        events,
        [
            Event::Completion { outcome: Outcome::Failed(TransferError::Lost { .. }), .. },
            Event::PeerDown { why: TransferError::Lost { .. }, .. }
        ]
    )
}

#[test]
fn bytes_cross_from_one_process_to_another() {
    for memory in ["foreign", "mapped"] {
        let (_source, card) = Other::source(memory);
        let mut reading = Reading::new(&card);
        let all: Vec<u32> = (0..BLOCKS).collect();
        let back: Vec<u32> = all.iter().rev().copied().collect();
        reading.submit(1, vec![copy(page(&all, BLOCK), page(&back, BLOCK))], PATIENCE);
        assert_eq!(outcome(&mut reading.reader, 1), Outcome::Done);
        if memory == "mapped" {
            let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
            assert!(maps.contains("memfd:kvferry"), "{maps}");
        }
        let sent = pool(memory);
        for (from, to) in all.into_iter().zip(back) {
            let moved = reading.pool.block_bytes(to..to + 1) == sent.block_bytes(from..from + 1);
            assert!(moved, "{memory}: block {from}");
        }
    }
}

#[test]
fn a_source_that_is_killed_in_mid_transfer_is_told_of_at_once() {
    for memory in ["foreign", "mapped"] {
        let (source, card) = Other::source(memory);
        let mut reading = Reading::endless(&card);
        let start = Instant::now();
        source.signal(Signal::KILL);
        let events = wait(&mut reading.reader, is_down);
        assert!(start.elapsed() < AT_ONCE, "{memory}: {:?}", start.elapsed());
        assert!(lost(&events), "{memory}: {events:?}");
        // The next try fails at once.
        let start = Instant::now();
        reading.reader.connect(&card).unwrap();
        let events = wait(&mut reading.reader, is_down);
        assert!(matches!(
            &events[..],
            [Event::PeerDown { why: TransferError::Connect { .. }, .. }]
        ));
        assert!(start.elapsed() < AT_ONCE);
    }
}

#[test]
fn a_source_that_is_killed_in_silence_is_told_of_at_once() {
    let (source, card) = Other::source("foreign");
    let mut reading = Reading::new(&card);
    reading.submit(1, vec![], PATIENCE);
    assert_eq!(outcome(&mut reading.reader, 1), Outcome::Done);
    let start = Instant::now();
    source.signal(Signal::KILL);
    wait(&mut reading.reader, is_down);
    assert!(start.elapsed() < AT_ONCE, "{:?}", start.elapsed());
}

/// Whether it stands still before it knows the reader, or when it is asked.
#[test]
fn a_source_that_is_stopped_makes_its_transfers_overdue() {
    for early in [true, false] {
        let (source, card) = Other::source("foreign");
        if early {
            source.signal(Signal::STOP);
        }
        let mut reading = Reading::new(&card);
        if !early {
            reading.submit(1, vec![], PATIENCE);
            assert_eq!(outcome(&mut reading.reader, 1), Outcome::Done);
            source.signal(Signal::STOP);
        }
        reading.submit(2, vec![], Duration::from_millis(300));
        let events = wait(&mut reading.reader, is_down);
        let id = TransferId(2);
        let outcome = Outcome::Failed(TransferError::Fenced);
        let fenced = Event::Fenced { peer: reading.peer };
        let expected = [Event::Overdue { id }, Event::Completion { id, outcome }, fenced];
        assert_eq!(events[..3], expected, "{early}");
    }
}

#[test]
fn a_reader_that_is_stopped_in_mid_transfer_is_cut() {
    let mut source = ShmEndpoint::bind(ShmConfig::new(SOURCE, 1)).unwrap();
    let pool = Pool::new(BLOCK, BLOCKS);
    pool.register(&mut source, 0);
    source.grant(READER, TOKEN, vec![page(&(0..BLOCKS).collect::<Vec<_>>(), BLOCK)]).unwrap();
    let mut reader = Other::start(&format!("reader {}", source.card().address));
    reader.hear("reading");
    std::thread::sleep(UNDER_WAY);
    reader.signal(Signal::STOP);
    let start = Instant::now();
    source.revoke(TOKEN);
    let events = wait(&mut source, |events| !events.is_empty());
    assert_eq!(events, [Event::Revoked { token: TOKEN }]);
    assert!(start.elapsed() < AT_ONCE * 3, "{:?}", start.elapsed());
    // What it read since then does not pass for what it asked for.
    reader.signal(Signal::CONT);
    let ended = reader.hear("ended");
    assert!(ended.contains("Failed"), "{ended}");
}

#[test]
fn a_reader_that_is_killed_ends_its_reads() {
    let mut source = ShmEndpoint::bind(ShmConfig::new(SOURCE, 1)).unwrap();
    let pool = Pool::new(BLOCK, BLOCKS);
    let registration = pool.register(&mut source, 0);
    source.grant(READER, TOKEN, vec![page(&(0..BLOCKS).collect::<Vec<_>>(), BLOCK)]).unwrap();
    let mut reader = Other::start(&format!("reader {}", source.card().address));
    reader.hear("reading");
    reader.signal(Signal::KILL);
    source.revoke(TOKEN);
    wait(&mut source, |events| !events.is_empty());
    source.deregister(registration).unwrap();
}

/// A source that gives its reader the time that a busy machine takes.
fn patient(net: &Net) -> Pair {
    let (from, to) = (Pool::new(BLOCK, BLOCKS), Pool::new(BLOCK, BLOCKS));
    let mut pair = Pair::new(net, from, to);
    let config = ShmConfig { cut_after: PATIENCE, ..ShmConfig::new(SOURCE, 1) };
    pair.source = Box::new(ShmEndpoint::bind(config).unwrap());
    pair.from.register(&mut *pair.source, 0);
    let all: Vec<u32> = (0..BLOCKS).collect();
    pair.source.grant(READER, TOKEN, vec![page(&all, BLOCK)]).unwrap();
    pair.reader = net.endpoint(READER);
    pair.to.register(&mut *pair.reader, 0);
    pair.peer = pair.reader.connect(&pair.source.card()).unwrap();
    pair
}

/// In mid-transfer, a reader of this process lets go within a portion.
#[test]
fn a_revocation_ends_a_transfer_soon() {
    for net in [Net::Foreign, Net::Mapped] {
        let mut pair = patient(&net);
        pair.reader.submit(pair.transfer(1, endless())).unwrap();
        std::thread::sleep(UNDER_WAY);
        pair.source.revoke(TOKEN);
        let events = wait(&mut *pair.source, |events| !events.is_empty());
        assert_eq!(events, [Event::Revoked { token: TOKEN }]);
        let refused = outcome(&mut *pair.reader, 1);
        assert_eq!(refused, Outcome::Failed(TransferError::NotGranted));
        // Refused, but the connection was not cut.
        assert_eq!(pair.read(2, vec![]), Outcome::Failed(TransferError::NotGranted));
    }
}

#[test]
fn a_small_transfer_does_not_wait_for_a_large_one() {
    for net in [Net::Foreign, Net::Mapped] {
        let mut pair = patient(&net);
        pair.reader.submit(pair.transfer(1, endless())).unwrap();
        std::thread::sleep(UNDER_WAY);
        let small = vec![copy(page(&[1], 4096), page(&[1], 4096))];
        assert_eq!(pair.read(2, small), Outcome::Done);
        pair.reader.cancel(TransferId(1));
        assert_eq!(outcome(&mut *pair.reader, 1), Outcome::Cancelled);
    }
}

/// Where the system forbids it, the cause is named; what is mapped is read all the same.
#[test]
fn memory_that_may_not_be_read_is_named_and_is_no_matter_where_it_is_mapped() {
    // Root may read everything.
    let user = match (rustix::process::geteuid().is_root(), nobody()) {
        (false, _) => None,
        (true, Some(user)) => Some(user),
        (true, None) => return,
    };
    let (_source, card) = Other::hidden_as("foreign", user);
    let why = Other::start_as(&format!("probe {}", card.address), user).hear("unusable");
    assert!(why.contains("is refused") || why.contains("ptrace_scope"), "{why}");

    let (_source, card) = Other::hidden_as("mapped", user);
    let offer = Other::start_as(&format!("probe {}", card.address), user).hear("offer");
    assert!(offer.contains("mapped: Some") && offer.contains("foreign: None"), "{offer}");
    Other::start_as(&format!("reader {}", card.address), user).hear("reading");
}

/// It takes a process that may take another user's place to try this.
#[test]
fn another_users_process_is_refused_where_that_can_be_tried() {
    let Some(nobody) = nobody() else { return };
    let (_source, card) = Other::source_as("foreign", Some(nobody));
    let refused = probe(&card, &ShmConfig::new(READER, 1));
    assert_eq!(refused, Err(Unusable::OtherUser { own: 0, theirs: nobody }));
    let source = ShmEndpoint::bind(ShmConfig::new(SOURCE, 1)).unwrap();
    let mut other = Other::start_as(&format!("probe {}", source.card().address), Some(nobody));
    let why = other.hear("unusable");
    assert!(why.contains("user 0") && why.contains("user 65534"), "{why}");
}
