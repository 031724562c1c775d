//! Peers that go, come back or fall silent: nobody hangs, nothing stays behind.

use std::net::Ipv4Addr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use crate::common::proxy::Proxy;
use crate::common::stranger::{self, Stranger};
use crate::common::{BYTES, D, P, bounded, describe, failure, live, until, within};
use kvferry::connector::handshake::DataCard;
use kvferry::connector::{Bounds, Class, Failure, Why};
use kvferry::kv_layout::PageOrder;
use kvferry::transport::session::{Channel, HELLO_LEN, Hello, Role};
use kvferry::{Config, FetchError};
use tokio::io::AsyncReadExt;
use tokio::net::TcpListener;

const JOINT: PageOrder = PageOrder::Joint;

/// Within this time a request is told that its peer is gone.
const TOLD: Duration = Duration::from_secs(10);

async fn no_receives(d: &D) {
    until("told of the loss", || async { d.decode.counts().await.receives == 0 }).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_prefill_engine_that_dies_between_claim_and_read() {
    let config = Config::default();
    let (p, d) = (P::start(&config, JOINT).await, D::start(&config, JOINT));
    let params = p.offer(1).await;
    let offered = d.claim(1, &params).await.unwrap();
    let died = Instant::now();
    drop(p);
    no_receives(&d).await;
    let lost = failure(d.receive(1, offered).await);
    assert!(died.elapsed() < TOLD);
    // What was seen while nobody asked is not forgotten.
    assert_eq!(lost, Failure::PeerLost);
    assert_eq!(lost.class(), Class::PeerLost);
    d.at_rest().await;
}

/// The same with no time to notice before the read.
#[tokio::test(flavor = "multi_thread")]
async fn a_prefill_engine_that_dies_as_the_read_begins() {
    let config = Config::default();
    for request in 0..10 {
        let (p, d) = (P::start(&config, JOINT).await, D::start(&config, JOINT));
        let params = p.offer(request).await;
        let offered = d.claim(request, &params).await.unwrap();
        let died = Instant::now();
        drop(p);
        let lost = failure(d.receive(request, offered).await);
        assert!(died.elapsed() < TOLD);
        assert!(matches!(lost, Failure::PeerLost | Failure::Read(_)), "{lost}");
        d.at_rest().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_offer_of_a_lost_peer_may_be_dropped() {
    let config = Config::default();
    let (p, d) = (P::start(&config, JOINT).await, D::start(&config, JOINT));
    let params = p.offer(1).await;
    let offered = d.claim(1, &params).await.unwrap();
    drop(p);
    no_receives(&d).await;
    drop(offered);
    d.at_rest().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn nobody_listens() {
    let config = Config::default();
    let (p, d) = (P::start(&config, JOINT).await, D::start(&config, JOINT));
    let params = p.offer(1).await;
    let address = p.prefill.address();
    drop(p);
    let refused = loop {
        // Until the port is closed, the end of the channel may be what is seen.
        match d.claim(1, &params).await {
            Err(FetchError::Control { address, why: _ }) => break address,
            Err(_) => {}
            Ok(_) => panic!("claimed at an engine that is gone"),
        }
    };
    assert_eq!(refused, address.to_string());
    d.at_rest().await;
}

/// Twenty times in a row a new engine takes the place of the last, at the same address.
#[tokio::test(flavor = "multi_thread")]
async fn a_prefill_engine_that_restarts_on_the_same_port() {
    let d = D::start(&Config::default(), JOINT);
    let mut config = Config::default();
    let mut stale = None;
    for life in 0.. {
        let mut p = P::start(&config, JOINT).await;
        config.listen = p.prefill.address();
        let began = Instant::now();
        let params = p.offer(life).await;
        while let Err(why) = d.fetch(life, &params).await {
            // The end of the last life may not have been noticed yet.
            assert_eq!(why.class(), Class::PeerLost, "{why}");
            assert!(began.elapsed() < TOLD, "{why}");
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        assert_eq!(p.freed(life).await, Why::Satisfied);
        p.at_rest().await;
        if life == 19 {
            // What an earlier life promised, this one does not know.
            assert_eq!(failure(d.claim(20, &stale.unwrap()).await), Failure::Unknown);
            assert_eq!(d.decode.counts().await.receives, 0);
            break;
        }
        stale = Some(params);
    }
    d.at_rest().await;
}

/// A peer that is still connected and says nothing any more.
#[tokio::test(flavor = "multi_thread")]
async fn a_prefill_engine_that_falls_silent() {
    let config = bounded(Bounds {
        renew_every: Duration::from_millis(200),
        claim_life: Duration::from_secs(2),
        ..Bounds::default()
    });
    let (mut p, d) = (P::start(&config, JOINT).await, D::start(&config, JOINT));
    let proxy = Proxy::start(p.prefill.address()).await;
    let params = p.offer(1).await;
    let offered = d.claim(1, &proxy.through(params.clone())).await.unwrap();
    proxy.fall_silent();
    no_receives(&d).await;
    assert_eq!(failure(d.receive(1, offered).await), Failure::NoAnswer);
    // The claim lapses and leaves the lease as it was before: another engine may have it.
    until("lapsed", || async { p.prefill.counts().await.claims == 0 }).await;
    let other = D::start(&config, JOINT);
    assert_eq!(other.fetch(1, &params).await.unwrap(), BYTES);
    assert_eq!(p.freed(1).await, Why::Satisfied);
    p.at_rest().await;
    d.at_rest().await;
    other.at_rest().await;
}

/// A peer whose control channel stands and carries nothing, while the claim would live on for
/// 20 s: the requests are told within the time that a dead peer may stay unnoticed.
#[tokio::test(flavor = "multi_thread")]
async fn a_silent_control_channel_is_noticed_within_5_s() {
    let config = Config::default();
    let (p, d) = (P::start(&config, JOINT).await, D::start(&config, JOINT));
    let proxy = Proxy::start(p.prefill.address()).await;
    let offered = d.claim(1, &proxy.through(p.offer(1).await)).await.unwrap();
    tokio::time::sleep(Duration::from_secs(6)).await;
    assert_eq!(d.decode.counts().await.receives, 1, "an idle channel is not a dead one");
    let silent = Instant::now();
    proxy.fall_silent();
    no_receives(&d).await;
    assert!(silent.elapsed() < Duration::from_secs(8), "{:?}", silent.elapsed());
    assert_eq!(failure(d.receive(1, offered).await), Failure::PeerLost);
    d.at_rest().await;
    until("the claim's end", || async { p.prefill.counts().await.claims == 0 }).await;
}

/// Its claim ends with it, and the lease when nobody else comes.
#[tokio::test(flavor = "multi_thread")]
async fn a_decode_engine_that_dies_after_its_claim() {
    let unclaimed = Duration::from_secs(2);
    let mut p = P::start(&bounded(Bounds { unclaimed, ..Bounds::default() }), JOINT).await;
    let ours = stranger::handshake(&describe(&p.engine));
    let mut reader = Stranger::connect(p.prefill.address()).await;
    let theirs = reader.shake_hands(&ours).await;
    let params = p.offer(1).await;
    reader.claim(&ours, &theirs, &params).await;
    until("claimed", || async { p.prefill.counts().await.claims == 1 }).await;
    let died = Instant::now();
    drop(reader);
    until("ended", || async { p.prefill.counts().await.claims == 0 }).await;
    assert_eq!(p.freed(1).await, Why::Over);
    assert!(died.elapsed() >= unclaimed);
    p.at_rest().await;
}

/// A connection that has not said who it is yet keeps no agent alive.
#[tokio::test(flavor = "multi_thread")]
async fn a_stranger_does_not_outlive_the_agent() {
    let p = P::start(&Config::default(), JOINT).await;
    let mut half = Stranger::connect(p.prefill.address()).await;
    half.say(&stranger::hello(Role::Decode, Channel::Control)[..20]).await;
    let d = D::start(&Config::default(), JOINT);
    let offered = d.claim(1, &p.offer(1).await).await.unwrap();
    let died = Instant::now();
    drop(p);
    assert_eq!(half.hung_up().await, b"");
    no_receives(&d).await;
    // The stranger would have had 5 s to say the rest.
    assert!(died.elapsed() < Duration::from_secs(4));
    drop(offered);
    d.at_rest().await;
}

/// It shakes hands as it should and hangs up, for ever. Nobody tries for ever.
#[tokio::test(flavor = "multi_thread")]
async fn a_prefill_engine_that_hangs_up_after_the_handshake() {
    let config = Config::default();
    let (p, d) = (P::start(&config, JOINT).await, D::start(&config, JOINT));
    let mut params = p.offer(1).await;
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
    params["remote_port"] = listener.local_addr().unwrap().port().into();
    let mut theirs = stranger::handshake(&describe(&p.engine));
    params["kvferry"]["engine"] = format!("{:016x}", theirs.engine.0).into();
    let (agent, address) = (theirs.agent, listener.local_addr().unwrap().to_string());
    theirs.cards = vec![DataCard { provider: "tcp".into(), agent, address }];
    let calls = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&calls);
    let answering = tokio::spawn(async move {
        loop {
            let mut caller = Stranger(listener.accept().await.unwrap().0);
            let mut hello = [0; HELLO_LEN];
            caller.0.read_exact(&mut hello).await.unwrap();
            if Hello::decode(&hello).unwrap().channel == Channel::Control {
                count.fetch_add(1, Ordering::Relaxed);
                caller.greet(Role::Prefill, Channel::Control).await;
                caller.hear_body().await;
                caller.say_body(&theirs).await;
            }
        }
    });
    let refused = d.claim(1, &params).await.err().expect("a refusal");
    assert_eq!(refused.class(), Class::PeerLost, "{refused}");
    assert!((1..=2).contains(&calls.load(Ordering::Relaxed)), "{calls:?}");
    answering.abort();
    d.at_rest().await;
}

/// An engine that goes to sleep: what is under way ends, and begins anew when it wakes.
#[tokio::test(flavor = "multi_thread")]
async fn memory_that_is_taken_away_and_given_back() {
    let config = Config::default();
    let (mut p, d) = (P::start(&config, JOINT).await, D::start(&config, JOINT));
    let offered = d.claim(1, &p.offer(1).await).await.unwrap();
    within("withdrawal", p.prefill.withdraw()).await;
    assert_eq!(live(p.prefill.counts().await), [0; 5]);
    assert_eq!(p.freed(1).await, Why::Over);
    failure(d.receive(1, offered).await);
    p.prefill.restore().await;
    let offered = d.claim(2, &p.offer(2).await).await.unwrap();
    within("withdrawal", d.decode.withdraw()).await;
    assert_eq!(failure(d.receive(2, offered).await), Failure::Withdrawn);
    let params = p.offer(3).await;
    assert_eq!(failure(d.claim(3, &params).await), Failure::Withdrawn);
    d.decode.restore().await;
    assert_eq!(d.fetch(4, &p.offer(4).await).await.unwrap(), BYTES);
    within("withdrawal", async { tokio::join!(p.prefill.withdraw(), d.decode.withdraw()) }).await;
    d.at_rest().await;
}
