//! What a source over TCP makes of readers that stall, lie or are no readers at all.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use crate::common::raw::{self, CANCEL, END, FRAME_LEN, PING, PORTION, REQUEST, frame, hangs_up};
use crate::common::*;
use transport::session::{Channel, HELLO_LEN, Hello, Role, VERSIONS};
use transport::tcp::{TcpConfig, TcpEndpoint};
use transport::{AgentId, BindError, Card, Endpoint, Event, Outcome};

/// Bytes of a portion, and of a block here.
pub const PORTION_LEN: u64 = 2 << 20;

/// A source with granted blocks of a portion each, far more than sockets hold.
pub struct Serving {
    source: TcpEndpoint,
    pub card: Card,
    pool: Pool,
}

impl Serving {
    pub fn new() -> Self {
        Self::with(|_| ())
    }

    fn with(change: impl FnOnce(&mut TcpConfig)) -> Self {
        let mut config = config(SOURCE);
        change(&mut config);
        let mut source = TcpEndpoint::bind(config).unwrap();
        let pool = Pool::new(PORTION_LEN, 64);
        pool.register(&mut source, 0);
        for block in 0..64 {
            pool.memory.words()[block * PORTION_LEN as usize / 8]
                .store(block as u64, Ordering::Relaxed);
        }
        source.grant(READER, TOKEN, vec![page(&(0..64).collect::<Vec<_>>(), PORTION_LEN)]).unwrap();
        let card = source.card();
        Self { source, card, pool }
    }

    /// Whether a proper reader gets what it asks for.
    fn serves(&mut self) -> bool {
        let mut reader = TcpEndpoint::bind(config(READER)).unwrap();
        let pool = Pool::new(PORTION_LEN, 1);
        pool.register(&mut reader, 0);
        let peer = reader.connect(&self.card).unwrap();
        let copies = vec![copy(page(&[5], PORTION_LEN), page(&[0], PORTION_LEN))];
        let id = transport::TransferId(1);
        let timeout = PATIENCE;
        reader.submit(transport::Transfer { id, peer, token: TOKEN, copies, timeout }).unwrap();
        assert_eq!(outcome(&mut reader, 1), Outcome::Done);
        pool.bytes() == self.pool.block_bytes(5..6)
    }
}

/// A request for the whole of the first `count` blocks of region 0.
pub fn request(transfer: u64, count: u32) -> Vec<u8> {
    request_of(transfer, count, PORTION_LEN)
}

/// The same for the first `len` bytes of each.
fn request_of(transfer: u64, count: u32, len: u64) -> Vec<u8> {
    let mut body = Vec::new();
    body.extend(1_u32.to_le_bytes());
    body.extend(count.to_le_bytes());
    body.extend((0..count).flat_map(u32::to_le_bytes));
    for word in [1_u32, 0, 0] {
        body.extend(word.to_le_bytes());
    }
    body.extend(0_u64.to_le_bytes());
    body.extend(len.to_le_bytes());
    body.extend(0_u32.to_le_bytes());
    [frame(REQUEST, body.len() as u32, transfer, TOKEN.0), body].concat()
}

/// The next frame that is not a ping, with what follows it.
fn next(socket: &mut TcpStream) -> (u32, u64, u64) {
    loop {
        let mut head = [0; FRAME_LEN];
        socket.read_exact(&mut head).unwrap();
        let kind = u32::from_le_bytes(head[..4].try_into().unwrap());
        let len = u32::from_le_bytes(head[4..8].try_into().unwrap());
        let word = |at: usize| u64::from_le_bytes(head[at..at + 8].try_into().unwrap());
        if kind == PORTION {
            socket.read_exact(&mut vec![0; len as usize]).unwrap();
        }
        if kind != PING {
            return (kind, word(8), word(16));
        }
    }
}

/// Waits until the other side has sent what it can.
fn wait_until_still(socket: &TcpStream) {
    let mut before = 0;
    loop {
        std::thread::sleep(Duration::from_millis(30));
        let now = rustix::io::ioctl_fionread(socket).unwrap();
        if now > 0 && now == before {
            return;
        }
        before = now;
    }
}

#[test]
fn a_small_transfer_does_not_wait_for_a_large_one() {
    let serving = Serving::new();
    let mut socket = raw::reader(&serving.card);
    socket.write_all(&[request(1, 64), request(2, 1)].concat()).unwrap();
    let frames: Vec<_> = std::iter::from_fn(|| Some(next(&mut socket))).take(66).collect();
    let end = |transfer| frames.iter().position(|frame| (frame.0, frame.1) == (END, transfer));
    // What was sent before the second request was read is in the way, and nothing else.
    assert!(end(2).unwrap() < 40, "{frames:?}");
    assert_eq!(next(&mut socket), (END, 1, 64));
}

#[test]
fn a_cancelled_transfer_ends_between_portions() {
    let serving = Serving::new();
    let mut socket = raw::reader(&serving.card);
    socket.write_all(&request(1, 64)).unwrap();
    // Whatever sockets hold is less than all.
    assert_eq!(next(&mut socket).0, PORTION);
    socket.write_all(&frame(CANCEL, 0, 1, 0)).unwrap();
    let mut portions = 1;
    let end = loop {
        match next(&mut socket) {
            (PORTION, 1, _) => portions += 1,
            end => break end,
        }
    };
    assert_eq!(end, (END, 1, portions));
}

#[test]
fn revoking_cuts_a_send_and_the_connection_goes_on() {
    let mut serving = Serving::new();
    let mut socket = raw::reader(&serving.card);
    socket.write_all(&request(1, 64)).unwrap();
    assert_eq!(next(&mut socket).0, PORTION);
    serving.source.revoke(TOKEN);
    let mut portions = 1;
    let end = loop {
        match next(&mut socket) {
            (PORTION, 1, _) => portions += 1,
            end => break end,
        }
    };
    assert_eq!(end, (END, 1, portions));
    assert!(portions < 64);
    let events = wait(&mut serving.source, |events| !events.is_empty());
    assert_eq!(events, [Event::Revoked { token: TOKEN }]);
    // The next read is refused, on the same connection.
    socket.write_all(&request(2, 1)).unwrap();
    assert_eq!(next(&mut socket), (END, 2, 0));
}

#[test]
fn revoking_does_not_wait_for_a_stuck_reader() {
    // Portions that senders send, and answers that are sent as they are asked for.
    let small = (1..2000).flat_map(|id| request_of(id, 1, 60_000)).collect();
    for asked in [request(1, 64), small] {
        // No heartbeat happens to look for it.
        let mut serving = Serving::with(|config| config.heartbeat = Duration::from_secs(60));
        let mut socket = raw::reader(&serving.card);
        socket.write_all(&asked).unwrap();
        // It reads nothing, and the source has filled all that lies between them.
        wait_until_still(&socket);
        let start = Instant::now();
        serving.source.revoke(TOKEN);
        let events = wait(&mut serving.source, |events| !events.is_empty());
        assert_eq!(events, [Event::Revoked { token: TOKEN }]);
        assert!(start.elapsed() < Duration::from_millis(1500), "{:?}", start.elapsed());
        assert!(hangs_up(&socket));
    }
}

#[test]
fn a_reader_that_goes_ends_its_sends() {
    let mut serving = Serving::new();
    let mut socket = raw::reader(&serving.card);
    socket.write_all(&request(1, 64)).unwrap();
    assert_eq!(next(&mut socket).0, PORTION);
    drop(socket);
    serving.source.revoke(TOKEN);
    wait(&mut serving.source, |events| !events.is_empty());
}

#[test]
fn a_silent_reader_is_hung_up_on() {
    let serving = Serving::with(|config| config.heartbeat = Duration::from_millis(50));
    assert!(hangs_up(&raw::reader(&serving.card)));
}

#[test]
fn garbage_costs_its_sender_only() {
    let mut serving = Serving::new();
    let garbage: [&[u8]; 3] = [b"GET / HTTP/1.1\r\n\r\n", &[0; 64], &[0xff; 100_000]];
    for bytes in garbage {
        let mut socket = TcpStream::connect(&serving.card.address).unwrap();
        let _ = socket.write_all(bytes);
        // Too short for a hello: the sender gives up.
        let _ = socket.shutdown(std::net::Shutdown::Write);
        let mut answer = Vec::new();
        let _ = socket.read_to_end(&mut answer);
        assert_eq!(answer, [], "garbage is told nothing");
    }
    assert!(serving.serves());
}

#[test]
fn broken_frames_end_their_connection_only() {
    let mut serving = Serving::new();
    let mut lively = raw::reader(&serving.card);
    let mut malformed = request(1, 1);
    malformed[FRAME_LEN] = 9;
    let cases = [
        frame(99, 0, 0, 0),
        frame(END, 0, 1, 0),
        frame(REQUEST, u32::MAX, 1, TOKEN.0),
        frame(REQUEST, 0, 1, TOKEN.0),
        malformed,
    ];
    for bytes in cases {
        let mut socket = raw::reader(&serving.card);
        socket.write_all(&bytes).unwrap();
        assert!(hangs_up(&socket));
    }
    lively.write_all(&request(1, 1)).unwrap();
    assert_eq!(next(&mut lively), (PORTION, 1, 0));
    assert_eq!(next(&mut lively), (END, 1, 1));
    assert!(serving.serves());
}

#[test]
fn more_open_requests_than_allowed_end_the_connection() {
    let serving = Serving::new();
    let mut socket = raw::reader(&serving.card);
    // The first keeps the sender busy, as nothing is read.
    let flood: Vec<u8> = (0..6000).flat_map(|id| request(id, 64)).collect();
    let _ = socket.write_all(&flood);
    assert!(hangs_up(&socket));
}

#[test]
fn hellos_that_do_not_fit_are_refused() {
    let mut serving = Serving::new();
    let good = raw::hello(READER, Role::Decode);
    // Whoever came to the wrong port is told what it is; the others nothing.
    let refused = [
        (Hello { role: Role::Prefill, ..good.clone() }, true),
        (Hello { channel: Channel::Control, ..good.clone() }, true),
        (Hello { streams: 17, ..good.clone() }, false),
        (Hello { stream: 1, streams: 2, ..good.clone() }, false),
    ];
    for (hello, told) in refused {
        let mut socket = TcpStream::connect(&serving.card.address).unwrap();
        socket.write_all(&hello.encode()).unwrap();
        let mut answer = Vec::new();
        let _ = socket.read_to_end(&mut answer);
        assert_eq!(answer.len(), if told { HELLO_LEN } else { 0 }, "{hello:?}");
    }
    assert!(serving.serves());
}

#[test]
fn a_wrong_version_is_told_the_right_ones() {
    let mut serving = Serving::new();
    let later = Hello { versions: 40..=50, ..raw::hello(READER, Role::Decode) };
    let socket = TcpStream::connect(&serving.card.address).unwrap();
    assert_eq!(raw::greet(&socket, &later).versions, VERSIONS);
    assert!(hangs_up(&socket));
    assert!(serving.serves());
}

#[test]
fn strangers_are_bounded_and_do_not_stay() {
    let mut serving = Serving::with(|config| {
        config.max_strangers = 3;
        config.hello_timeout = Duration::from_millis(800);
    });
    let connect = || TcpStream::connect(&serving.card.address).unwrap();
    let mut oldest = connect();
    oldest.write_all(&raw::hello(READER, Role::Decode).encode()[..10]).unwrap();
    let others = [connect(), connect(), connect()];
    let start = Instant::now();
    assert!(hangs_up(&oldest));
    assert!(start.elapsed() < Duration::from_millis(600));
    for socket in &others {
        assert!(hangs_up(socket));
    }
    assert!(start.elapsed() >= Duration::from_millis(600));
    assert!(serving.serves());
}

/// The first stream of a connection that waits for its others is a stranger as well.
#[test]
fn half_a_connection_does_not_keep_its_place() {
    let mut serving = Serving::with(|config| config.max_strangers = 3);
    let half = TcpStream::connect(&serving.card.address).unwrap();
    raw::greet(&half, &Hello { streams: 2, ..raw::hello(READER, Role::Decode) });
    let start = Instant::now();
    let crowd = [(); 3].map(|()| TcpStream::connect(&serving.card.address).unwrap());
    assert!(hangs_up(&half));
    assert!(serving.serves());
    assert!(start.elapsed() < Duration::from_secs(4), "{:?}", start.elapsed());
    drop(crowd);
}

#[test]
fn a_connection_whose_streams_do_not_all_come_is_dropped() {
    let mut serving = Serving::with(|config| config.hello_timeout = Duration::from_millis(500));
    let socket = TcpStream::connect(&serving.card.address).unwrap();
    raw::greet(&socket, &Hello { streams: 2, ..raw::hello(READER, Role::Decode) });
    assert!(hangs_up(&socket));
    assert!(serving.serves());
}

#[test]
fn a_reader_that_comes_back_is_served_each_time() {
    let mut serving = Serving::new();
    for _ in 0..20 {
        assert!(serving.serves());
    }
}

#[test]
fn an_endpoint_can_be_dropped_in_the_middle_of_anything() {
    let serving = Serving::new();
    let _silent = TcpStream::connect(&serving.card.address).unwrap();
    let _idle = raw::reader(&serving.card);
    let mut stuck = raw::reader(&serving.card);
    stuck.write_all(&request(1, 64)).unwrap();
    assert_eq!(next(&mut stuck).0, PORTION);
    let start = Instant::now();
    drop(serving);
    assert!(start.elapsed() < Duration::from_secs(1));
}

#[test]
fn settings_are_checked() {
    type Change = fn(&mut TcpConfig);
    let changes: [Change; 9] = [
        |config| config.streams = 0,
        |config| config.streams = 17,
        |config| config.max_in_flight = 0,
        |config| config.max_in_flight = 5000,
        |config| config.missed_heartbeats = 0,
        |config| config.heartbeat = Duration::ZERO,
        |config| config.heartbeat = Duration::MAX,
        |config| config.hello_timeout = Duration::MAX,
        |config| config.cut_after = Duration::MAX,
    ];
    for change in changes {
        let mut config = config(SOURCE);
        change(&mut config);
        assert!(matches!(TcpEndpoint::bind(config), Err(BindError::Config { .. })));
    }
    let everywhere = SocketAddr::from((Ipv4Addr::UNSPECIFIED, 0));
    let refused = TcpEndpoint::bind(TcpConfig::new(AgentId(1), 1, everywhere));
    assert!(matches!(refused, Err(BindError::NotLoopback { .. })));
}

/// Who repeats another's first stream is turned away, and the honest connection completes.
#[test]
fn a_second_first_stream_is_refused() {
    let serving = Serving::new();
    let first = Hello { streams: 2, ..raw::hello(READER, Role::Decode) };
    let mut honest = TcpStream::connect(&serving.card.address).unwrap();
    raw::greet(&honest, &first);
    let mut repeater = TcpStream::connect(&serving.card.address).unwrap();
    repeater.write_all(&first.encode()).unwrap();
    assert!(hangs_up(&repeater));
    let second = TcpStream::connect(&serving.card.address).unwrap();
    raw::greet(&second, &Hello { stream: 1, ..first });
    // More than the second stream, which nobody reads, can take.
    honest.write_all(&request(7, 64)).unwrap();
    let (kind, transfer, _) = next(&mut honest);
    assert_eq!((kind, transfer), (PORTION, 7));
}
