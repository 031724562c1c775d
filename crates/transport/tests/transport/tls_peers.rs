//! Endpoints over TLS, and what comes of peers that have none or another.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use crate::certs::Authority;
use crate::common::raw::{self, FRAME_LEN, hangs_up};
use crate::common::*;
use crate::tcp_secret::{cannot, read_as, refused, secret, source};
use rustls::client::ResolvesClientCert;
use rustls::pki_types::ServerName;
use rustls::sign::CertifiedKey;
use rustls::{ClientConnection, ServerConnection, SignatureScheme, StreamOwned};
use transport::session::{HELLO_LEN, PROOF_LEN, Secret, Tls, Trust};
use transport::{Card, Endpoint, Outcome};

fn with(tls: &Arc<Tls>) -> Trust {
    Trust { secret: None, tls: Some(Arc::clone(tls)) }
}

fn both(tls: &Arc<Tls>, secret: Option<Arc<Secret>>) -> Trust {
    Trust { secret, ..with(tls) }
}

fn one_secret() -> Option<Arc<Secret>> {
    secret("a secret of some length")
}

#[test]
fn those_without_tls_and_those_with_it_tell_each_other() {
    let tls = tls(&Authority::new());
    let only_theirs =
        "the peer speaks TLS and this side does not: give both certificates, or neither";
    let only_ours =
        "this side speaks TLS and the peer does not: give both certificates, or neither";
    let start = Instant::now();
    for secret in [None, one_secret()] {
        let plain: Trust = secret.clone().into();
        let sealed = both(&tls, secret);
        let wrapped = source(sealed.clone(), |_| ());
        let card = wrapped.card();
        assert_eq!(refused(plain.clone(), &card), cannot(&card, only_theirs));
        let bare = source(plain.clone(), |_| ());
        let card = bare.card();
        assert_eq!(refused(sealed.clone(), &card), cannot(&card, only_ours));
        // All that costs the others nothing.
        assert_eq!(read_as(READER, sealed, &wrapped.card()), Outcome::Done);
        assert_eq!(read_as(READER, plain, &bare.card()), Outcome::Done);
    }
    assert!(start.elapsed() < Duration::from_secs(4), "{:?}", start.elapsed());
}

#[test]
fn certificates_that_the_other_side_does_not_take() {
    let (ours, theirs) = (Authority::new(), Authority::new());
    let source = source(with(&tls(&ours)), |_| ());
    let card = source.card();
    let unknown = "the peer's certificate is refused: none of these authorities has signed it";
    assert_eq!(refused(with(&tls(&theirs)), &card), cannot(&card, unknown));
    assert_eq!(read_as(READER, with(&tls(&ours)), &card), Outcome::Done);
}

/// A reader whose authorities know the source, and whose own certificate the source does not
/// know: it hears of that only after its own handshake is over.
#[test]
fn a_reader_is_told_that_its_certificate_is_not_taken() {
    let (ours, theirs) = (Authority::new(), Authority::new());
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    ours.certify(folder.path(), &["127.0.0.1"]);
    let mut all = std::fs::read_to_string(path("ca.pem")).unwrap();
    theirs.certify(folder.path(), &["127.0.0.1"]);
    all.push_str(&std::fs::read_to_string(path("ca.pem")).unwrap());
    std::fs::write(path("ca.pem"), all).unwrap();
    let reader = Tls::from_files(&path("cert.pem"), &path("key.pem"), &path("ca.pem")).unwrap();
    let source = source(with(&tls(&ours)), |_| ());
    let card = source.card();
    let why = refused(with(&Arc::new(reader)), &card);
    // Both have the same name, so that what is wrong is the signature.
    let not_taken = "the peer refuses this side's certificate: its signature is wrong";
    let unknown = "the peer refuses this side's certificate: none of its authorities has signed it";
    assert!([not_taken, unknown].map(|why| cannot(&card, why)).contains(&why), "{why}");
}

#[test]
fn a_source_is_where_its_certificate_says() {
    let authority = Authority::new();
    let source = source(with(&tls_for(&authority, &["10.0.0.1", "localhost"])), |_| ());
    let card = source.card();
    let elsewhere = "the peer's certificate is refused: it is not for 127.0.0.1, but for \
                     IpAddress(10.0.0.1), DnsName(\"localhost\")";
    assert_eq!(refused(with(&tls(&authority)), &card), cannot(&card, elsewhere));
}

#[derive(Debug)]
struct Bare;

impl ResolvesClientCert for Bare {
    fn resolve(&self, _: &[&[u8]], _: &[SignatureScheme]) -> Option<Arc<CertifiedKey>> {
        None
    }

    fn has_certs(&self) -> bool {
        false
    }
}

/// Who shows no certificate is no peer, whatever it would say next.
#[test]
fn a_reader_without_a_certificate_is_refused() {
    let authority = Authority::new();
    let (tls, source) = (tls(&authority), source(with(&tls(&authority)), |_| ()));
    let mut bare = (*tls.client()).clone();
    bare.client_auth_cert_resolver = Arc::new(Bare);
    let name = ServerName::try_from("127.0.0.1").unwrap();
    let session = ClientConnection::new(Arc::new(bare), name).unwrap();
    let socket = TcpStream::connect(source.card().address).unwrap();
    let mut stream = StreamOwned::new(session, socket);
    let hello = raw::hello(READER, transport::session::Role::Decode);
    let told = stream.write_all(&hello.encode()).and_then(|()| stream.read_exact(&mut [0; 1]));
    assert_eq!(told.unwrap_err().to_string(), "received fatal alert: CertificateRequired");
}

#[test]
fn a_secret_is_proved_inside() {
    let tls = tls(&Authority::new());
    let source = source(both(&tls, one_secret()), |_| ());
    let card = source.card();
    assert_eq!(read_as(READER, both(&tls, one_secret()), &card), Outcome::Done);
    let other = both(&tls, secret("a secret of same length"));
    let not_taken = "the peer did not take this side's secret for its own: give both the same";
    assert_eq!(refused(other, &card), cannot(&card, not_taken));
    let none = "the peer has a secret and this side has none: give both the same";
    assert_eq!(refused(with(&tls), &card), cannot(&card, none));
}

type Wrapped<Session> = StreamOwned<Session, TcpStream>;

/// Somebody between the two with a good certificate, who says to each what the other one says.
fn man_in_the_middle(card: &Card, tls: &Arc<Tls>, proofs: bool) -> (Card, JoinHandle<()>) {
    let between = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let way = Card { address: between.local_addr().unwrap().to_string(), ..card.clone() };
    let (tls, target) = (Arc::clone(tls), card.address.clone());
    let relay = move || {
        let session = ServerConnection::new(tls.server()).unwrap();
        let mut near = StreamOwned::new(session, between.accept().unwrap().0);
        let name = ServerName::try_from("127.0.0.1").unwrap();
        let session = ClientConnection::new(tls.client(), name).unwrap();
        let mut far = StreamOwned::new(session, TcpStream::connect(target).unwrap());
        relay_greeting(&mut near, &mut far, proofs);
        if !proofs {
            relay_read(&mut near, &mut far);
        }
    };
    (way, thread::spawn(relay))
}

fn relay_greeting(
    near: &mut Wrapped<ServerConnection>,
    far: &mut Wrapped<ClientConnection>,
    proofs: bool,
) {
    for len in [HELLO_LEN, PROOF_LEN].into_iter().take(1 + usize::from(proofs)) {
        let mut word = vec![0; len];
        near.read_exact(&mut word).unwrap();
        far.write_all(&word).unwrap();
        far.read_exact(&mut word).unwrap();
        near.write_all(&word).unwrap();
    }
}

/// One request for one block, and what comes of it.
fn relay_read(near: &mut Wrapped<ServerConnection>, far: &mut Wrapped<ClientConnection>) {
    let mut frame = [0; FRAME_LEN];
    near.read_exact(&mut frame).unwrap();
    let mut request = vec![0; u32::from_le_bytes(frame[4..8].try_into().unwrap()) as usize];
    near.read_exact(&mut request).unwrap();
    far.write_all(&[&frame[..], &request].concat()).unwrap();
    let mut answer = vec![0; FRAME_LEN + 4096 + FRAME_LEN];
    far.read_exact(&mut answer).unwrap();
    near.write_all(&answer).unwrap();
    // The reader looks at them before the end of the connection.
    let _ = near.read(&mut frame);
}

/// A proof is bound to its TLS session: it is of no use at the end of another.
#[test]
fn whoever_has_a_certificate_and_no_secret_cannot_stand_between() {
    let tls = tls(&Authority::new());
    let read = |trust: Trust, proofs| {
        let one_stream = |config: &mut transport::tcp::TcpConfig| config.streams = 1;
        let source = source(trust.clone(), one_stream);
        let (way, relay) = man_in_the_middle(&source.card(), &tls, proofs);
        let outcome = crate::tcp_secret::read_with(READER, trust, &way, one_stream);
        relay.join().unwrap();
        (outcome, way)
    };
    // Certificates alone do not tell two agents of one authority and address apart.
    assert_eq!(read(with(&tls), false).0, Outcome::Done);
    let (outcome, way) = read(both(&tls, one_secret()), true);
    let not_taken = "the peer did not take this side's secret for its own: give both the same";
    match outcome {
        Outcome::Failed(why) => assert_eq!(why.to_string(), cannot(&way, not_taken)),
        other => panic!("{other:?}"),
    }
}

/// A record of TLS that never ends, byte by byte: it has the time of a hello.
#[test]
fn whoever_drips_a_handshake_is_hung_up_on_in_time() {
    let quick = |config: &mut transport::tcp::TcpConfig| {
        config.hello_timeout = Duration::from_millis(800);
    };
    let source = source(with(&tls(&Authority::new())), quick);
    let mut socket = TcpStream::connect(source.card().address).unwrap();
    let (start, mut said) = (Instant::now(), 0);
    for byte in [22, 3, 1, 1, 0, 1, 0, 0, 252, 3, 3].into_iter().chain([0; 200]) {
        thread::sleep(Duration::from_millis(100));
        if socket.write_all(&[byte]).is_err() {
            break;
        }
        said += 1;
    }
    assert!(said < 40, "{said}");
    assert!(hangs_up(&socket));
    assert!(start.elapsed() < Duration::from_secs(4), "{:?}", start.elapsed());
}

/// Those who say nothing make room, and who has shown a certificate is no stranger any more.
#[test]
fn strangers_do_not_push_out_whoever_is_certified() {
    let tls = tls(&Authority::new());
    let source = source(with(&tls), |config| config.max_strangers = 2);
    let card = source.card();
    let crowd: Vec<_> = (0..50).map(|_| TcpStream::connect(&card.address).unwrap()).collect();
    assert_eq!(read_as(READER, with(&tls), &card), Outcome::Done);
    assert_eq!(crowd.iter().take(40).filter(|socket| hangs_up(socket)).count(), 40);
}
