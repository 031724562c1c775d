//! Connections under TLS over which nothing moves any more: they are cut as plain ones are.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::thread;
use std::time::{Duration, Instant};

use crate::certs::Authority;
use crate::common::*;
use transport::session::Trust;
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
    // It has begun, and has filled what there is of buffers.
    thread::sleep(Duration::from_millis(1500));
    source.revoke(TOKEN);
    let start = Instant::now();
    assert_eq!(wait(&mut source, |events| !events.is_empty()), [Event::Revoked { token: TOKEN }]);
    let took = start.elapsed();
    // By then nobody reads the block any more. It took the time that a send is given.
    let bounds = Duration::from_millis(400)..Duration::from_secs(5);
    assert!(bounds.contains(&took), "{took:?}");
}
