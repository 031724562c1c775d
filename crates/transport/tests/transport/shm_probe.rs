//! What a probe finds, and the names of what it does not.

use std::io::Write;
use std::sync::Arc;

use crate::common::unix::{self, Source};
use crate::common::*;
use crate::shm_other::Other;
use crate::tcp_secret::secret;
use transport::session::Secret;
use transport::shm::{ShmConfig, ShmEndpoint, Unusable, probe};
use transport::{AgentId, Card, Class, Endpoint};

fn config(secret: Option<Arc<Secret>>) -> ShmConfig {
    ShmConfig { secret, ..ShmConfig::new(READER, 1) }
}

fn source(secret: Option<Arc<Secret>>) -> ShmEndpoint {
    ShmEndpoint::bind(ShmConfig { secret, ..ShmConfig::new(SOURCE, 1) }).unwrap()
}

#[test]
fn both_ways_are_offered_with_their_rates() {
    let ours = || secret("a secret of some length");
    for trust in [None, ours()] {
        let source = source(trust.clone());
        for _ in 0..2 {
            let offer = probe(&source.card(), &config(trust.clone())).unwrap();
            // Nothing is as slow as a megabyte a second.
            assert!(offer.mapped.unwrap() > 1_000_000, "{offer:?}");
            assert!(offer.foreign.unwrap() > 1_000_000, "{offer:?}");
            assert_eq!(offer.rate(), offer.foreign.unwrap());
        }
    }
}

#[test]
fn another_process_can_be_probed_while_it_serves() {
    let (_source, card) = Other::source("mapped");
    assert!(probe(&card, &config(None)).unwrap().foreign.is_some());
    let (_source, card) = Other::source("foreign");
    assert!(probe(&card, &config(None)).unwrap().mapped.is_some());
}

#[test]
fn what_is_in_the_way_is_named() {
    let source = source(secret("a secret of some length"));
    let card = source.card();
    let with = |address: String| Card { address, ..card.clone() };
    let (boot, _) = card.address.split_once('/').unwrap();
    let gone = with(format!("{boot}/kvferry-that-nobody-has"));
    let elsewhere = with(card.address.replace(boot, "0000-1111"));
    let ours = config(secret("a secret of some length"));
    let cases = [
        (elsewhere, ours.clone(), "on another host", Class::Config),
        (gone, ours.clone(), "in this network namespace", Class::PeerLost),
        (with("nonsense".to_owned()), ours.clone(), "not an address", Class::Protocol),
        (Card { provider: "tcp", ..card.clone() }, ours.clone(), "provider tcp", Class::Bug),
        (Card { agent: AgentId(9), ..card.clone() }, ours, "another agent", Class::Config),
        (card.clone(), config(None), "has a secret and this side has none", Class::Config),
        (card.clone(), config(secret("another secret there")), "secret", Class::Config),
    ];
    for (card, config, words, class) in cases {
        let why = probe(&card, &config).unwrap_err();
        assert!(why.to_string().contains(words), "{why}");
        assert_eq!(why.class(), class, "{why}");
    }
}

/// A source that dies while it is probed is lost: no setting is wrong.
#[test]
fn a_source_that_hangs_up_is_lost() {
    for words in 0..4 {
        let source = Source::new();
        let card = source.card();
        let playing = std::thread::spawn(move || {
            match words {
                0 => drop(source.accept_silently()),
                1 => drop(source.accept()),
                _ => {
                    let mut socket = source.accept();
                    socket.write_all(&source.here()).unwrap();
                    if words == 3 {
                        assert_eq!(unix::next(&mut socket).kind, unix::PROBE);
                    }
                }
            }
            // Its memory is there for as long as it is read.
            source
        });
        let why = probe(&card, &config(None)).unwrap_err();
        assert!(matches!(why, Unusable::Lost { .. }), "after {words} words: {why}");
        assert_eq!(why.class(), Class::PeerLost);
        playing.join().unwrap();
    }
}

#[test]
fn settings_are_checked() {
    let source = source(None);
    let refused = probe(&source.card(), &ShmConfig { copiers: 0, ..config(None) });
    assert!(matches!(refused, Err(Unusable::System { .. })), "{refused:?}");
}
