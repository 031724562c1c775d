//! Agents that show each other certificates, and what comes of those that do not.

use std::net::{Ipv4Addr, SocketAddr};
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use crate::certs::{Authority, HERE};
use crate::common::{BYTES, D, P, describe};
use crate::secret::{hands_over, proven, refused};
use kvferry::connector::{Class, Why};
use kvferry::kv_layout::PageOrder;
use kvferry::{Config, Prefill, StartError, Tls};
use rcgen::CertificateParams;
use rcgen::ExtendedKeyUsagePurpose::{ClientAuth, ServerAuth};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

fn read(write: impl FnOnce(&Path)) -> Option<Arc<Tls>> {
    let folder = tempfile::tempdir().unwrap();
    write(folder.path());
    let [chain, key, ca] = ["cert.pem", "key.pem", "ca.pem"].map(|name| folder.path().join(name));
    Some(Arc::new(Tls::from_files(&chain, &key, &ca).unwrap()))
}

/// These settings with what an authority of their own certifies, as most of them write it.
pub fn certified(config: Config) -> Config {
    let both_ends = vec![ServerAuth, ClientAuth];
    let usual = |params: &mut CertificateParams| params.extended_key_usages = both_ends;
    Config { tls: read(|at| Authority::new().issue(at, &HERE, usual)), ..config }
}

#[tokio::test(flavor = "multi_thread")]
async fn certified_agents_hand_over() {
    for config in [certified(Config::default()), certified(proven())] {
        hands_over(&config, &config).await;
    }
}

/// By the name that is advertised for control, and by the address for data.
#[tokio::test(flavor = "multi_thread")]
async fn an_agent_is_reached_by_what_it_is_certified_for() {
    let name = Some("localhost".to_owned());
    let config = Config { advertise: name, ..certified(proven()) };
    hands_over(&config, &config).await;
    let everywhere = SocketAddr::from((Ipv4Addr::UNSPECIFIED, 0));
    hands_over(&Config { listen: everywhere, ..config.clone() }, &config).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn agents_of_two_kinds_do_not() {
    let start = Instant::now();
    for plain in [Config::default(), proven()] {
        let sealed = certified(plain.clone());
        assert_eq!(
            refused(&plain, &sealed, Class::Config).await,
            "cannot reach the prefill engine at P: \
             the peer speaks TLS and this side does not: give both certificates, or neither"
        );
        assert_eq!(
            refused(&sealed, &plain, Class::Config).await,
            "cannot reach the prefill engine at P: \
             this side speaks TLS and the peer does not: give both certificates, or neither"
        );
    }
    assert_eq!(
        refused(&certified(proven()), &certified(proven()), Class::Config).await,
        "cannot reach the prefill engine at P: the peer's certificate is refused: none of these \
         authorities has signed it"
    );
    assert!(start.elapsed() < Duration::from_secs(15), "{:?}", start.elapsed());
}

/// Certificates are no secret: without one, nobody leaves loopback.
#[tokio::test(flavor = "multi_thread")]
async fn certificates_alone_do_not_lead_beyond_loopback() {
    let config = certified(Config::default());
    let p = P::start(&config, PageOrder::Joint).await;
    let listen = SocketAddr::from((Ipv4Addr::UNSPECIFIED, 0));
    let beyond = Config { listen, ..config };
    let why = Prefill::start(&beyond, &describe(&p.engine)).await.err();
    assert!(matches!(why, Some(StartError::NotLoopback { .. })), "{why:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_prefill_agent_that_nobody_would_take_does_not_start() {
    let p = P::start(&Config::default(), PageOrder::Joint).await;
    let tls = |names: &[&str]| read(|at| Authority::new().certify(at, names));
    let start = async |names: &[&str], advertise: Option<&str>| {
        let advertise = advertise.map(str::to_owned);
        let config = Config { advertise, tls: tls(names), ..Config::default() };
        let why = Prefill::start(&config, &describe(&p.engine)).await.err()?;
        assert_eq!(why.class(), Class::Config);
        Some(why.to_string().split_once(" is not for ").unwrap().1.to_owned())
    };
    let not_for = |host: &str, names: &str| {
        Some(format!("{host}, where others reach this side: it is not for {host}, but for {names}"))
    };
    let address = "IpAddress(127.0.0.1)";
    assert_eq!(start(&["127.0.0.1"], None).await, None);
    assert_eq!(start(&["127.0.0.1"], Some("p.example")).await, not_for("p.example", address));
    let name = "DnsName(\"p.example\")";
    assert_eq!(start(&["p.example"], Some("p.example")).await, not_for("127.0.0.1", name));
    assert_eq!(start(&["p.example", "127.0.0.1"], Some("p.example")).await, None);
}

/// A way to a control port on which somebody keeps what both say.
async fn recorder(target: SocketAddr) -> (SocketAddr, Arc<Mutex<Vec<u8>>>) {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
    let (address, seen) = (listener.local_addr().unwrap(), Arc::default());
    let kept = Arc::clone(&seen);
    tokio::spawn(async move {
        let (near, _) = listener.accept().await.unwrap();
        let far = TcpStream::connect(target).await.unwrap();
        let ((near_in, near_out), (far_in, far_out)) = (near.into_split(), far.into_split());
        for (mut from, mut to) in [(near_in, far_out), (far_in, near_out)] {
            let kept: Arc<Mutex<Vec<u8>>> = Arc::clone(&kept);
            tokio::spawn(async move {
                let mut bytes = [0; 4096];
                while let Ok(len @ 1..) = from.read(&mut bytes).await {
                    kept.lock().unwrap().extend_from_slice(&bytes[..len]);
                    let _ = to.write_all(&bytes[..len]).await;
                }
            });
        }
    });
    (address, seen)
}

/// The names of the layers, which the handshake tells: seen without TLS, and not with it.
#[tokio::test(flavor = "multi_thread")]
async fn nothing_of_the_control_channel_is_seen() {
    for (config, shown) in [(proven(), true), (certified(proven()), false)] {
        let mut p = P::start(&config, PageOrder::Joint).await;
        let d = D::start(&config, PageOrder::Joint);
        let mut params = p.offer(1).await;
        let (way, seen) = recorder(p.prefill.address()).await;
        params["remote_port"] = way.port().into();
        assert_eq!(d.fetch(1, &params).await.unwrap(), BYTES);
        assert_eq!(p.freed(1).await, Why::Satisfied);
        let seen = seen.lock().unwrap().clone();
        for name in [&b"layers.1"[..], b"KVFERRY", b"p-1"] {
            let found = seen.windows(name.len()).any(|bytes| bytes == name);
            assert_eq!(found, shown, "{}", String::from_utf8_lossy(name));
        }
    }
}
