//! What a source through shared memory makes of readers that stall, lie or are no readers.

use std::io::Write;
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use crate::common::raw::{self, frame};
use crate::common::unix::{
    self, ANSWER, BUFFER, HERE, OVER, PROBE, REQUEST, SHOW, STOP, WITHDRAW, WITHDRAWN, connect,
    hangs_up,
};
use crate::common::*;
use crate::tcp_source::{PORTION_LEN, request};
use transport::session::{Channel, Hello, Role};
use transport::shm::{ShmConfig, ShmEndpoint};
use transport::{BindError, Card, Endpoint, Event, Outcome, Registration, Transfer, TransferId};

const REVOKED: Event = Event::Revoked { token: TOKEN };

/// A source with granted blocks of a portion each.
struct Serving {
    source: ShmEndpoint,
    card: Card,
    pool: Pool,
    registration: Registration,
}

impl Serving {
    fn new() -> Self {
        Self::with(|_| ())
    }

    fn with(change: impl FnOnce(&mut ShmConfig)) -> Self {
        let mut config = ShmConfig::new(SOURCE, 1);
        change(&mut config);
        let mut source = ShmEndpoint::bind(config).unwrap();
        let pool = Pool::new(PORTION_LEN, 4);
        let registration = pool.register(&mut source, 0);
        pool.fill(3);
        source.grant(READER, TOKEN, vec![page(&[0, 1, 2, 3], PORTION_LEN)]).unwrap();
        let card = source.card();
        Self { source, card, pool, registration }
    }

    fn reader(&self) -> UnixStream {
        let (socket, shown) = unix::reader(&self.card);
        assert_eq!(shown.iter().map(|frame| frame.kind).collect::<Vec<_>>(), [SHOW, HERE]);
        socket
    }

    /// A reader that was allowed a transfer, and reads it for ever.
    fn reading(&self) -> UnixStream {
        let mut socket = self.reader();
        socket.write_all(&request(1, 4)).unwrap();
        let answer = unix::next(&mut socket);
        assert_eq!((answer.kind, answer.small, answer.a), (ANSWER, 1, 1));
        socket
    }

    /// Whether a proper reader gets what it asks for.
    fn serves(&mut self) -> bool {
        let mut reader = ShmEndpoint::bind(ShmConfig::new(READER, 1)).unwrap();
        let pool = Pool::new(PORTION_LEN, 1);
        pool.register(&mut reader, 0);
        let peer = reader.connect(&self.card).unwrap();
        let copies = vec![copy(page(&[2], PORTION_LEN), page(&[0], PORTION_LEN))];
        let id = TransferId(1);
        let timeout = PATIENCE;
        reader.submit(Transfer { id, peer, token: TOKEN, copies, timeout }).unwrap();
        assert_eq!(outcome(&mut reader, 1), Outcome::Done);
        pool.bytes() == self.pool.block_bytes(2..3)
    }

    fn revoked(&mut self) {
        let events = wait(&mut self.source, |events| !events.is_empty());
        assert_eq!(events, [REVOKED]);
    }
}

#[test]
fn a_revocation_waits_until_the_reader_has_let_go() {
    let mut serving = Serving::with(|config| config.cut_after = PATIENCE);
    let mut socket = serving.reading();
    serving.source.revoke(TOKEN);
    let stop = unix::next(&mut socket);
    assert_eq!((stop.kind, stop.a), (STOP, 1));
    std::thread::sleep(Duration::from_millis(50));
    let mut events = Vec::new();
    serving.source.poll(&mut events);
    assert_eq!(events, []);
    socket.write_all(&frame(OVER, 0, 1, 0)).unwrap();
    serving.revoked();
    // The next read is refused, on the same connection.
    socket.write_all(&request(2, 1)).unwrap();
    let answer = unix::next(&mut socket);
    assert_eq!((answer.kind, answer.small, answer.a), (ANSWER, 0, 2));
}

#[test]
fn a_reader_that_does_not_let_go_is_cut() {
    let mut serving = Serving::new();
    let socket = serving.reading();
    let start = Instant::now();
    serving.source.revoke(TOKEN);
    serving.revoked();
    assert!(start.elapsed() >= Duration::from_millis(450), "{:?}", start.elapsed());
    assert!(start.elapsed() < Duration::from_secs(4), "{:?}", start.elapsed());
    assert!(hangs_up(&socket));
}

#[test]
fn a_reader_that_goes_ends_its_reads() {
    let mut serving = Serving::new();
    drop(serving.reading());
    serving.source.revoke(TOKEN);
    serving.revoked();
}

#[test]
fn what_is_withdrawn_lives_until_the_reader_has_let_go() {
    let mut serving = Serving::with(|config| config.cut_after = PATIENCE);
    let mut socket = serving.reader();
    serving.source.revoke(TOKEN);
    serving.revoked();
    let memory = std::sync::Arc::downgrade(&serving.pool.memory);
    serving.source.deregister(serving.registration).unwrap();
    serving.pool = Pool::new(8, 1);
    let withdrawn = unix::next(&mut socket);
    assert_eq!((withdrawn.kind, withdrawn.a), (WITHDRAW, serving.registration.generation));
    assert!(memory.upgrade().is_some());
    socket.write_all(&frame(WITHDRAWN, 0, withdrawn.a, 0)).unwrap();
    let end = Instant::now() + PATIENCE;
    while memory.upgrade().is_some() {
        assert!(Instant::now() < end);
        std::thread::sleep(Duration::from_millis(5));
    }
    // What comes next is shown as well.
    serving.pool.register(&mut serving.source, 0);
    assert_eq!(unix::next(&mut socket).kind, SHOW);
}

#[test]
fn a_reader_that_keeps_what_is_withdrawn_is_cut() {
    let mut serving = Serving::new();
    let socket = serving.reader();
    serving.source.revoke(TOKEN);
    serving.revoked();
    serving.source.deregister(serving.registration).unwrap();
    assert!(hangs_up(&socket));
}

#[test]
fn garbage_costs_its_sender_only() {
    let mut serving = Serving::new();
    let garbage: [&[u8]; 3] = [b"GET / HTTP/1.1\r\n\r\n", &[0; 64], &[0xff; 100_000]];
    for bytes in garbage {
        let mut socket = connect(&serving.card);
        let _ = socket.write_all(bytes);
        unix::finish(&socket);
    }
    assert!(serving.serves());
}

#[test]
fn broken_frames_end_their_connection_only() {
    let mut serving = Serving::new();
    let mut lively = serving.reader();
    let mut malformed = request(1, 1);
    malformed[raw::FRAME_LEN] = 9;
    let cases = [
        frame(99, 0, 0, 0),
        frame(ANSWER, 1, 1, 0),
        frame(REQUEST, u32::MAX, 1, TOKEN.0),
        frame(REQUEST, 0, 1, TOKEN.0),
        frame(OVER, 0, 1, 0),
        frame(WITHDRAWN, 0, 1, 0),
        [request(1, 1), request(1, 1)].concat(),
        [frame(PROBE, 0, 0, 0), frame(PROBE, 0, 0, 0)].concat(),
        malformed,
    ];
    for bytes in cases {
        let mut socket = serving.reader();
        socket.write_all(&bytes).unwrap();
        assert!(hangs_up(&socket), "{bytes:?}");
    }
    lively.write_all(&request(1, 1)).unwrap();
    assert_eq!(unix::next(&mut lively).kind, ANSWER);
    assert!(serving.serves());
}

#[test]
fn a_reader_that_asks_and_does_not_listen_costs_no_memory() {
    let serving = Serving::new();
    let mut socket = serving.reader();
    socket.set_write_timeout(Some(Duration::from_millis(500))).unwrap();
    // Each is refused, and each answer waits; in the end nobody hears it any more.
    let mut other = request(1, 1);
    other[16] ^= 1;
    let flood: Vec<u8> = other.repeat(10_000);
    while socket.write_all(&flood).is_ok() {}
}

#[test]
fn more_open_requests_than_allowed_end_the_connection() {
    let serving = Serving::new();
    let mut socket = serving.reader();
    let flood: Vec<u8> = (0..6000).flat_map(|id| request(id, 4)).collect();
    let _ = socket.write_all(&flood);
    assert!(hangs_up(&socket));
}

#[test]
fn a_probe_is_shown_something_to_measure_with() {
    let serving = Serving::new();
    let mut socket = serving.reader();
    socket.write_all(&frame(PROBE, 0, 0, 0)).unwrap();
    let buffer = unix::next(&mut socket);
    assert_eq!((buffer.kind, buffer.b), (BUFFER, 8 << 20));
}

#[test]
fn hellos_that_do_not_fit_are_refused() {
    let mut serving = Serving::new();
    let good = raw::hello(READER, Role::Decode);
    let refused = [
        Hello { role: Role::Prefill, ..good.clone() },
        Hello { channel: Channel::Control, ..good.clone() },
        Hello { streams: 2, ..good.clone() },
        Hello { versions: 40..=50, ..good },
    ];
    for hello in refused {
        let mut socket = connect(&serving.card);
        socket.write_all(&hello.encode()).unwrap();
        assert!(hangs_up(&socket), "{hello:?}");
    }
    assert!(serving.serves());
}

#[test]
fn strangers_are_bounded_and_do_not_stay() {
    let mut serving = Serving::with(|config| {
        config.max_strangers = 3;
        config.hello_timeout = Duration::from_secs(2);
    });
    let oldest = connect(&serving.card);
    let start = Instant::now();
    let others = [(); 3].map(|()| connect(&serving.card));
    assert!(hangs_up(&oldest));
    assert!(start.elapsed() < Duration::from_millis(1500));
    for socket in &others {
        assert!(hangs_up(socket));
    }
    assert!(start.elapsed() >= Duration::from_millis(1500));
    assert!(serving.serves());
}

#[test]
fn an_endpoint_can_be_dropped_in_the_middle_of_anything() {
    let serving = Serving::new();
    let _silent = connect(&serving.card);
    let _idle = serving.reader();
    let _busy = serving.reading();
    let start = Instant::now();
    drop(serving);
    assert!(start.elapsed() < Duration::from_secs(2));
}

#[test]
fn settings_are_checked() {
    type Change = fn(&mut ShmConfig);
    let changes: [Change; 8] = [
        |config| config.copiers = 0,
        |config| config.copiers = 17,
        |config| config.max_in_flight = 0,
        |config| config.max_in_flight = 5000,
        |config| config.max_readers = 0,
        |config| config.max_strangers = 0,
        |config| config.hello_timeout = Duration::MAX,
        |config| config.cut_after = Duration::ZERO,
    ];
    for change in changes {
        let mut config = ShmConfig::new(SOURCE, 1);
        change(&mut config);
        assert!(matches!(ShmEndpoint::bind(config), Err(BindError::Config { .. })));
    }
}
