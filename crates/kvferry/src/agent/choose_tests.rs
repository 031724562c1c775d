use std::io;
use std::net::Ipv4Addr;
use std::sync::Mutex;

use connector::handshake::DataCard;
use connector::{AgentEpoch, EngineEpoch, Rank};
use kv_layout::{CacheLayout, DType};
use transport::tcp::{TcpConfig, TcpEndpoint};

use super::*;

const ME: Peer = Peer { engine: EngineEpoch(1), agent: AgentEpoch(2) };

/// A prefill engine that is reached there by TCP, and says that it shares memory there.
fn handshake(at: SocketAddr, shared: &str) -> Handshake {
    let agent = AgentEpoch(7);
    let card = |provider: &str, address| DataCard { provider: provider.to_owned(), agent, address };
    Handshake {
        engine: EngineEpoch(3),
        agent,
        rank: Rank(0),
        ranks: 1,
        model: "m".into(),
        revision: String::new(),
        dtype: DType::Bf16,
        layout: CacheLayout { regions: Vec::new(), groups: Vec::new(), layers: Vec::new() },
        cards: vec![card(SHM, shared.to_owned()), card(TCP, at.to_string())],
    }
}

fn at() -> SocketAddr {
    (Ipv4Addr::LOCALHOST, 7000).into()
}

async fn choose(wanted: Provider, shared: &str) -> Result<Choice, FetchError> {
    let config = Config { provider: wanted, ..Config::default() };
    let chooser = Chooser::new(&config, ME, Arc::new(Reach::new(&config)));
    chooser.choose(&handshake(at(), shared), at()).await
}

/// An address of shared memory on this host where nobody is.
fn gone() -> String {
    let boot = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap();
    format!("{}/kvferry-that-nobody-has", boot.trim())
}

/// Lines that were logged.
#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<u8>>>);

impl io::Write for Log {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// What is said when a peer is connected to in the way that was chosen.
fn said(choice: &Choice) -> String {
    let log = Log::default();
    let writer = log.clone();
    let subscriber =
        tracing_subscriber::fmt().with_writer(move || writer.clone()).with_ansi(false).finish();
    let listen = (Ipv4Addr::LOCALHOST, 0).into();
    let mut endpoint = TcpEndpoint::bind(TcpConfig::new(AgentId(2), 1, listen)).unwrap();
    tracing::subscriber::with_default(subscriber, || choice.connect(&mut endpoint).unwrap());
    let bytes = log.0.lock().unwrap().clone();
    String::from_utf8(bytes).unwrap()
}

/// Report R98: everything worked, a hundred times slower, and nothing said so. One line says which
/// way, to whom, and what is wrong with the faster one; `falls_short` says it to programs.
#[tokio::test]
async fn r98_a_way_that_falls_short_is_warned_of_in_one_line() {
    let choice = choose(Provider::Auto, &gone()).await.unwrap();
    let Path { agent, at, provider, rate, why, falls_short } = choice.path();
    assert_eq!((agent, at, provider, rate, falls_short), (7, self::at(), "tcp", None, true));
    let named = "shm: no socket kvferry-that-nobody-has in this network namespace";
    assert!(why.starts_with(named), "{why}");
    let said = said(&choice);
    assert_eq!(said.lines().count(), 1, "{said}");
    assert!(said.contains(" WARN "), "{said}");
    for part in ["a faster way", "agent=7", "at=127.0.0.1:7000", "provider=\"tcp\"", named] {
        assert!(said.contains(part), "{part}: {said}");
    }
}

/// Nothing is wrong with two hosts that share no memory: one line, and no warning.
#[tokio::test]
async fn r98_another_host_is_no_fault() {
    let choice = choose(Provider::Auto, "0000-1111/kvferry-elsewhere").await.unwrap();
    let path = choice.path();
    assert_eq!((path.provider, path.falls_short), ("tcp", false));
    assert!(path.why.starts_with("shm: the source is on another host"), "{}", path.why);
    let said = said(&choice);
    assert_eq!(said.lines().count(), 1, "{said}");
    assert!(said.contains(" INFO ") && said.contains("provider=\"tcp\""), "{said}");
}

/// Who insists on the faster way does not get another one, and is told what is missing.
#[tokio::test]
async fn r98_what_is_required_is_not_replaced() {
    let refused = choose(Provider::Shm, &gone()).await.unwrap_err();
    // It may have ended this very moment.
    assert_eq!(refused.class(), crate::Class::PeerLost);
    let told = "the prefill engine cannot be read by shm: no socket";
    assert!(refused.to_string().starts_with(told), "{refused}");
}
