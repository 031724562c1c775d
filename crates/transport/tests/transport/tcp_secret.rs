//! Endpoints over TCP that prove a secret, and what comes of those that do not.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use crate::common::raw::{self, FRAME_LEN, hangs_up};
use crate::common::*;
use transport::session::{Greeting, HELLO_LEN, Hello, PROOF_LEN, Role, Secret, Step, Trust};
use transport::tcp::{TcpConfig, TcpEndpoint};
use transport::{
    AgentId, BindError, Card, ConnectError, Endpoint, Event, Outcome, Transfer, TransferError,
    TransferId,
};

const BLOCK: u64 = 4096;

pub fn secret(text: &str) -> Option<Arc<Secret>> {
    Some(Arc::new(Secret::new(text.as_bytes()).unwrap()))
}

fn ours() -> Option<Arc<Secret>> {
    secret("a secret of some length")
}

fn other() -> Option<Arc<Secret>> {
    secret("a secret of same length")
}

/// A source that has granted its one block to `READER`.
pub fn source(trust: impl Into<Trust>, change: impl FnOnce(&mut TcpConfig)) -> TcpEndpoint {
    let mut config = TcpConfig { trust: trust.into(), ..config(SOURCE) };
    change(&mut config);
    let mut source = TcpEndpoint::bind(config).unwrap();
    let pool = Pool::new(BLOCK, 1);
    pool.register(&mut source, 0);
    pool.fill(1);
    source.grant(READER, TOKEN, vec![page(&[0], BLOCK)]).unwrap();
    source
}

/// How a read of that block ends, by an agent that shows this.
pub fn read_as(agent: AgentId, trust: impl Into<Trust>, card: &Card) -> Outcome {
    read_with(agent, trust, card, |_| ())
}

pub fn read_with(
    agent: AgentId,
    trust: impl Into<Trust>,
    card: &Card,
    change: impl FnOnce(&mut TcpConfig),
) -> Outcome {
    let mut config = TcpConfig { trust: trust.into(), ..config(agent) };
    change(&mut config);
    let mut reader = TcpEndpoint::bind(config).unwrap();
    let pool = Pool::new(BLOCK, 1);
    pool.register(&mut reader, 0);
    let peer = reader.connect(card).unwrap();
    let copies = vec![copy(page(&[0], BLOCK), page(&[0], BLOCK))];
    let (id, token, timeout) = (TransferId(1), TOKEN, PATIENCE);
    // The connection may have failed already.
    let _ = reader.submit(Transfer { id, peer, token, copies, timeout });
    let events = wait(&mut reader, |events| !events.is_empty());
    match events.into_iter().next() {
        Some(Event::Completion { outcome, .. }) => outcome,
        Some(Event::PeerDown { why, .. }) => Outcome::Failed(why),
        other => panic!("{other:?}"),
    }
}

pub fn refused(trust: impl Into<Trust>, card: &Card) -> String {
    match read_as(READER, trust, card) {
        Outcome::Failed(why @ TransferError::Connect { .. }) => why.to_string(),
        other => panic!("{other:?}"),
    }
}

pub fn cannot(card: &Card, why: &str) -> String {
    format!("cannot connect to {}: {why}", card.address)
}

#[test]
fn blocks_are_read_by_those_who_have_the_secret() {
    let source = source(ours(), |_| ());
    assert_eq!(read_as(READER, ours(), &source.card()), Outcome::Done);
}

#[test]
fn a_reader_is_told_why_it_is_refused() {
    let only_theirs = "the peer has a secret and this side has none: give both the same";
    let only_ours = "this side has a secret and the peer has none: give both the same";
    let not_taken = "the peer did not take this side's secret for its own: give both the same";
    let with = source(ours(), |_| ());
    let card = with.card();
    assert_eq!(refused(None, &card), cannot(&card, only_theirs));
    assert_eq!(refused(other(), &card), cannot(&card, not_taken));
    let without = source(None, |_| ());
    let card = without.card();
    assert_eq!(refused(ours(), &card), cannot(&card, only_ours));
    // All that costs the others nothing.
    assert_eq!(read_as(READER, ours(), &with.card()), Outcome::Done);
    assert_eq!(read_as(READER, None, &without.card()), Outcome::Done);
}

/// The secret lets an agent in; what it may read is still its own.
#[test]
fn a_token_is_of_use_to_its_agent_only() {
    let source = source(ours(), |_| ());
    let outcome = read_as(AgentId(201), ours(), &source.card());
    assert_eq!(outcome, Outcome::Failed(TransferError::NotGranted));
    assert_eq!(read_as(READER, ours(), &source.card()), Outcome::Done);
}

/// Proves the secret under one hello, and says another one.
fn lie(card: &Card, proved: &Hello, said: &Hello) -> TcpStream {
    let mut socket = TcpStream::connect(&card.address).unwrap();
    let mut greeting = Greeting::dialler(proved.clone(), ours());
    assert!(matches!(greeting.step(), Ok(Step::Say(_))));
    socket.write_all(&Hello { proves: true, ..said.clone() }.encode()).unwrap();
    let mut theirs = [0; HELLO_LEN];
    socket.read_exact(&mut theirs).unwrap();
    greeting.hear(&theirs).unwrap();
    let Ok(Step::Say(proof)) = greeting.step() else { panic!("no proof") };
    socket.write_all(&proof).unwrap();
    socket
}

#[test]
fn a_stream_that_claims_to_be_another_agents_is_refused() {
    let source = source(ours(), |_| ());
    let card = source.card();
    let own = raw::hello(AgentId(201), Role::Decode);
    let mut honest = lie(&card, &own, &own);
    let mut answer = [0; PROOF_LEN];
    honest.read_exact(&mut answer).unwrap();
    let own = raw::hello(AgentId(201), Role::Decode);
    let stolen = [
        Hello { agent: READER, ..own.clone() },
        Hello { engine: 9, ..own.clone() },
        Hello { random: [9; 16], ..own.clone() },
        Hello { streams: 2, ..own.clone() },
    ];
    for said in stolen {
        let mut socket = lie(&card, &own, &said);
        let mut answer = Vec::new();
        let _ = socket.read_to_end(&mut answer);
        assert_eq!(answer, [0; PROOF_LEN], "{said:?}");
    }
}

/// A recorded stream, said again word for word.
#[test]
fn a_replayed_stream_is_refused() {
    let source = source(ours(), |_| ());
    let card = source.card();
    let address = card.address.parse().unwrap();
    let between = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let way = Card { address: between.local_addr().unwrap().to_string(), ..card };
    let recorder = thread::spawn(move || {
        let (mut near, _) = between.accept().unwrap();
        let mut far = TcpStream::connect::<SocketAddr>(address).unwrap();
        let mut said = vec![0; HELLO_LEN + PROOF_LEN];
        let (hello, proof) = said.split_at_mut(HELLO_LEN);
        near.read_exact(hello).unwrap();
        far.write_all(hello).unwrap();
        let mut answer = [0; HELLO_LEN];
        far.read_exact(&mut answer).unwrap();
        near.write_all(&answer).unwrap();
        near.read_exact(proof).unwrap();
        far.write_all(proof).unwrap();
        far.read_exact(&mut [0; PROOF_LEN]).unwrap();
        said
    });
    let config = TcpConfig { trust: ours().into(), streams: 1, ..config(READER) };
    let mut reader = TcpEndpoint::bind(config).unwrap();
    reader.connect(&way).unwrap();
    let recorded = recorder.join().unwrap();
    let mut again = TcpStream::connect(address).unwrap();
    again.write_all(&recorded).unwrap();
    let mut answer = Vec::new();
    let _ = again.read_to_end(&mut answer);
    assert_eq!(answer.split_off(HELLO_LEN), [0; PROOF_LEN]);
}

/// A source without the secret can only say again what it hears.
#[test]
fn a_reflected_proof_is_refused() {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let mirror = thread::spawn(move || {
        let (mut socket, _) = listener.accept().unwrap();
        socket.read_exact(&mut [0; HELLO_LEN]).unwrap();
        let own = Hello { proves: true, ..raw::hello(SOURCE, Role::Prefill) };
        socket.write_all(&own.encode()).unwrap();
        let mut proof = [0; PROOF_LEN];
        socket.read_exact(&mut proof).unwrap();
        socket.write_all(&proof).unwrap();
        socket
    });
    let card = Card { provider: "tcp", agent: SOURCE, address };
    let why = "the peer has another secret than this side: give both the same";
    assert_eq!(refused(ours(), &card), cannot(&card, why));
    drop(mirror.join().unwrap());
}

/// One byte a tenth of a second would take more than 9 s for hello and proof.
#[test]
fn whoever_drips_is_hung_up_on_in_time() {
    let source = source(ours(), |config| config.hello_timeout = Duration::from_millis(800));
    let mut socket = TcpStream::connect(&source.card().address).unwrap();
    let start = Instant::now();
    let hello = Hello { proves: true, ..raw::hello(READER, Role::Decode) }.encode();
    let alive = hello.iter().take_while(|&&byte| {
        thread::sleep(Duration::from_millis(100));
        socket.write_all(&[byte]).is_ok()
    });
    assert!(alive.count() < HELLO_LEN);
    assert!(start.elapsed() < Duration::from_secs(4), "{:?}", start.elapsed());

    // After the hello, the same time counts on.
    let start = Instant::now();
    let mut socket = TcpStream::connect(&source.card().address).unwrap();
    socket.write_all(&hello).unwrap();
    socket.read_exact(&mut [0; HELLO_LEN]).unwrap();
    socket.write_all(&[0; PROOF_LEN - 1]).unwrap();
    assert!(hangs_up(&socket));
    assert!(start.elapsed() < Duration::from_secs(4), "{:?}", start.elapsed());
}

/// What is said before the proof is no request.
#[test]
fn nothing_is_heard_before_the_proof() {
    let source = source(ours(), |_| ());
    let mut socket = TcpStream::connect(&source.card().address).unwrap();
    let hello = Hello { proves: true, ..raw::hello(READER, Role::Decode) };
    let request = raw::frame(raw::REQUEST, 0, 1, TOKEN.0);
    socket.write_all(&[&hello.encode()[..], &request, &[0; FRAME_LEN]].concat()).unwrap();
    let mut answer = Vec::new();
    let _ = socket.read_to_end(&mut answer);
    // What lies behind the proof was not read, so the refusal may be lost with it.
    assert!(answer.iter().skip(HELLO_LEN).all(|&byte| byte == 0), "{answer:?}");
    assert!(answer.len() <= HELLO_LEN + PROOF_LEN, "{answer:?}");
}

/// Those who have proved something are in nobody's way, and nobody is in theirs.
#[test]
fn strangers_do_not_push_out_whoever_has_proved_himself() {
    let source = source(ours(), |config| config.max_strangers = 2);
    let card = source.card();
    let half = Hello { streams: 2, ..raw::hello(READER, Role::Decode) };
    let mut first = lie(&card, &half, &half);
    first.read_exact(&mut [0; PROOF_LEN]).unwrap();
    let crowd: Vec<_> = (0..50).map(|_| TcpStream::connect(&card.address).unwrap()).collect();
    let second = Hello { stream: 1, ..half };
    let mut second = lie(&card, &second, &second);
    second.read_exact(&mut [0; PROOF_LEN]).unwrap();
    // Whole now: it is served, so it is told that the other side lives.
    first.write_all(&raw::frame(raw::PING, 0, 0, 0)).unwrap();
    first.read_exact(&mut [0; FRAME_LEN]).unwrap();
    assert_eq!(crowd.iter().take(40).filter(|socket| hangs_up(socket)).count(), 40);
}

#[test]
fn addresses_beyond_this_host_need_a_secret() {
    let everywhere = SocketAddr::from((Ipv4Addr::UNSPECIFIED, 0));
    let config = |secret: Option<Arc<Secret>>| TcpConfig {
        trust: secret.into(),
        ..TcpConfig::new(SOURCE, 1, everywhere)
    };
    let refused = TcpEndpoint::bind(config(None)).err().unwrap();
    assert_eq!(
        refused.to_string(),
        "0.0.0.0:0 is not a loopback address: listening there needs a secret"
    );
    assert!(matches!(refused, BindError::NotLoopback { .. }));
    let source = TcpEndpoint::bind(config(ours())).unwrap();

    let reader = |secret: Option<Arc<Secret>>| {
        let trust = secret.into();
        TcpEndpoint::bind(TcpConfig { trust, ..crate::common::config(READER) })
    };
    let at = |address: &str| Card { address: address.to_owned(), ..source.card() };
    // An address of the block for documentation, to which nothing is ever sent.
    let refused = reader(None).unwrap().connect(&at("203.0.113.1:1")).unwrap_err();
    assert_eq!(
        refused.to_string(),
        "203.0.113.1:1 is not a loopback address: connecting there needs a secret"
    );
    let mut reader = reader(ours()).unwrap();
    for nowhere in ["0.0.0.0:1", "[::]:1", "[::ffff:0.0.0.0]:1"] {
        let refused = reader.connect(&at(nowhere)).unwrap_err();
        assert!(matches!(refused, ConnectError::Address { .. }), "{refused}");
    }
}

/// Whatever answers a connection by ending it.
#[test]
fn a_source_that_says_nothing_is_told_apart() {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let mute = thread::spawn(move || {
        let (mut socket, _) = listener.accept().unwrap();
        socket.read_exact(&mut [0; HELLO_LEN]).unwrap();
    });
    let card = Card { provider: "tcp", agent: SOURCE, address };
    let why = "the peer hung up before it said who it is: it is not kvferry, or has many callers";
    assert_eq!(refused(ours(), &card), cannot(&card, why));
    mute.join().unwrap();
}
