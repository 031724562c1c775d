//! Small answers over TCP, which the caller of a reader receives by itself: however they come, and
//! whether or not it comes for them.

use std::io::Write;
use std::net::TcpStream;
use std::thread::sleep;
use std::time::{Duration, Instant};

use crate::common::raw::{END, PING, PORTION, Source, frame};
use crate::common::*;
use transport::tcp::{TcpConfig, TcpEndpoint};
use transport::{Endpoint, Event, Outcome, PeerId, Transfer, TransferError, TransferId};

/// Bytes of a block. A small transfer is of one; four hundred are more than a caller takes.
const BLOCK: u64 = 4096;
const LARGE: u32 = 400;

/// Time for the other side to hear what was said.
const PAUSE: Duration = Duration::from_millis(10);

struct Reading {
    reader: TcpEndpoint,
    peer: PeerId,
    source: Source,
    pool: Pool,
}

impl Reading {
    fn new(heartbeat: Duration) -> Self {
        let config = TcpConfig { streams: 1, heartbeat, ..config(READER) };
        let mut reader = TcpEndpoint::bind(config).unwrap();
        let pool = Pool::new(BLOCK, 2 * LARGE);
        pool.register(&mut reader, 0);
        let source = Source::new();
        let peer = reader.connect(&source.card()).unwrap();
        Self { reader, peer, source, pool }
    }

    fn submit(&mut self, id: u64, blocks: &[u32], timeout: Duration) {
        let copies = vec![copy(page(blocks, BLOCK), page(blocks, BLOCK))];
        let (id, peer) = (TransferId(id), self.peer);
        self.reader.submit(Transfer { id, peer, token: TOKEN, copies, timeout }).unwrap();
    }

    /// Asks for block 0 and hears the request.
    fn connected(&mut self) -> TcpStream {
        self.submit(1, &[0], PATIENCE);
        let socket = self.source.request();
        socket.set_nodelay(true).unwrap();
        socket
    }

    fn is_done(&mut self, id: u64) {
        assert_eq!(outcome(&mut self.reader, id), Outcome::Done);
    }
}

/// All that a source says to a request of so many blocks.
fn answer(id: u64, blocks: u64, byte: u8) -> Vec<u8> {
    let len = blocks * BLOCK;
    let head = frame(PORTION, u32::try_from(len).unwrap(), id, 0);
    [head, vec![byte; usize::try_from(len).unwrap()], frame(END, 0, id, 1)].concat()
}

#[test]
fn an_answer_that_nobody_comes_for_is_not_overdue() {
    let mut reading = Reading::new(Duration::from_secs(1));
    reading.submit(1, &[0], Duration::from_millis(200));
    let mut socket = reading.source.request();
    socket.write_all(&answer(1, 1, 7)).unwrap();
    sleep(Duration::from_millis(400));
    let mut events = Vec::new();
    reading.reader.poll(&mut events);
    assert_eq!(events, [Event::Completion { id: TransferId(1), outcome: Outcome::Done }]);
    assert_eq!(reading.pool.block_bytes(0..1), [7; BLOCK as usize]);
}

#[test]
fn an_answer_may_come_in_any_two_parts() {
    let mut reading = Reading::new(Duration::from_secs(1));
    let mut socket = reading.connected();
    socket.write_all(&answer(1, 1, 1)).unwrap();
    reading.is_done(1);
    let whole = answer(0, 1, 0).len();
    for (id, cut) in (2..).zip([1, 63, 64, 65, 2000, whole - 64, whole - 63, whole - 1]) {
        reading.submit(id, &[0], PATIENCE);
        let said = answer(id, 1, u8::try_from(id).unwrap());
        socket.write_all(&said[..cut]).unwrap();
        let mut events = Vec::new();
        for _ in 0..5 {
            sleep(PAUSE);
            reading.reader.poll(&mut events);
        }
        assert_eq!(events, [], "cut at {cut}");
        socket.write_all(&said[cut..]).unwrap();
        reading.is_done(id);
        assert_eq!(reading.pool.block_bytes(0..1), [u8::try_from(id).unwrap(); BLOCK as usize]);
    }
}

#[test]
fn many_small_answers_come_at_once() {
    let mut reading = Reading::new(Duration::from_secs(1));
    let mut socket = reading.connected();
    for id in 2..16 {
        reading.submit(id, &[u32::try_from(id).unwrap()], PATIENCE);
    }
    let said: Vec<u8> = (1..16).rev().flat_map(|id| answer(id, 1, 9)).collect();
    socket.write_all(&said).unwrap();
    let events = wait(&mut reading.reader, |events| events.len() == 15);
    let done = |id| Event::Completion { id: TransferId(id), outcome: Outcome::Done };
    assert_eq!(events, (1..16).rev().map(done).collect::<Vec<_>>());
}

#[test]
fn a_large_answer_and_small_ones_take_turns() {
    let mut reading = Reading::new(Duration::from_secs(1));
    let mut socket = reading.connected();
    let blocks: Vec<u32> = (LARGE..2 * LARGE).collect();
    for id in (2..20).step_by(2) {
        reading.submit(id, &blocks, PATIENCE);
        let large = answer(id, u64::from(LARGE), 8);
        let (front, back) = large.split_at(1 << 20);
        socket.write_all(front).unwrap();
        reading.reader.poll(&mut Vec::new());
        socket.write_all(back).unwrap();
        socket.write_all(&answer(id - 1, 1, 7)).unwrap();
        reading.submit(id + 1, &[1], PATIENCE);
        let events = wait(&mut reading.reader, |events| events.len() == 2);
        let done = |id| Event::Completion { id: TransferId(id), outcome: Outcome::Done };
        assert_eq!(events, [done(id), done(id - 1)]);
    }
    assert_eq!(reading.pool.block_bytes(2 * LARGE - 1..2 * LARGE), [8; BLOCK as usize]);
}

#[test]
fn signs_of_life_hide_no_answer() {
    let mut reading = Reading::new(Duration::from_secs(1));
    let mut socket = reading.connected();
    let pings = frame(PING, 0, 0, 0).repeat(1000);
    socket.write_all(&[pings, answer(1, 1, 7)].concat()).unwrap();
    reading.is_done(1);
}

#[test]
fn a_source_that_hangs_up_is_down_at_once_although_nothing_is_owed() {
    let mut reading = Reading::new(Duration::from_secs(60));
    let mut socket = reading.connected();
    socket.write_all(&answer(1, 1, 7)).unwrap();
    reading.is_done(1);
    drop(socket);
    let begun = Instant::now();
    let events = wait(&mut reading.reader, is_down);
    assert!(begun.elapsed() < Duration::from_secs(5), "{:?}", begun.elapsed());
    let why = TransferError::Lost { why: "the peer hung up".to_owned() };
    assert_eq!(events, [Event::PeerDown { peer: reading.peer, why }]);
}

#[test]
fn an_unknown_word_is_heard_although_nothing_is_owed() {
    let mut reading = Reading::new(Duration::from_millis(50));
    let mut socket = reading.connected();
    socket.write_all(&answer(1, 1, 7)).unwrap();
    reading.is_done(1);
    socket.write_all(&frame(99, 0, 0, 0)).unwrap();
    let events = wait(&mut reading.reader, is_down);
    let [Event::PeerDown { why: TransferError::Protocol { .. }, .. }] = &events[..] else {
        panic!("{events:?}");
    };
}
