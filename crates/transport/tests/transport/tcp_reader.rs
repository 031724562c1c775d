//! What a reader over TCP makes of sources that fail, lie or fall silent.

use std::io::Write;
use std::net::{Ipv4Addr, TcpListener};
use std::time::{Duration, Instant};

use crate::common::raw::{END, PING, PORTION, Source, frame};
use crate::common::*;
use strided::BlockCopy;
use transport::tcp::{TcpConfig, TcpEndpoint};
use transport::{
    Card, ConnectError, Endpoint, Event, Outcome, PeerId, Transfer, TransferError, TransferId,
};

/// Bytes of a portion, and of a block here.
const PORTION_LEN: u64 = 2 << 20;

/// A reader of one stream, at a source that the test plays.
struct Reading {
    reader: TcpEndpoint,
    peer: PeerId,
    source: Source,
    pool: Pool,
}

impl Reading {
    fn new() -> Self {
        Self::with(|_| ())
    }

    fn with(change: impl FnOnce(&mut TcpConfig)) -> Self {
        let mut config = TcpConfig { streams: 1, ..config(READER) };
        change(&mut config);
        let mut reader = TcpEndpoint::bind(config).unwrap();
        let pool = Pool::new(PORTION_LEN, 4);
        pool.register(&mut reader, 0);
        pool.fill(1);
        let source = Source::new();
        let peer = reader.connect(&source.card()).unwrap();
        Self { reader, peer, source, pool }
    }

    fn submit(&mut self, id: u64, copies: Vec<BlockCopy>, timeout: Duration) {
        let id = TransferId(id);
        self.reader
            .submit(Transfer { id, peer: self.peer, token: TOKEN, copies, timeout })
            .unwrap();
    }

    /// Asks for two portions: all of blocks 0 and 1.
    fn submit_two(&mut self) {
        self.submit(
            1,
            vec![copy(page(&[0, 1], PORTION_LEN), page(&[0, 1], PORTION_LEN))],
            PATIENCE,
        );
    }

    fn events(&mut self) -> Vec<Event> {
        wait(&mut self.reader, is_down)
    }

    /// What comes when the source answers the two portions with `said`.
    fn answered(said: &[Vec<u8>]) -> Vec<Event> {
        let mut reading = Self::new();
        reading.submit_two();
        let mut socket = reading.source.request();
        // The reader may hang up before all is said.
        let _ = said.iter().try_for_each(|said| socket.write_all(said));
        reading.events()
    }
}

fn portion(index: u64) -> Vec<u8> {
    [frame(PORTION, PORTION_LEN as u32, 1, index), vec![5; PORTION_LEN as usize]].concat()
}

fn end(status: u32, portions: u64) -> Vec<u8> {
    frame(END, status, 1, portions)
}

fn completion(id: u64, outcome: Outcome) -> Event {
    Event::Completion { id: TransferId(id), outcome }
}

#[test]
fn portions_may_come_in_any_order() {
    let mut reading = Reading::new();
    reading.submit_two();
    let mut socket = reading.source.request();
    for said in [frame(PING, 0, 0, 0), portion(1), end(0, 2), portion(0)] {
        socket.write_all(&said).unwrap();
    }
    assert_eq!(outcome(&mut reading.reader, 1), Outcome::Done);
    let bytes = reading.pool.bytes();
    assert!(bytes[..2 * PORTION_LEN as usize].iter().all(|&byte| byte == 5));
}

/// A receiver that waits for many bytes at once must not wait for more than will come.
#[test]
fn nothing_waits_for_bytes_that_do_not_come() {
    let mut reading = Reading::new();
    let mut socket = None;
    for id in 1..40 {
        let block = || page(&[0], PORTION_LEN);
        reading.submit(id, vec![copy(block(), block())], PATIENCE);
        let socket = socket.get_or_insert_with(|| reading.source.request());
        let head = frame(PORTION, PORTION_LEN as u32, id, 0);
        socket.write_all(&[head, vec![5; PORTION_LEN as usize]].concat()).unwrap();
        std::thread::sleep(Duration::from_millis(2));
        socket.write_all(&frame(END, 0, id, 1)).unwrap();
        assert_eq!(outcome(&mut reading.reader, id), Outcome::Done);
    }
}

#[test]
fn a_request_that_the_source_does_not_read_blocks_nobody() {
    let mut reading = Reading::new();
    let ids = vec![1; 1_900_000];
    let start = Instant::now();
    for id in 1..3 {
        reading.submit(id, vec![copy(page(&ids, 8), page(&ids, 8))], PATIENCE);
    }
    assert!(start.elapsed() < Duration::from_secs(2));
    let mut socket = reading.source.request();
    socket.write_all(&frame(END, 1, 1, 0)).unwrap();
    assert_eq!(outcome(&mut reading.reader, 1), Outcome::Failed(TransferError::NotGranted));
}

#[test]
fn a_refusal_may_come_after_some_portions() {
    let mut reading = Reading::new();
    reading.submit_two();
    let mut socket = reading.source.request();
    socket.write_all(&[portion(1), end(1, 1)].concat()).unwrap();
    assert_eq!(outcome(&mut reading.reader, 1), Outcome::Failed(TransferError::NotGranted));
}

#[test]
fn what_the_protocol_does_not_allow_ends_the_peer() {
    let short = frame(PORTION, PORTION_LEN as u32 - 1, 1, 0);
    let other = |kind| frame(kind, if kind == PORTION { PORTION_LEN as u32 } else { 0 }, 2, 0);
    let cases: [&[Vec<u8>]; 12] = [
        &[portion(0), portion(0)],
        &[portion(2)],
        &[portion(u64::MAX)],
        &[short],
        &[other(PORTION)],
        &[other(END)],
        &[end(0, 1)],
        &[portion(0), end(1, 0)],
        &[end(1, 3)],
        &[end(1, 1), end(1, 1)],
        &[end(2, 0)],
        &[frame(77, 0, 0, 0)],
    ];
    for (case, said) in cases.iter().enumerate() {
        let events = Reading::answered(said);
        let [Event::Completion { id: TransferId(1), outcome }, Event::PeerDown { why, .. }] =
            events.as_slice()
        else {
            panic!("case {case}: {events:?}")
        };
        assert!(matches!(why, TransferError::Protocol { .. }), "case {case}: {why}");
        assert_eq!(*outcome, Outcome::Failed(why.clone()));
    }
}

#[test]
fn more_portions_than_the_end_said_are_refused() {
    let events = Reading::answered(&[end(1, 1), portion(0), portion(1)]);
    // The first portion ends the transfer; the second belongs to none.
    assert_eq!(events[0], completion(1, Outcome::Failed(TransferError::NotGranted)));
    assert!(matches!(events[1], Event::PeerDown { why: TransferError::Protocol { .. }, .. }));
}

#[test]
fn a_source_that_dies_in_a_portion_fails_the_transfer() {
    let mut reading = Reading::new();
    reading.submit_two();
    reading.submit(2, vec![], PATIENCE);
    let mut socket = reading.source.request();
    socket.write_all(&portion(0)[..1000]).unwrap();
    drop(socket);
    let events = reading.events();
    let [first, second, Event::PeerDown { why, .. }] = events.as_slice() else {
        panic!("{events:?}")
    };
    assert!(matches!(why, TransferError::Lost { .. }), "{why}");
    let failed = Outcome::Failed(why.clone());
    assert_eq!([first, second], [&completion(1, failed.clone()), &completion(2, failed)]);
}

#[test]
fn an_overdue_transfer_is_fenced() {
    let mut reading = Reading::new();
    let start = Instant::now();
    reading.submit(1, vec![copy(page(&[0], 8), page(&[0], 8))], Duration::from_millis(150));
    reading.submit(2, vec![], PATIENCE);
    let _silent = reading.source.request();
    let events = reading.events();
    let fenced = || Outcome::Failed(TransferError::Fenced);
    let peer = reading.peer;
    assert_eq!(
        events,
        [
            Event::Overdue { id: TransferId(1) },
            completion(1, fenced()),
            completion(2, fenced()),
            Event::Fenced { peer },
            Event::PeerDown { peer, why: TransferError::Fenced },
        ]
    );
    let taken = start.elapsed();
    assert!(taken >= Duration::from_millis(150) && taken < Duration::from_secs(2), "{taken:?}");
}

#[test]
fn a_transfer_can_be_overdue_before_the_connection_is_made() {
    let mut reading = Reading::new();
    reading.submit(1, vec![], Duration::ZERO);
    // The source accepts, in the kernel, and never answers.
    let events = reading.events();
    assert_eq!(
        events[..2],
        [
            Event::Overdue { id: TransferId(1) },
            completion(1, Outcome::Failed(TransferError::Fenced)),
        ]
    );
}

#[test]
fn a_silent_source_is_down() {
    let mut reading = Reading::with(|config| config.heartbeat = Duration::from_millis(30));
    let socket = reading.source.accept(|_| ());
    let start = Instant::now();
    let events = reading.events();
    let (peer, why) = (reading.peer, TransferError::Silent);
    assert_eq!(events, [Event::PeerDown { peer, why }]);
    assert!(start.elapsed() < Duration::from_secs(2));
    drop(socket);
}

#[test]
fn a_source_that_pings_is_not_silent() {
    let mut reading = Reading::with(|config| config.heartbeat = Duration::from_millis(100));
    let mut socket = reading.source.accept(|_| ());
    for _ in 0..20 {
        socket.write_all(&frame(PING, 0, 0, 0)).unwrap();
        std::thread::sleep(Duration::from_millis(30));
    }
    let mut events = Vec::new();
    reading.reader.poll(&mut events);
    assert_eq!(events, []);
}

#[test]
fn a_hello_that_does_not_fit_is_refused() {
    type Change = fn(&mut transport::session::Hello);
    let cases: [(Change, &str); 4] = [
        (|hello| hello.versions = 7..=9, "no common protocol version"),
        (|hello| hello.role = transport::session::Role::Decode, "not a source"),
        (|hello| hello.channel = transport::session::Channel::Control, "not a source"),
        (|hello| hello.agent = READER, "another agent"),
    ];
    for (change, expected) in cases {
        let mut reading = Reading::new();
        let _socket = reading.source.accept(change);
        let events = reading.events();
        let [Event::PeerDown { why: TransferError::Connect { why, .. }, .. }] = events.as_slice()
        else {
            panic!("{events:?}")
        };
        assert!(why.contains(expected), "{why}");
    }
}

#[test]
fn nobody_there_is_told() {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let address = listener.local_addr().unwrap().to_string();
    drop(listener);
    let mut reader = TcpEndpoint::bind(config(READER)).unwrap();
    let card = Card { provider: "tcp", agent: SOURCE, address };
    let peer = reader.connect(&card).unwrap();
    let transfer =
        Transfer { id: TransferId(1), peer, token: TOKEN, copies: vec![], timeout: PATIENCE };
    // The connection may have failed already.
    let submitted = reader.submit(transfer).is_ok();
    let events = wait(&mut reader, is_down);
    assert_eq!(events.len(), 1 + usize::from(submitted));
    assert!(matches!(
        events.last(),
        Some(Event::PeerDown { why: TransferError::Connect { .. }, .. })
    ));
}

#[test]
fn only_loopback_addresses_are_dialled() {
    let mut reader = TcpEndpoint::bind(config(READER)).unwrap();
    let mut connect = |address: &str| {
        reader.connect(&Card { provider: "tcp", agent: SOURCE, address: address.to_owned() })
    };
    for address in ["10.0.0.1:80", "[2001:db8::1]:80", "0.0.0.0:80"] {
        assert!(matches!(connect(address), Err(ConnectError::NotLoopback { .. })), "{address}");
    }
    for address in ["", "localhost:80", "127.0.0.1"] {
        assert!(matches!(connect(address), Err(ConnectError::Address { .. })), "{address}");
    }
}
