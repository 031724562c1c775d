//! What must not be handed over is refused by name, and nothing is written.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::common::{
    BLOCK, BYTES, D, P, RESUME, TOKENS, bounded, describe, failure, model, prompt, until, within,
};
use kvferry::connector::{Bounds, Class, Failure, Why};
use kvferry::kv_layout::{DType, Kind, Model, PageOrder};
use kvferry::{Config, Decode, Engine, FetchError, OfferError, Prefill, PromptDigest, StartError};

async fn pair() -> (P, D) {
    let config = Config::default();
    (P::start(&config, PageOrder::Joint).await, D::start(&config, PageOrder::Joint))
}

fn message<T>(ended: Result<T, FetchError>) -> String {
    ended.err().expect("a refusal").to_string()
}

/// A router gave request 1 the parameters of request 2.
#[tokio::test(flavor = "multi_thread")]
async fn requests_that_a_router_mixed_up() {
    let (mut p, d) = pair().await;
    let (first, second) = (p.offer(1).await, p.offer(2).await);
    let mixed_up = failure(d.claim(1, &second).await);
    assert_eq!(mixed_up, Failure::Digest);
    assert_eq!(mixed_up.class(), Class::Protocol);
    d.engine.inspect_pool().unwrap();
    // The refused lease was released; the other is as good as ever.
    assert_eq!(p.freed(2).await, Why::Released);
    assert_eq!(d.fetch(1, &first).await.unwrap(), BYTES);
    assert_eq!(p.freed(1).await, Why::Satisfied);
    p.at_rest().await;
    d.at_rest().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn another_number_of_tokens() {
    let (mut p, d) = pair().await;
    let params = p.offer(1).await;
    let longer = PromptDigest { valid: 54, ..prompt(1) };
    let ended = within("claim", d.decode.claim("d-1", &params, longer)).await;
    assert_eq!(failure(ended), Failure::Valid { ours: 54, theirs: 53 });
    assert_eq!(p.freed(1).await, Why::Released);
    p.at_rest().await;
    d.at_rest().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lease_that_never_was() {
    let pending = Duration::from_millis(300);
    let config = bounded(Bounds { pending, ..Bounds::default() });
    let mut p = P::start(&config, PageOrder::Joint).await;
    let d = D::start(&config, PageOrder::Joint);
    let right = p.offer(1).await;
    let mut wrong = right.clone();
    wrong["kvferry"]["nonce"] = "0123456789abcdef".into();
    let asked = Instant::now();
    assert_eq!(failure(d.claim(2, &wrong).await), Failure::Unknown);
    // Held back in case that the lease is only late, and not for longer than D waits.
    assert!((pending..Bounds::default().answer).contains(&asked.elapsed()));
    assert_eq!(p.prefill.counts().await.refused, 1);
    assert_eq!(d.fetch(1, &right).await.unwrap(), BYTES);
    assert_eq!(p.freed(1).await, Why::Satisfied);
    // It has ended: now it is unknown as well.
    assert_eq!(failure(d.claim(3, &right).await), Failure::Unknown);
    p.at_rest().await;
    d.at_rest().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_offer_that_nobody_takes_is_released() {
    let (mut p, d) = pair().await;
    let params = p.offer(1).await;
    drop(d.claim(1, &params).await.unwrap());
    assert_eq!(p.freed(1).await, Why::Released);
    p.at_rest().await;
    d.at_rest().await;
}

/// Engines drop what they hold where they like.
#[tokio::test(flavor = "multi_thread")]
async fn an_offer_dropped_outside_of_the_runtime_is_released() {
    let (mut p, d) = pair().await;
    let params = p.offer(1).await;
    let offered = d.claim(1, &params).await.unwrap();
    std::thread::spawn(move || drop(offered)).join().unwrap();
    assert_eq!(p.freed(1).await, Why::Released);
    p.at_rest().await;
    d.at_rest().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_claim_that_nobody_waits_for_ends() {
    let config = Config::default();
    let p = P::start(&config, PageOrder::Joint).await;
    let d = Arc::new(D::start(&config, PageOrder::Joint));
    let mut params = p.offer(1).await;
    params["kvferry"]["nonce"] = "0123456789abcdef".into();
    let claiming = {
        let (d, params) = (Arc::clone(&d), params.clone());
        tokio::spawn(async move { d.claim(1, &params).await.map(drop) })
    };
    until("pending", || async { p.prefill.counts().await.early == 1 }).await;
    claiming.abort();
    // With P's answer, which comes after a while and reaches nobody.
    until("ended", || async { d.decode.counts().await.receives == 0 }).await;
    d.at_rest().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_same_request_twice() {
    let (mut p, d) = pair().await;
    let params = p.offer(1).await;
    let offered = d.claim(1, &params).await.unwrap();
    let again = d.claim(1, &params).await.err().expect("a refusal");
    assert!(matches!(again, FetchError::UnderWay), "{again}");
    assert_eq!(d.receive(1, offered).await.unwrap(), BYTES);
    assert_eq!(p.freed(1).await, Why::Satisfied);
    p.at_rest().await;
    d.at_rest().await;
}

/// Blocks that do not hold what the plan needs.
#[tokio::test(flavor = "multi_thread")]
async fn tables_that_do_not_fit() {
    let (mut p, d) = pair().await;
    let params = p.offer(1).await;
    let offered = d.claim(1, &params).await.unwrap();
    let refused = within("receive", offered.receive(&[], 52)).await;
    assert_eq!(message(refused), "tables: the target has 4 groups but 0 block tables");
    assert_eq!(p.freed(1).await, Why::Released);
    p.at_rest().await;
    d.at_rest().await;
}

/// A decode engine that is not what P is; P still serves the right one afterwards.
async fn mismatch(of: Model, change: fn(&mut Engine), expected: &str) {
    let config = Config::default();
    let mut p = P::start(&config, PageOrder::Joint).await;
    let other = D::with(&config, PageOrder::Joint, &of, change);
    let right = D::start(&config, PageOrder::Joint);
    let params = p.offer(1).await;
    let refused = other.claim(1, &params).await.err().expect("a refusal");
    assert!(matches!(refused, FetchError::Mismatch(_)), "{refused}");
    assert_eq!(refused.class(), Class::Config);
    assert_eq!(refused.to_string(), expected);
    assert_eq!(right.fetch(1, &params).await.unwrap(), BYTES);
    assert_eq!(p.freed(1).await, Why::Satisfied);
    p.at_rest().await;
    right.at_rest().await;
    other.at_rest().await;
}

fn changed(change: impl FnOnce(&mut Model)) -> Model {
    let mut model = model();
    change(&mut model);
    model
}

#[tokio::test(flavor = "multi_thread")]
async fn engines_that_do_not_match() {
    mismatch(
        model(),
        |engine| engine.model = "other".into(),
        "model differs: other here, tests at the peer",
    )
    .await;
    mismatch(
        model(),
        |engine| engine.revision = "v2".into(),
        "revision differs: v2 here, main at the peer",
    )
    .await;
    mismatch(
        changed(|model| model.dtype = DType::F16),
        |_| (),
        "KV cache dtype differs: f16 here, bf16 at the peer",
    )
    .await;
    mismatch(
        changed(|model| {
            for layer in &mut model.layers {
                if layer.kind != Kind::Full {
                    layer.kind = Kind::SlidingWindow { window: 24 };
                }
            }
        }),
        |_| (),
        "kind of layers.0 differs: sliding window of 24 here, sliding window of 20 at the peer",
    )
    .await;
    mismatch(
        changed(|model| model.layers.iter_mut().for_each(|layer| layer.parts[0].bytes = 24)),
        |_| (),
        "bytes of keys of layers.0 differs: 24 here, 16 at the peer",
    )
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn addresses_that_leave_this_host() {
    let (mut p, d) = pair().await;
    let everywhere =
        Config { listen: SocketAddr::from((Ipv4Addr::UNSPECIFIED, 0)), ..Config::default() };
    let engine = describe(&d.engine);
    let refused = Prefill::start(&everywhere, &engine).await.err().expect("a refusal");
    assert!(matches!(refused, StartError::NotLoopback { .. }), "{refused}");
    let refused = Decode::start(&everywhere, &engine).err().expect("a refusal");
    assert_eq!(
        refused.to_string(),
        "0.0.0.0 is not a loopback address: listening there needs a secret"
    );
    // An address of the block for documentation, to which nothing may ever be sent.
    let mut params = p.offer(1).await;
    let port = params["remote_port"].as_u64().unwrap();
    params["remote_host"] = "192.0.2.1".into();
    assert_eq!(
        message(d.claim(1, &params).await),
        format!("192.0.2.1:{port} is not a loopback address: connecting there needs a secret")
    );
    params["remote_host"] = "127.0.0.1".into();
    assert_eq!(d.fetch(1, &params).await.unwrap(), BYTES);
    assert_eq!(p.freed(1).await, Why::Satisfied);
    p.at_rest().await;
    d.at_rest().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_address_in_use() {
    let (p, d) = pair().await;
    let config = Config { listen: p.prefill.address(), ..Config::default() };
    let refused = Prefill::start(&config, &describe(&d.engine)).await.err();
    let refused = refused.expect("a refusal").to_string();
    let expected = format!("cannot listen on {}: ", p.prefill.address());
    assert!(refused.starts_with(&expected), "{refused}");
    p.at_rest().await;
}

/// Fewer or more tables than groups would leave blocks unreadable, or be read as another's.
#[tokio::test(flavor = "multi_thread")]
async fn an_offer_of_the_wrong_number_of_tables() {
    let (p, d) = pair().await;
    let tables = p.engine.allocate(TOKENS, RESUME).unwrap();
    let refused = p.prefill.offer("p-1", prompt(1), &tables[1..]).await.unwrap_err();
    assert!(matches!(refused, OfferError::Tables { tables: 3, groups: 4 }), "{refused}");
    p.engine.retire(&tables);
    p.at_rest().await;
    d.at_rest().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn read_timeouts_that_cannot_work() {
    let (_, d) = pair().await;
    let engine = describe(&d.engine);
    for read_timeout in [Duration::ZERO, Duration::from_secs(86_401), Duration::MAX] {
        let config = Config { read_timeout, ..Config::default() };
        let refused = Decode::start(&config, &engine).err().expect("a refusal");
        assert!(matches!(refused, StartError::ReadTimeout { .. }), "{refused}");
    }
}

/// The same request twice: its leases are told apart.
#[tokio::test(flavor = "multi_thread")]
async fn a_freed_request_names_its_lease() {
    let engine = sim::Engine::new(&model(), BLOCK, PageOrder::Joint, 1 << 20, 1).unwrap();
    let config = bounded(Bounds { unclaimed: Duration::from_millis(50), ..Bounds::default() });
    let (prefill, mut freed) = Prefill::start(&config, &describe(&engine)).await.unwrap();
    let tables = engine.allocate(TOKENS, RESUME).unwrap();
    let mut offered = Vec::new();
    let mut named = Vec::new();
    for _ in 0..2 {
        offered.push(prefill.offer("p-1", prompt(1), &tables).await.unwrap().lease.nonce);
    }
    for _ in 0..2 {
        named.push(within("freed", freed.next()).await.unwrap().nonce);
    }
    offered.sort();
    named.sort();
    assert_ne!(offered[0], offered[1]);
    assert_eq!(offered, named);
}
