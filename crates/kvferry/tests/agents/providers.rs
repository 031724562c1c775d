//! Which provider reads the blocks of a peer.

use crate::common::{BYTES, D, P};
use crate::tls::certified;
use kvferry::kv_layout::PageOrder;
use kvferry::{Class, Config, FetchError, Path, Provider};

fn of(provider: Provider) -> Config {
    Config { provider, ..Config::default() }
}

async fn start(p: Provider, d: Provider) -> (P, D) {
    (P::start(&of(p), PageOrder::Joint).await, D::start(&of(d), PageOrder::Joint))
}

/// Hands a request over. Gives how it was read.
async fn read_by(p: &mut P, d: &D) -> Path {
    let params = p.offer(1).await;
    assert_eq!(d.fetch(1, &params).await.unwrap(), BYTES);
    p.all_satisfied(1).await;
    let [path] = &d.decode.paths()[..] else { panic!("one peer, one path") };
    path.clone()
}

/// Two processes of one user on one host read each other's memory, and say how fast.
#[tokio::test(flavor = "multi_thread")]
async fn the_fastest_is_chosen() {
    let (mut p, d) = start(Provider::Auto, Provider::Auto).await;
    let path = read_by(&mut p, &d).await;
    assert_eq!(path.provider, "shm");
    assert!(path.rate.is_some_and(|rate| rate > 0));
}

#[tokio::test(flavor = "multi_thread")]
async fn the_slower_one_says_why() {
    for (p, d, why) in [
        (Provider::Auto, Provider::Tcp, "it is the one that is wanted"),
        (Provider::Tcp, Provider::Auto, "the prefill engine has no other"),
    ] {
        let (mut p, d) = start(p, d).await;
        let path = read_by(&mut p, &d).await;
        assert_eq!((path.provider, &path.why[..]), ("tcp", why));
    }
}

/// Who asks for encryption gets it, on one host as well.
#[tokio::test(flavor = "multi_thread")]
async fn tls_is_over_tcp() {
    let config = certified(Config::default());
    let mut p = P::start(&config, PageOrder::Joint).await;
    let d = D::start(&config, PageOrder::Joint);
    let path = read_by(&mut p, &d).await;
    assert_eq!((path.provider, &path.why[..]), ("tcp", "no other encrypts"));
}

/// What is insisted on is not replaced by something slower.
#[tokio::test(flavor = "multi_thread")]
async fn the_wanted_one_or_none() {
    let (p, d) = start(Provider::Tcp, Provider::Shm).await;
    let params = p.offer(1).await;
    let why = d.fetch(1, &params).await.unwrap_err();
    assert_eq!(why.class(), Class::Config);
    let told = "the prefill engine cannot be read by shm: the prefill engine has no other";
    assert_eq!(why.to_string(), told);
    let (p, d) = start(Provider::Shm, Provider::Tcp).await;
    let params = p.offer(1).await;
    assert!(matches!(d.fetch(1, &params).await, Err(FetchError::NoProvider)));
}

#[test]
fn names() {
    for provider in [Provider::Auto, Provider::Tcp, Provider::Shm] {
        assert_eq!(provider.to_string().parse(), Ok(provider));
    }
    let why = "rdma".parse::<Provider>().unwrap_err().to_string();
    assert_eq!(why, "\"rdma\" is no provider: choose `auto`, `tcp` or `shm`");
}
