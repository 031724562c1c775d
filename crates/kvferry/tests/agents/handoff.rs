//! Hand-offs between real agents over TCP, every byte inspected.

use std::sync::Arc;
use std::time::Duration;

use crate::common::proxy::Proxy;
use crate::common::{BYTES, D, P, RESUME, TOKENS, bounded, prompt, within};
use kvferry::Config;
use kvferry::connector::{Bounds, Why};
use kvferry::kv_layout::{BlockTable, PageOrder};
use tokio::task::JoinSet;

async fn hand_over(from: PageOrder, to: PageOrder) {
    let config = Config::default();
    let (mut p, d) = (P::start(&config, from).await, D::start(&config, to));
    for request in 0..3 {
        let params = p.offer(request).await;
        assert_eq!(d.fetch(request, &params).await.unwrap(), BYTES);
        assert_eq!(p.freed(request).await, Why::Satisfied);
    }
    p.at_rest().await;
    d.at_rest().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn keys_and_values_joint() {
    hand_over(PageOrder::Joint, PageOrder::Joint).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn keys_and_values_apart() {
    hand_over(PageOrder::Apart, PageOrder::Apart).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn from_joint_to_apart() {
    hand_over(PageOrder::Joint, PageOrder::Apart).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn from_apart_to_joint() {
    hand_over(PageOrder::Apart, PageOrder::Joint).await;
}

/// The runtime of one thread that small engines have.
#[tokio::test]
async fn on_one_thread() {
    hand_over(PageOrder::Joint, PageOrder::Joint).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_host_may_be_given_by_name() {
    let config = Config::default();
    let (mut p, d) =
        (P::start(&config, PageOrder::Joint).await, D::start(&config, PageOrder::Joint));
    let mut params = p.offer(1).await;
    params["remote_host"] = "localhost".into();
    assert_eq!(d.fetch(1, &params).await.unwrap(), BYTES);
    assert_eq!(p.freed(1).await, Why::Satisfied);
    p.at_rest().await;
    d.at_rest().await;
}

/// A second channel of the agent would tear the first one down, and its reads with it.
#[tokio::test(flavor = "multi_thread")]
async fn two_names_of_one_engine_share_a_channel() {
    let config = Config::default();
    let (mut p, d) =
        (P::start(&config, PageOrder::Joint).await, D::start(&config, PageOrder::Joint));
    let proxy = Proxy::start(p.prefill.address()).await;
    let first = proxy.through(p.offer(1).await);
    let mut second = proxy.through(p.offer(2).await);
    second["remote_host"] = "localhost".into();
    let (first, second) = (d.claim(1, &first).await.unwrap(), d.claim(2, &second).await.unwrap());
    assert_eq!(d.receive(1, first).await.unwrap(), BYTES);
    assert_eq!(d.receive(2, second).await.unwrap(), BYTES);
    p.all_satisfied(2).await;
    p.at_rest().await;
    d.at_rest().await;
}

/// Asked for under two names at the same time, an engine may be greeted twice: the channel that
/// is taken into use first stays, for P knows no other.
#[tokio::test(flavor = "multi_thread")]
async fn two_names_of_one_engine_at_the_same_time() {
    let config = Config::default();
    for _ in 0..20 {
        let (mut p, d) =
            (P::start(&config, PageOrder::Joint).await, D::start(&config, PageOrder::Joint));
        let first = p.offer(1).await;
        let mut second = p.offer(2).await;
        second["remote_host"] = "localhost".into();
        let (first, second) = tokio::join!(d.fetch(1, &first), d.fetch(2, &second));
        assert_eq!((first.unwrap(), second.unwrap()), (BYTES, BYTES));
        p.all_satisfied(2).await;
        p.at_rest().await;
        d.at_rest().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn requests_at_the_same_time_share_one_handshake() {
    let config = Config::default();
    let mut p = P::start(&config, PageOrder::Joint).await;
    let proxy = Proxy::start(p.prefill.address()).await;
    let d = Arc::new(D::start(&config, PageOrder::Joint));
    let mut fetches = JoinSet::new();
    for request in 0..12 {
        let (d, params) = (Arc::clone(&d), proxy.through(p.offer(request).await));
        fetches.spawn(async move { d.fetch(request, &params).await });
    }
    for moved in within("fetches", fetches.join_all()).await {
        assert_eq!(moved.unwrap(), BYTES);
    }
    assert_eq!(proxy.connections(), 1);
    p.all_satisfied(12).await;
    p.at_rest().await;
    d.at_rest().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn two_decode_engines_may_read_one_lease() {
    let config = Config::default();
    let mut p = P::start(&config, PageOrder::Joint).await;
    let (first, second) =
        (D::start(&config, PageOrder::Joint), D::start(&config, PageOrder::Apart));
    let params = p.offer(1).await;
    let early = first.claim(1, &params).await.unwrap();
    let late = second.claim(1, &params).await.unwrap();
    assert_eq!(first.receive(1, early).await.unwrap(), BYTES);
    // Satisfied, and still claimed by the other.
    let counts = p.prefill.counts().await;
    assert_eq!((counts.leases, counts.claims), (1, 1));
    assert_eq!(second.receive(1, late).await.unwrap(), BYTES);
    assert_eq!(p.freed(1).await, Why::Satisfied);
    p.at_rest().await;
    first.at_rest().await;
    second.at_rest().await;
}

/// A claim may come the moment after the handshake: it must not overtake the news of the
/// channel that it came over.
#[tokio::test(flavor = "multi_thread")]
async fn the_first_message_of_a_channel_is_heard() {
    let config = Config::default();
    let mut p = P::start(&config, PageOrder::Joint).await;
    let mut agents = JoinSet::new();
    for request in 0..24 {
        let (params, config) = (p.offer(request).await, config.clone());
        agents.spawn(async move {
            let d = D::start(&config, PageOrder::Joint);
            let moved = d.fetch(request, &params).await;
            d.at_rest().await;
            moved
        });
    }
    for moved in within("fetches", agents.join_all()).await {
        assert_eq!(moved.unwrap(), BYTES);
    }
    p.all_satisfied(24).await;
    p.at_rest().await;
}

/// A queued request holds its claim for longer than one claim lives.
#[tokio::test(flavor = "multi_thread")]
async fn a_claim_is_renewed_while_the_request_waits() {
    let claim_life = Duration::from_millis(1500);
    let renew_every = Duration::from_millis(200);
    let config = bounded(Bounds { claim_life, renew_every, ..Bounds::default() });
    let (mut p, d) =
        (P::start(&config, PageOrder::Joint).await, D::start(&config, PageOrder::Joint));
    let params = p.offer(1).await;
    let offered = d.claim(1, &params).await.unwrap();
    tokio::time::sleep(2 * claim_life).await;
    assert_eq!(d.receive(1, offered).await.unwrap(), BYTES);
    assert_eq!(p.freed(1).await, Why::Satisfied);
    p.at_rest().await;
    d.at_rest().await;
}

/// What the prefix cache has is neither read nor written: its blocks may be left out.
#[tokio::test(flavor = "multi_thread")]
async fn what_is_there_already_is_left_out() {
    let config = Config::default();
    let (mut p, d) =
        (P::start(&config, PageOrder::Joint).await, D::start(&config, PageOrder::Joint));
    let params = p.offer(1).await;
    let offered = d.claim(1, &params).await.unwrap();
    // 24 tokens are 3 blocks of 8: of the full layers these are left out, and of the windowed
    // ones, whose query at 52 sees keys from 33 on, nothing is.
    let tables = d.engine.allocate(TOKENS, RESUME).unwrap();
    let full = |table: &BlockTable| table.first_token == 0;
    let short = tables.iter().map(|table| match full(table) {
        true => BlockTable { first_token: 24, ids: table.ids[3..].into() },
        false => table.clone(),
    });
    let short: Vec<BlockTable> = short.collect();
    let hits = vec![24; tables.len()];
    let moved = within("receive", offered.after(&hits).receive(&short, RESUME)).await.unwrap();
    assert_eq!(moved, BYTES - 2 * 3 * 8 * 3 * 32);
    let cached = tables
        .iter()
        .filter(|table| full(table))
        .map(|table| BlockTable { first_token: 0, ids: table.ids[..3].into() });
    d.engine.inspect_unused(&cached.collect::<Vec<_>>()).unwrap();
    d.engine.retire(&tables);
    assert_eq!(p.freed(1).await, Why::Satisfied);
    p.at_rest().await;
    d.at_rest().await;
}

/// The samples of one prompt, each with blocks and a name of its own: P sees one claim, frees
/// when the last has ended, and none of them waits for another.
#[tokio::test(flavor = "multi_thread")]
async fn sixteen_samples_of_one_prompt_share_one_claim() {
    let config = Config::default();
    let (mut p, d) =
        (P::start(&config, PageOrder::Joint).await, D::start(&config, PageOrder::Apart));
    let params = p.offer(1).await;
    let mut samples = Vec::new();
    for sample in 0..16 {
        let name = format!("d-1-{sample}");
        let claim = within("claim", d.decode.claim(&name, &params, prompt(1)));
        samples.push(claim.await.unwrap());
    }
    for (before, offered) in samples.into_iter().enumerate() {
        let counts = p.prefill.counts().await;
        assert_eq!((counts.leases, counts.claims, counts.tokens), (1, 1, 1));
        assert_eq!(d.decode.counts().await.receives, 16 - before);
        // Its client goes away: no other sample is the worse for it.
        if before % 5 == 1 {
            let settled = offered.settled();
            drop(offered);
            within("settled", settled).await;
        } else {
            assert_eq!(d.receive(1, offered).await.unwrap(), BYTES);
        }
    }
    assert_eq!(p.freed(1).await, Why::Satisfied);
    p.at_rest().await;
    d.at_rest().await;
}
