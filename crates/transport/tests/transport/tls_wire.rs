//! What somebody on the wire sees and can do.

use std::collections::HashSet;
use std::io::{Read, Write};
use std::net::{Ipv4Addr, Shutdown, TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::thread;

use crate::certs::Authority;
use crate::common::*;
use transport::session::Trust;
use transport::tcp::{TcpConfig, TcpEndpoint};
use transport::{Card, Endpoint, Event, Outcome, Transfer, TransferError, TransferId};

const BLOCK: u64 = 256 << 10;

/// A way to a source on which somebody keeps what it says, and may change one bit of it.
fn way(card: &Card, change: Option<usize>) -> (Card, Arc<Mutex<Vec<u8>>>) {
    let between = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let way = Card { address: between.local_addr().unwrap().to_string(), ..card.clone() };
    let (seen, target) = (Arc::new(Mutex::new(Vec::new())), card.address.clone());
    let recorder = Arc::clone(&seen);
    thread::spawn(move || {
        let near = between.accept().unwrap().0;
        let far = TcpStream::connect(target).unwrap();
        let there = [near.try_clone().unwrap(), far.try_clone().unwrap()];
        thread::spawn(move || pipe(there, |_| ()));
        pipe([far, near], |bytes| {
            let mut seen = recorder.lock().unwrap();
            let changed = change.and_then(|at| bytes.get_mut(at.checked_sub(seen.len())?));
            let _ = changed.map(|byte| *byte ^= 1);
            seen.extend_from_slice(bytes);
        });
    });
    (way, seen)
}

fn pipe([mut from, mut to]: [TcpStream; 2], mut look: impl FnMut(&mut [u8])) {
    let mut bytes = [0; 4096];
    while let Ok(len @ 1..) = from.read(&mut bytes) {
        look(&mut bytes[..len]);
        if to.write_all(&bytes[..len]).is_err() {
            break;
        }
    }
    let _ = (from.shutdown(Shutdown::Both), to.shutdown(Shutdown::Both));
}

/// The outcome of a read of one block, what was seen on the wire, and both pools.
fn read(trust: &Trust, change: Option<usize>) -> (Outcome, Vec<u8>, [Vec<u8>; 2]) {
    let bind = |agent| {
        let config = TcpConfig { streams: 1, trust: trust.clone(), ..config(agent) };
        TcpEndpoint::bind(config).unwrap()
    };
    let (mut source, mut reader) = (bind(SOURCE), bind(READER));
    let (from, to) = (Pool::new(BLOCK, 1), Pool::new(BLOCK, 1));
    from.register(&mut source, 0);
    from.fill(7);
    to.register(&mut reader, 0);
    source.grant(READER, TOKEN, vec![page(&[0], BLOCK)]).unwrap();
    let (card, seen) = way(&source.card(), change);
    let peer = reader.connect(&card).unwrap();
    let copies = vec![copy(page(&[0], BLOCK), page(&[0], BLOCK))];
    let (id, token, timeout) = (TransferId(1), TOKEN, PATIENCE);
    reader.submit(Transfer { id, peer, token, copies, timeout }).unwrap();
    let events = wait(&mut reader, |events| !events.is_empty());
    let Some(Event::Completion { outcome, .. }) = events.into_iter().next() else { panic!() };
    let seen = seen.lock().unwrap().clone();
    (outcome, seen, [from.bytes(), to.bytes()])
}

fn sealed() -> Trust {
    Trust { secret: None, tls: Some(tls(&Authority::new())) }
}

/// How many of the block's lines of 64 bytes are on the wire as they are in memory.
fn shown(block: &[u8], seen: &[u8]) -> usize {
    let at: HashSet<&[u8]> = seen.windows(64).collect();
    block.chunks(64).filter(|line| at.contains(line)).count()
}

/// The same look finds every line where nothing encrypts.
#[test]
fn no_byte_of_a_block_is_seen() {
    let (outcome, seen, [from, to]) = read(&Trust::default(), None);
    assert_eq!((outcome, shown(&from, &seen)), (Outcome::Done, 4096));
    assert!(from == to);
    let (outcome, seen, [from, to]) = read(&sealed(), None);
    assert_eq!((outcome, shown(&from, &seen)), (Outcome::Done, 0));
    assert!(from == to && seen.len() > from.len());
}

/// One bit, late in the block. Without TLS it arrives as if it were right; with it, the
/// connection ends and the transfer with it.
#[test]
fn what_is_changed_on_the_way_does_not_arrive() {
    let late = Some(200 << 10);
    let (outcome, _, [from, to]) = read(&Trust::default(), late);
    let wrong = from.iter().zip(&to).filter(|(from, to)| from != to).count();
    assert_eq!((outcome, wrong), (Outcome::Done, 1));
    let (outcome, ..) = read(&sealed(), late);
    let why = "cannot decrypt peer's message".to_owned();
    assert_eq!(outcome, Outcome::Failed(TransferError::Lost { why }));
}
