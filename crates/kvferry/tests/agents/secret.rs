//! What a secret lets in and keeps out, and where it lets an agent go.

use std::net::{IpAddr, Ipv4Addr, SocketAddr, UdpSocket};
use std::sync::Arc;

use crate::common::stranger::{Stranger, handshake};
use crate::common::{BYTES, D, P, describe, within};
use kvferry::connector::handshake::DataCard;
use kvferry::connector::{AgentEpoch, Class, Why};
use kvferry::kv_layout::PageOrder;
use kvferry::transport::session::{Channel, HELLO_LEN, Role};
use kvferry::{Config, Prefill, Secret, StartError};
use tokio::io::AsyncReadExt;
use tokio::net::TcpListener;

/// The default settings with a secret.
pub fn proven() -> Config {
    Config { secret: secret("a secret of some length"), ..Config::default() }
}

fn secret(text: &str) -> Option<Arc<Secret>> {
    Some(Arc::new(Secret::new(text.as_bytes()).unwrap()))
}

/// A hand-off between agents of these settings.
pub async fn hands_over(p: &Config, d: &Config) {
    let mut p = P::start(p, PageOrder::Joint).await;
    let d = D::start(d, PageOrder::Joint);
    let params = p.offer(1).await;
    assert_eq!(d.fetch(1, &params).await.unwrap(), BYTES);
    assert_eq!(p.freed(1).await, Why::Satisfied);
    p.at_rest().await;
    d.at_rest().await;
}

/// What a decode agent of these settings is told, by a prefill agent that still serves others.
pub async fn refused(ours: &Config, theirs: &Config, class: Class) -> String {
    let mut p = P::start(theirs, PageOrder::Joint).await;
    let params = p.offer(1).await;
    let d = D::start(ours, PageOrder::Joint);
    let why = d.claim(1, &params).await.err().expect("a refusal");
    assert_eq!(why.class(), class, "{why}");
    d.at_rest().await;
    let right = D::start(theirs, PageOrder::Joint);
    assert_eq!(right.fetch(1, &params).await.unwrap(), BYTES);
    assert_eq!(p.freed(1).await, Why::Satisfied);
    p.at_rest().await;
    why.to_string().replace(&p.prefill.address().to_string(), "P")
}

#[tokio::test(flavor = "multi_thread")]
async fn agents_with_the_same_secret_hand_over() {
    hands_over(&proven(), &proven()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn agents_without_the_same_secret_do_not() {
    let without = Config::default();
    let other = Config { secret: secret("a secret of same length"), ..Config::default() };
    assert_eq!(
        refused(&without, &proven(), Class::Config).await,
        "cannot reach the prefill engine at P: \
         the peer has a secret and this side has none: give both the same"
    );
    assert_eq!(
        refused(&proven(), &without, Class::Config).await,
        "cannot reach the prefill engine at P: \
         this side has a secret and the peer has none: give both the same"
    );
    assert_eq!(
        refused(&other, &proven(), Class::Config).await,
        "cannot reach the prefill engine at P: \
         the peer did not take this side's secret for its own: give both the same"
    );
}

/// Nothing of an agent's handshake is shown to whoever proves nothing.
#[tokio::test(flavor = "multi_thread")]
async fn a_stranger_hears_a_hello_and_no_more() {
    let p = P::start(&proven(), PageOrder::Joint).await;
    let mut stranger = Stranger::connect(p.prefill.address()).await;
    stranger.greet(Role::Decode, Channel::Control).await;
    assert!(stranger.hear_hello().await.proves);
    stranger.say_body(&handshake(&describe(&p.engine))).await;
    assert_eq!(stranger.hung_up().await, b"");
    p.at_rest().await;
}

/// An address of this host that others could reach; asking for it sends nothing.
fn own_address() -> Option<IpAddr> {
    let socket = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0)).ok()?;
    socket.connect((Ipv4Addr::new(198, 51, 100, 1), 9)).ok()?;
    Some(socket.local_addr().ok()?.ip()).filter(|ip| !ip.is_loopback())
}

#[tokio::test(flavor = "multi_thread")]
async fn agents_with_a_secret_leave_loopback() {
    let Some(own) = own_address() else {
        println!("skipped agents_with_a_secret_leave_loopback: no address but loopback");
        return;
    };
    let at = Config { listen: SocketAddr::new(own, 0), ..proven() };
    hands_over(&at, &proven()).await;
    let only = Config { allow: Some(own.to_string().parse().unwrap()), ..proven() };
    hands_over(&at, &only).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_agent_that_listens_everywhere_says_where_it_is() {
    let everywhere = SocketAddr::from((Ipv4Addr::UNSPECIFIED, 0));
    for name in ["127.0.0.1", "localhost"] {
        let advertise = Some(name.to_owned());
        let at = Config { listen: everywhere, advertise, ..proven() };
        hands_over(&at, &proven()).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_agent_that_leads_nowhere_does_not_start() {
    let p = P::start(&proven(), PageOrder::Joint).await;
    let start = async |listen: Ipv4Addr, advertise: Option<&str>| {
        let (listen, advertise) = (SocketAddr::from((listen, 0)), advertise.map(str::to_owned));
        let config = Config { listen, advertise, ..proven() };
        Prefill::start(&config, &describe(&p.engine)).await.err().map(|why| {
            assert_eq!(StartError::class(&why), Class::Config);
            why.to_string()
        })
    };
    let unspecified = "0.0.0.0 leads no peer to this host: set `advertise` to its name or address";
    let everywhere = Ipv4Addr::UNSPECIFIED;
    assert_eq!(start(everywhere, None).await.as_deref(), Some(unspecified));
    assert_eq!(start(everywhere, Some("0.0.0.0")).await.as_deref(), Some(unspecified));
    for wrong in ["", "p:80", "[::1]", "http://p", "a b"] {
        let expected =
            format!("`advertise` of {wrong:?} is no host name or IP address: a port is none of it");
        assert_eq!(start(Ipv4Addr::LOCALHOST, Some(wrong)).await, Some(expected));
    }
    for right in ["::1", "10.0.0.1", "p-1.prefill_2.local"] {
        assert_eq!(start(Ipv4Addr::LOCALHOST, Some(right)).await, None);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_agent_with_a_list_keeps_to_it() {
    let listed = |list: &str| Config { allow: Some(list.parse().unwrap()), ..Config::default() };
    hands_over(&Config::default(), &listed("10.0.0.0/8,127.0.0.0/8")).await;
    assert_eq!(
        refused(&listed("10.0.0.0/8"), &Config::default(), Class::Config).await,
        "P is at 127.0.0.1, which is not on the list of allowed addresses"
    );
}

/// A prefill agent that sends whoever claims to a third host for the blocks.
#[tokio::test(flavor = "multi_thread")]
async fn blocks_on_a_third_host_are_not_fetched() {
    let config = Config::default();
    let p = P::start(&config, PageOrder::Joint).await;
    let mut params = p.offer(1).await;
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
    let liar = listener.local_addr().unwrap();
    params["remote_port"] = liar.port().into();
    let mut theirs = handshake(&describe(&p.engine));
    theirs.cards.push(DataCard {
        provider: "tcp".into(),
        agent: AgentEpoch(77),
        address: "203.0.113.1:80".into(),
    });
    let lie = tokio::spawn(async move {
        loop {
            let mut stranger = Stranger(listener.accept().await.unwrap().0);
            stranger.0.read_exact(&mut [0; HELLO_LEN]).await.unwrap();
            stranger.greet(Role::Prefill, Channel::Control).await;
            stranger.hear_body().await;
            stranger.say_body(&theirs).await;
        }
    });
    let elsewhere = format!(
        "the prefill engine at {liar} has its blocks on another host, 203.0.113.1:80: only a list \
         of allowed addresses can permit that"
    );
    let unproven = "203.0.113.1:80 is not a loopback address: connecting there needs a secret";
    let cases = [
        (None, &*elsewhere),
        (Some("127.0.0.1,203.0.113.0/24"), unproven),
        (Some("127.0.0.1"), unproven),
    ];
    for (allow, expected) in cases {
        let allow = allow.map(|list| list.parse().unwrap());
        let d = D::start(&Config { allow, ..Config::default() }, PageOrder::Joint);
        let why = within("a refusal", d.claim(1, &params)).await.err().expect("a refusal");
        assert_eq!(why.to_string(), expected);
        d.at_rest().await;
    }
    lie.abort();
}
