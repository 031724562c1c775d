//! What a reader through shared memory makes of sources that fail, lie or fall silent.

use std::fs::File;
use std::io::Write;
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use crate::common::raw::frame;
use crate::common::unix::{
    self, ANSWER, BUFFER, OVER, REQUEST, SHOW, STOP, Source, WITHDRAW, WITHDRAWN, show,
};
use crate::common::*;
use rustix::fs::{MemfdFlags, memfd_create};
use transport::memory::SharedMemory;
use transport::shm::{ShmConfig, ShmEndpoint};
use transport::{
    AgentId, Card, ConnectError, Endpoint, Event, Memory, Outcome, PeerId, Transfer, TransferError,
    TransferId,
};

const BLOCK: u64 = 4096;

/// An address that no process has anything at.
const NOWHERE: u64 = 0x1000;

/// A reader at a source that the test plays.
struct Reading {
    reader: ShmEndpoint,
    peer: PeerId,
    source: Source,
    pool: Pool,
}

impl Reading {
    fn new() -> Self {
        Self::with(|_| ())
    }

    fn with(change: impl FnOnce(&mut ShmConfig)) -> Self {
        let mut config = ShmConfig::new(READER, 1);
        change(&mut config);
        let mut reader = ShmEndpoint::bind(config).unwrap();
        let pool = Pool::new(BLOCK, 4);
        pool.register(&mut reader, 0);
        pool.fill(1);
        let source = Source::new();
        let peer = reader.connect(&source.card()).unwrap();
        Self { reader, peer, source, pool }
    }

    fn submit(&mut self, id: u64, timeout: Duration) {
        let copies = vec![copy(page(&[0], BLOCK), page(&[1], BLOCK))];
        let id = TransferId(id);
        self.reader
            .submit(Transfer { id, peer: self.peer, token: TOKEN, copies, timeout })
            .unwrap();
    }

    /// Accepts the reader and shows it these registrations.
    fn shown(&self, shows: &[Vec<u8>]) -> UnixStream {
        let mut socket = self.source.accept();
        socket.write_all(&[shows.concat(), self.source.here()].concat()).unwrap();
        socket
    }

    /// One block that is where the test says, in nobody's file.
    fn at(&self, base: u64) -> UnixStream {
        self.shown(&[show(1, base, BLOCK, 0, &[(0, 1, 0, BLOCK)])])
    }

    fn down(&mut self) -> TransferError {
        match wait(&mut self.reader, is_down).pop() {
            Some(Event::PeerDown { why, .. }) => why,
            other => panic!("{other:?}"),
        }
    }

    /// What comes of what a source says first, where `HERE` is its own frame of that name.
    fn told(said: &[Vec<u8>]) -> TransferError {
        let mut reading = Self::new();
        let mut socket = reading.source.accept();
        for said in said {
            let said = if said == HERE { &reading.source.here() } else { said };
            // The reader may hang up before all is said.
            let _ = socket.write_all(said);
        }
        reading.down()
    }
}

/// Stands for a frame that belongs to the source that says it.
const HERE: &[u8] = b"here";

fn allow(socket: &mut UnixStream, transfer: u64) {
    let asked = unix::next(socket);
    assert_eq!((asked.kind, asked.a), (REQUEST, transfer));
    socket.write_all(&frame(ANSWER, 1, transfer, 0)).unwrap();
}

/// The source's memory is gone: that transfer fails, and the connection goes on.
#[test]
fn memory_that_is_not_there_fails_its_transfer_only() {
    let mut reading = Reading::new();
    reading.submit(1, PATIENCE);
    let pool = Pool::new(BLOCK, 1);
    pool.fill(5);
    let base = pool.memory.base().as_ptr().addr() as u64;
    let first = show(1, NOWHERE, BLOCK, 0, &[(0, 1, 0, BLOCK)]);
    let mut socket = reading.shown(&[first]);
    allow(&mut socket, 1);
    let failed = outcome(&mut reading.reader, 1);
    assert!(matches!(failed, Outcome::Failed(TransferError::Protocol { .. })), "{failed:?}");
    assert_eq!(unix::next(&mut socket).kind, OVER);
    // The same region is now somewhere else.
    socket.write_all(&frame(WITHDRAW, 0, 1, 0)).unwrap();
    let unmapped = unix::next(&mut socket);
    assert_eq!((unmapped.kind, unmapped.a), (WITHDRAWN, 1));
    socket.write_all(&show(2, base, BLOCK, 0, &[(0, 1, 0, BLOCK)])).unwrap();
    reading.submit(2, PATIENCE);
    allow(&mut socket, 2);
    assert_eq!(outcome(&mut reading.reader, 2), Outcome::Done);
    assert!(reading.pool.block_bytes(1..2) == pool.bytes());
}

#[test]
fn a_stopped_transfer_fails_and_is_over() {
    let mut reading = Reading::new();
    reading.submit(1, PATIENCE);
    let mut socket = reading.at(NOWHERE);
    let asked = unix::next(&mut socket);
    // Nobody has allowed it yet, and of the other nobody knows.
    let stops = [frame(STOP, 0, asked.a, 0), frame(STOP, 0, 99, 0)].concat();
    socket.write_all(&[stops, frame(ANSWER, 0, 1, 0)].concat()).unwrap();
    let refused = outcome(&mut reading.reader, 1);
    assert_eq!(refused, Outcome::Failed(TransferError::NotGranted));
}

#[test]
fn lies_end_the_connection() {
    let region = (0, 1, 0, BLOCK);
    let here = HERE.to_vec();
    let good = show(1, NOWHERE, BLOCK, 0, &[region]);
    let early = "a word before its time";
    let cases: [(&str, &[Vec<u8>]); 13] = [
        ("an unknown frame", &[vec![0xff; 100]]),
        (early, &[frame(ANSWER, 1, 1, 0)]),
        (early, &[frame(BUFFER, 0, 1, 8 << 20)]),
        ("a malformed registration", &[show(1, NOWHERE, BLOCK, 0, &[(0, 2, 0, BLOCK)])]),
        ("a malformed registration", &[show(1, u64::MAX, 1, 0, &[])]),
        ("a malformed registration", &[frame(SHOW, 25, 1, 0), vec![0; 25]]),
        ("an unknown frame", &[frame(SHOW, u32::MAX, 1, 0)]),
        ("a file that did not come", &[show(1, NOWHERE, BLOCK, 1, &[region])]),
        ("a region for the second", &[good.clone(), show(2, NOWHERE, BLOCK, 0, &[region])]),
        ("a registration for the second", &[good.clone(), show(1, NOWHERE, BLOCK, 0, &[])]),
        ("a registration that was not", &[here.clone(), frame(WITHDRAW, 0, 7, 0)]),
        ("a word that nobody asked", &[here.clone(), here.clone()]),
        ("nobody waits for", &[good.clone(), here, frame(ANSWER, 1, 7, 0)]),
    ];
    for (words, said) in cases {
        let why = Reading::told(said);
        assert!(why.to_string().contains(words), "{words}: {why}");
    }
}

/// A file that could be made shorter under the reader's feet would end its process.
#[test]
fn a_file_that_may_shrink_is_not_mapped() {
    let unsealed = File::from(memfd_create("test", MemfdFlags::ALLOW_SEALING).unwrap());
    let (file, short) = (tempfile::tempfile().unwrap(), SharedMemory::new(64).unwrap());
    file.set_len(BLOCK * 2).unwrap();
    unsealed.set_len(BLOCK * 2).unwrap();
    // The last is sealed, but shorter than the source says.
    for file in [file.as_fd(), unsealed.as_fd(), short.shared().unwrap()] {
        let mut reading = Reading::new();
        reading.submit(1, PATIENCE);
        let pool = Pool::new(BLOCK * 2, 1);
        pool.fill(5);
        let base = pool.memory.base().as_ptr().addr() as u64;
        let mut socket = reading.source.accept();
        let shown = show(1, base, BLOCK * 2, 1, &[(0, 1, 0, BLOCK)]);
        unix::send_with(&socket, &shown, file);
        socket.write_all(&reading.source.here()).unwrap();
        allow(&mut socket, 1);
        // Across processes it goes all the same.
        assert_eq!(outcome(&mut reading.reader, 1), Outcome::Done);
        assert!(reading.pool.block_bytes(1..2) == pool.bytes()[..4096]);
    }
}

#[test]
fn files_that_belong_to_nothing_end_the_connection() {
    let mut reading = Reading::new();
    let socket = reading.at(NOWHERE);
    let file = tempfile::tempfile().unwrap();
    for _ in 0..8 {
        unix::send_with(&socket, &frame(STOP, 0, 1, 0), file.as_fd());
    }
    let why = reading.down();
    assert!(why.to_string().contains("files that belong to nothing"), "{why}");
}

#[test]
fn blocks_that_were_not_shown_end_the_connection() {
    for shows in [vec![], vec![show(1, NOWHERE, 64, 0, &[(0, 1, 0, 64)])]] {
        let mut reading = Reading::new();
        reading.submit(1, PATIENCE);
        let mut socket = reading.shown(&shows);
        allow(&mut socket, 1);
        let why = reading.down();
        assert_eq!(why, TransferError::Protocol { what: "blocks that were not shown" });
    }
}

#[test]
fn another_process_than_the_source_is_found_out() {
    let mut reading = Reading::new();
    let mut socket = reading.source.accept();
    let other = Source::new();
    let mut here = reading.source.here();
    // The nonce's address and its value belong to different sources.
    here[8..16].copy_from_slice(&other.here()[8..16]);
    here[16] ^= 1;
    socket.write_all(&here).unwrap();
    let TransferError::Connect { why, .. } = reading.down() else { panic!() };
    assert!(why.contains("another one"), "{why}");

    let mut reading = Reading::new();
    let mut socket = reading.source.accept();
    let mut here = reading.source.here();
    here[4] ^= 1;
    socket.write_all(&here).unwrap();
    let TransferError::Connect { why, .. } = reading.down() else { panic!() };
    assert!(why.contains("no shared PID namespace"), "{why}");
}

#[test]
fn another_agent_is_refused() {
    let mut reading = Reading::new();
    let _socket = reading.source.accept_as(AgentId(999));
    let TransferError::Connect { why, .. } = reading.down() else { panic!() };
    assert!(why.contains("another agent"), "{why}");
}

#[test]
fn a_source_that_never_speaks_is_given_up() {
    let mut reading = Reading::with(|config| config.hello_timeout = Duration::from_millis(200));
    let _socket = reading.source.accept_silently();
    assert!(matches!(reading.down(), TransferError::Connect { .. }));
}

/// Whether it is silent before it has said who it is, or when it is asked.
#[test]
fn a_silent_source_makes_its_transfers_overdue() {
    for speaks in [false, true] {
        let mut reading = Reading::with(|config| config.hello_timeout = PATIENCE);
        let start = Instant::now();
        reading.submit(1, Duration::from_millis(300));
        reading.submit(2, PATIENCE);
        let _socket = if speaks { reading.at(NOWHERE) } else { reading.source.accept_silently() };
        let events = wait(&mut reading.reader, is_down);
        assert!(start.elapsed() >= Duration::from_millis(300));
        assert!(start.elapsed() < PATIENCE / 2, "{:?}", start.elapsed());
        let failed = |id| Event::Completion {
            id: TransferId(id),
            outcome: Outcome::Failed(TransferError::Fenced),
        };
        let expected = [
            Event::Overdue { id: TransferId(1) },
            failed(1),
            failed(2),
            Event::Fenced { peer: reading.peer },
        ];
        assert_eq!(events[..4], expected, "{speaks}");
    }
}

#[test]
fn a_source_that_hangs_up_is_down() {
    let mut reading = Reading::new();
    reading.submit(1, PATIENCE);
    let socket = reading.at(NOWHERE);
    drop(socket);
    let events = wait(&mut reading.reader, is_down);
    assert_eq!(events.len(), 2, "{events:?}");
    assert!(reading.reader.connect(&reading.source.card()).is_ok());
}

#[test]
fn cards_are_checked() {
    let mut reader = ShmEndpoint::bind(ShmConfig::new(READER, 1)).unwrap();
    let name = "kvferry-1";
    let own = unix::boot_id();
    let long = "a".repeat(200);
    let cases = [
        (String::new(), "not an address"),
        (own.clone(), "not an address"),
        (format!("{own}/"), "not an address"),
        (format!("{own}/{long}"), "not an address"),
        (format!("{own}/../../etc"), "not an address"),
        (format!("00000000-0000-0000-0000-000000000000/{name}"), "another host"),
    ];
    for (address, words) in cases {
        let card = Card { provider: "shm", agent: SOURCE, address: address.clone() };
        match reader.connect(&card).unwrap_err() {
            ConnectError::Address { why, .. } => assert!(why.contains(words), "{address}: {why}"),
            other => panic!("{address}: {other:?}"),
        }
    }
}
