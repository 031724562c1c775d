//! Connections under TLS over which nothing moves any more, or nothing whole: they are cut as
//! plain ones are.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::ops::DerefMut;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use crate::certs::Authority;
use crate::common::raw::{self, hangs_up};
use crate::common::*;
use crate::tcp_source::{PORTION_LEN, request};
use rustls::pki_types::ServerName;
use rustls::{ClientConnection, ConnectionCommon, ServerConnection, SideData, StreamOwned};
use transport::session::{HELLO_LEN, Role, Tls, Trust};
use transport::tcp::{TcpConfig, TcpEndpoint};
use transport::{Card, Endpoint, Event, Outcome, Transfer, TransferError, TransferId};

/// More than all buffers on the way take.
const BLOCK: u64 = 64 << 20;

/// A way to a source over which its first bytes come, and then no more; it stays open.
fn clogged(card: &Card) -> Card {
    let between = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let way = Card { address: between.local_addr().unwrap().to_string(), ..card.clone() };
    let target = card.address.clone();
    thread::spawn(move || {
        let mut near = between.accept().unwrap().0;
        let mut far = TcpStream::connect(target).unwrap();
        let (mut from, mut to) = (near.try_clone().unwrap(), far.try_clone().unwrap());
        thread::spawn(move || std::io::copy(&mut from, &mut to));
        let _ = std::io::copy(&mut Read::by_ref(&mut far).take(1 << 20), &mut near);
        let _ = near.flush();
        thread::sleep(PATIENCE);
    });
    way
}

/// A source and a reader in the middle of a read that does not move, with this time for it.
fn stuck(timeout: Duration) -> (TcpEndpoint, TcpEndpoint, [Pool; 2]) {
    let trust = Trust { secret: None, tls: Some(tls(&Authority::new())) };
    let bind = |agent| {
        // Silence is not what is to end it.
        let config = TcpConfig { missed_heartbeats: 100, streams: 1, ..config(agent) };
        TcpEndpoint::bind(TcpConfig { trust: trust.clone(), ..config }).unwrap()
    };
    let (mut source, mut reader) = (bind(SOURCE), bind(READER));
    let pools = [Pool::new(BLOCK, 1), Pool::new(BLOCK, 1)];
    pools[0].register(&mut source, 0);
    pools[1].register(&mut reader, 0);
    source.grant(READER, TOKEN, vec![page(&[0], BLOCK)]).unwrap();
    let peer = reader.connect(&clogged(&source.card())).unwrap();
    let copies = vec![copy(page(&[0], BLOCK), page(&[0], BLOCK))];
    let transfer = Transfer { id: TransferId(1), peer, token: TOKEN, copies, timeout };
    reader.submit(transfer).unwrap();
    (source, reader, pools)
}

#[test]
fn an_overdue_read_is_fenced() {
    let (_source, mut reader, _pools) = stuck(Duration::from_millis(1500));
    let start = Instant::now();
    let events = wait(&mut reader, is_down);
    assert!(start.elapsed() < Duration::from_secs(5), "{:?}", start.elapsed());
    let id = TransferId(1);
    let fenced = Outcome::Failed(TransferError::Fenced);
    assert_eq!(events[0], Event::Overdue { id });
    assert_eq!(events[1], Event::Completion { id, outcome: fenced });
    assert!(matches!(events[2], Event::Fenced { .. }), "{events:?}");
}

#[test]
fn a_send_that_outlives_its_grant_is_cut_off() {
    let (mut source, _reader, _pools) = stuck(PATIENCE);
    cuts_off(&mut source);
}

/// Nobody reads a revoked block any more once that is said. It takes the time that a send is
/// given.
fn cuts_off(source: &mut TcpEndpoint) {
    // The send has begun, and has filled what there is of buffers.
    thread::sleep(Duration::from_millis(1500));
    source.revoke(TOKEN);
    let start = Instant::now();
    assert_eq!(wait(source, |events| !events.is_empty()), [Event::Revoked { token: TOKEN }]);
    let took = start.elapsed();
    let bounds = Duration::from_millis(400)..Duration::from_secs(5);
    assert!(bounds.contains(&took), "{took:?}");
}

/// A socket to a source, with a TLS session whose handshake is over.
fn wrapped(card: &Card, tls: &Tls) -> StreamOwned<ClientConnection, TcpStream> {
    let name = ServerName::try_from("127.0.0.1").unwrap();
    let session = ClientConnection::new(tls.client(), name).unwrap();
    let mut wrapped = StreamOwned::new(session, TcpStream::connect(&card.address).unwrap());
    wrapped.conn.complete_io(&mut wrapped.sock).unwrap();
    wrapped
}

/// The record that such words are sent in.
fn record<Side: SideData>(
    session: &mut impl DerefMut<Target = ConnectionCommon<Side>>,
    words: &[u8],
) -> Vec<u8> {
    session.writer().write_all(words).unwrap();
    let mut record = Vec::new();
    session.write_tls(&mut record).unwrap();
    record
}

/// Says it byte by byte, for as long as somebody listens: gives the number of bytes.
fn drip(mut socket: &TcpStream, bytes: &[u8]) -> usize {
    let said = bytes.iter().take_while(|&&byte| {
        thread::sleep(Duration::from_millis(20));
        socket.write_all(&[byte]).is_ok()
    });
    said.count()
}

fn source(tls: &Arc<Tls>, change: impl FnOnce(&mut TcpConfig)) -> TcpEndpoint {
    let trust = Trust { secret: None, tls: Some(Arc::clone(tls)) };
    let mut config = TcpConfig { trust, ..config(SOURCE) };
    change(&mut config);
    TcpEndpoint::bind(config).unwrap()
}

/// A reader of one stream that has said who it is.
fn greeted(card: &Card, tls: &Tls) -> StreamOwned<ClientConnection, TcpStream> {
    let mut reader = wrapped(card, tls);
    reader.write_all(&raw::hello(READER, Role::Decode).encode()).unwrap();
    reader.read_exact(&mut [0; HELLO_LEN]).unwrap();
    reader
}

/// A certificate does not make a hello's time longer, nor do records without a word in them.
#[test]
fn whoever_drips_a_hello_is_hung_up_on_in_time() {
    let tls = tls(&Authority::new());
    let source = source(&tls, |config| config.hello_timeout = Duration::from_millis(800));
    let whole = |session: &mut ClientConnection| {
        let hello = raw::hello(READER, Role::Decode).encode();
        record(session, &[&hello[..], &[0; 400]].concat())
    };
    let mut stranger = wrapped(&source.card(), &tls);
    let start = Instant::now();
    let bytes = whole(&mut stranger.conn);
    assert!(drip(&stranger.sock, &bytes) < 200);
    assert!(hangs_up(&stranger.sock));
    assert!(start.elapsed() < Duration::from_secs(4), "{:?}", start.elapsed());
}

/// A reader that has stopped reading and is never done with a word of its own.
#[test]
fn whoever_drips_does_not_keep_what_was_revoked() {
    let tls = tls(&Authority::new());
    let mut source = source(&tls, |config| config.missed_heartbeats = 100);
    let pool = Pool::new(PORTION_LEN, 32);
    pool.register(&mut source, 0);
    let blocks: Vec<u32> = (0..32).collect();
    source.grant(READER, TOKEN, vec![page(&blocks, PORTION_LEN)]).unwrap();
    let mut reader = greeted(&source.card(), &tls);
    reader.write_all(&request(1, 32)).unwrap();
    let bytes = record(&mut reader.conn, &[0; 8 << 10]);
    let dripping = thread::spawn(move || drip(&reader.sock, &bytes));
    cuts_off(&mut source);
    drop(source);
    dripping.join().unwrap();
}

/// Bytes of which nothing whole comes are no sign of life, to either side.
#[test]
fn a_drip_is_silence() {
    let tls = tls(&Authority::new());
    let quick = |config: &mut TcpConfig| config.heartbeat = Duration::from_millis(100);
    let start = Instant::now();
    let source = source(&tls, quick);
    let mut reader = greeted(&source.card(), &tls);
    let bytes = record(&mut reader.conn, &[0; 500]);
    assert!(drip(&reader.sock, &bytes) < 200);

    let by_hand = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let card = Card { address: by_hand.local_addr().unwrap().to_string(), ..source.card() };
    let session = ServerConnection::new(tls.server()).unwrap();
    let dripping = thread::spawn(move || {
        let mut source = StreamOwned::new(session, by_hand.accept().unwrap().0);
        source.read_exact(&mut [0; HELLO_LEN]).unwrap();
        source.write_all(&raw::hello(SOURCE, Role::Prefill).encode()).unwrap();
        let bytes = record(&mut source.conn, &[0; 500]);
        drip(&source.sock, &bytes)
    });
    let trust = Trust { secret: None, tls: Some(tls) };
    let mut config = TcpConfig { streams: 1, trust, ..config(READER) };
    quick(&mut config);
    let mut reader = TcpEndpoint::bind(config).unwrap();
    let peer = reader.connect(&card).unwrap();
    let silent = Event::PeerDown { peer, why: TransferError::Silent };
    assert_eq!(wait(&mut reader, is_down), [silent]);
    assert!(dripping.join().unwrap() < 200);
    assert!(start.elapsed() < Duration::from_secs(6), "{:?}", start.elapsed());
}
