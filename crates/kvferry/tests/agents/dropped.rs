//! Futures that their owner drops half-way: nothing stays claimed, kept or written to.

use std::time::Duration;

use crate::common::{BYTES, D, P, RESUME, TOKENS, begin, failure, prompt, until, within};
use kvferry::connector::{Failure, Why};
use kvferry::kv_layout::PageOrder;
use kvferry::{Config, FetchError};

/// Two agents that have shaken hands already.
async fn met() -> (P, D) {
    let config = Config::default();
    let (mut p, d) =
        (P::start(&config, PageOrder::Joint).await, D::start(&config, PageOrder::Joint));
    let params = p.offer(0).await;
    assert_eq!(d.fetch(0, &params).await.unwrap(), BYTES);
    assert_eq!(p.freed(0).await, Why::Satisfied);
    (p, d)
}

/// The offer has come and lies in the channel, but nobody has taken it.
#[tokio::test]
async fn a_claim_dropped_while_its_offer_waits() {
    let (mut p, d) = met().await;
    let params = p.offer(1).await;
    let mut claim = Box::pin(d.decode.claim("d-1", &params, prompt(1)));
    begin(&mut claim).await;
    until("claimed", || async { p.prefill.counts().await.claims == 1 }).await;
    tokio::time::sleep(Duration::from_millis(50)).await;
    drop(claim);
    assert_eq!(p.freed(1).await, Why::Released);
    until("ended", || async { d.decode.counts().await.receives == 0 }).await;
    // The same claim is over, not under way; the request may be claimed at another lease.
    assert_eq!(failure(d.claim(1, &params).await), Failure::Unknown);
    let params = p.offer(1).await;
    assert_eq!(d.fetch(1, &params).await.unwrap(), BYTES);
    assert_eq!(p.freed(1).await, Why::Satisfied);
    p.at_rest().await;
    d.at_rest().await;
}

/// The same before anything was answered.
#[tokio::test]
async fn a_claim_dropped_at_once() {
    let (mut p, d) = met().await;
    let params = p.offer(1).await;
    let mut claim = Box::pin(d.decode.claim("d-1", &params, prompt(1)));
    begin(&mut claim).await;
    drop(claim);
    assert_eq!(p.freed(1).await, Why::Released);
    p.at_rest().await;
    d.at_rest().await;
}

/// A second claim of a name, which is refused, does not end the first when it is dropped.
#[tokio::test]
async fn a_refused_claim_dropped_leaves_the_first() {
    let (mut p, d) = met().await;
    let params = p.offer(1).await;
    let offered = d.claim(1, &params).await.unwrap();
    let mut again = Box::pin(d.decode.claim("d-1", &params, prompt(1)));
    begin(&mut again).await;
    drop(again);
    assert!(matches!(d.claim(1, &params).await, Err(FetchError::UnderWay)));
    assert_eq!(d.receive(1, offered).await.unwrap(), BYTES);
    assert_eq!(p.freed(1).await, Why::Satisfied);
    p.at_rest().await;
    d.at_rest().await;
}

/// On one thread: the driver finds the wish to stop right behind the wish to read.
#[tokio::test]
async fn a_receive_dropped_while_reading() {
    let (mut p, d) = met().await;
    for request in 1..=10 {
        let params = p.offer(request).await;
        let offered = d.claim(request, &params).await.unwrap();
        let tables = d.engine.allocate(TOKENS, RESUME).unwrap();
        let settled = offered.settled();
        let mut receive = Box::pin(offered.receive(&tables, RESUME));
        begin(&mut receive).await;
        drop(receive);
        within("settled", settled).await;
        // From here on the blocks are the engine's again.
        d.engine.retire(&tables);
        d.engine.inspect_pool().unwrap();
        assert_eq!(d.decode.counts().await.receives, 0);
        assert_eq!(p.freed(request).await, Why::Released);
    }
    p.at_rest().await;
    d.at_rest().await;
}

/// The same wherever the reads and the commit are by then.
#[tokio::test(flavor = "multi_thread")]
async fn a_receive_dropped_at_any_time() {
    let (mut p, d) = met().await;
    for request in 1..=30 {
        let params = p.offer(request).await;
        let offered = d.claim(request, &params).await.unwrap();
        let tables = d.engine.allocate(TOKENS, RESUME).unwrap();
        let settled = offered.settled();
        let late = Duration::from_micros(request * 40);
        let _ = tokio::time::timeout(late, offered.receive(&tables, RESUME)).await;
        within("settled", settled).await;
        d.engine.retire(&tables);
        d.engine.inspect_pool().unwrap();
        assert_ne!(p.freed(request).await, Why::Over);
    }
    p.at_rest().await;
    d.at_rest().await;
}
