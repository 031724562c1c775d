//! Whatever is said on its ports, the server stays up and serves the next hand-off.

use std::net::SocketAddr;

use crate::common::stranger::{Stranger, handshake, hello, noise};
use crate::common::{BYTES, D, P, describe, until, within};
use kvferry::Config;
use kvferry::connector::handshake::Handshake;
use kvferry::connector::{AgentEpoch, EngineEpoch, Why};
use kvferry::kv_layout::PageOrder;
use kvferry::transport::session::{Channel, HELLO_LEN, Role};
use tokio::io::AsyncWriteExt;
use tokio::task::JoinSet;

/// A prefill engine, and a right decode engine to ask it after every wrong one.
pub struct Server {
    pub config: Config,
    pub p: P,
    pub d: D,
    served: u64,
}

impl Server {
    async fn start() -> Self {
        Self::with(&Config::default()).await
    }

    pub async fn with(config: &Config) -> Self {
        let p = P::start(config, PageOrder::Joint).await;
        let d = D::start(config, PageOrder::Joint);
        Self { config: config.clone(), p, d, served: 0 }
    }

    pub fn control(&self) -> SocketAddr {
        self.p.prefill.address()
    }

    /// Where the data endpoint listens, as the handshake tells it.
    pub async fn data(&self) -> SocketAddr {
        let secret = self.config.secret.clone();
        let ours = handshake(&describe(&self.p.engine));
        let theirs = Stranger::connect(self.control()).await.known(&ours, secret).await;
        let tcp = theirs.cards.iter().find(|card| card.provider == "tcp");
        tcp.unwrap().address.parse().unwrap()
    }

    /// The number of a request that is none yet.
    pub fn next(&mut self) -> u64 {
        self.served += 1;
        self.served
    }

    pub async fn serves(&mut self) {
        let request = self.next();
        let params = self.p.offer(request).await;
        assert_eq!(self.d.fetch(request, &params).await.unwrap(), BYTES);
        assert_eq!(self.p.freed(request).await, Why::Satisfied);
    }

    /// A new decode engine is served as well: the ports still answer.
    pub async fn serves_a_new_peer(&mut self) {
        self.d.at_rest().await;
        self.d = D::start(&self.config, PageOrder::Joint);
        self.serves().await;
    }

    pub async fn at_rest(self) {
        self.p.at_rest().await;
        self.d.at_rest().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn noise_on_the_control_port() {
    let mut server = Server::start().await;
    for seed in 0..20 {
        let mut stranger = Stranger::connect(server.control()).await;
        stranger.say(&noise(seed, 100_000)).await;
        // Nothing is told to whoever is not kvferry.
        assert_eq!(stranger.hung_up().await, b"");
    }
    server.serves().await;
    server.at_rest().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn noise_on_the_data_port() {
    let mut server = Server::start().await;
    let data = server.data().await;
    for seed in 0..20 {
        let mut stranger = Stranger::connect(data).await;
        stranger.say(&noise(seed, 100_000)).await;
        assert_eq!(stranger.hung_up().await, b"");
    }
    server.serves().await;
    // After a right hello, frames of noise.
    let mut stranger = Stranger::connect(data).await;
    stranger.greet(Role::Decode, Channel::Data).await;
    stranger.hear_hello().await;
    stranger.say(&noise(99, 100_000)).await;
    stranger.hung_up().await;
    server.serves_a_new_peer().await;
    server.at_rest().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn half_a_hello() {
    let mut server = Server::start().await;
    let mut held = Vec::new();
    for address in [server.control(), server.data().await] {
        for length in [0, 1, HELLO_LEN - 1] {
            let mut stranger = Stranger::connect(address).await;
            stranger.say(&hello(Role::Decode, Channel::Control)[..length]).await;
            held.push(stranger);
        }
    }
    // They are still there, and in nobody's way.
    server.serves().await;
    drop(held);
    server.serves_a_new_peer().await;
    server.at_rest().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_handshake_longer_than_allowed() {
    let mut server = Server::start().await;
    for length in [u32::MAX, (4 << 20) + 1] {
        let mut stranger = Stranger::connect(server.control()).await;
        stranger.greet(Role::Decode, Channel::Control).await;
        stranger.hear_hello().await;
        stranger.say(&length.to_le_bytes()).await;
        assert_eq!(stranger.hung_up().await, b"");
    }
    server.serves().await;
    server.at_rest().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_handshake_that_is_none() {
    let mut server = Server::start().await;
    for body in [&b""[..], b"{}", b"\xff\xfe", b"[1, 2, 3]"] {
        let mut stranger = Stranger::connect(server.control()).await;
        stranger.greet(Role::Decode, Channel::Control).await;
        stranger.hear_hello().await;
        stranger.say(&u32::try_from(body.len()).unwrap().to_le_bytes()).await;
        stranger.say(body).await;
        assert_eq!(stranger.hung_up().await, b"", "{body:?}");
    }
    server.serves().await;
    server.at_rest().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_peer_in_the_wrong_part() {
    let mut server = Server::start().await;
    for (role, channel) in [
        (Role::Prefill, Channel::Control),
        (Role::Decode, Channel::Data),
        (Role::Prefill, Channel::Data),
    ] {
        let mut stranger = Stranger::connect(server.control()).await;
        stranger.greet(role, channel).await;
        stranger.hear_hello().await;
        assert_eq!(stranger.hung_up().await, b"");
    }
    server.serves().await;
    server.at_rest().await;
}

/// One agent in the hello, another in the body.
#[tokio::test(flavor = "multi_thread")]
async fn a_handshake_of_somebody_else() {
    let mut server = Server::start().await;
    let right = handshake(&describe(&server.p.engine));
    let (engine, agent) = (EngineEpoch(78), AgentEpoch(78));
    for ours in [Handshake { engine, ..right.clone() }, Handshake { agent, ..right.clone() }] {
        let mut stranger = Stranger::connect(server.control()).await;
        stranger.greet(Role::Decode, Channel::Control).await;
        stranger.hear_hello().await;
        stranger.say_body(&ours).await;
        assert_eq!(stranger.hung_up().await, b"");
    }
    server.serves().await;
    server.at_rest().await;
}

/// The prefill side compares as well. It says what it is, so that both can name the field.
#[tokio::test(flavor = "multi_thread")]
async fn a_handshake_of_another_model() {
    let mut server = Server::start().await;
    let mut ours = handshake(&describe(&server.p.engine));
    ours.model = "other".into();
    let mut stranger = Stranger::connect(server.control()).await;
    assert_eq!(stranger.shake_hands(&ours).await.model, "tests");
    assert_eq!(stranger.hung_up().await, b"");
    server.serves().await;
    server.at_rest().await;
}

/// A peer that is known and then talks nonsense loses its channel, and nothing else happens.
#[tokio::test(flavor = "multi_thread")]
async fn frames_that_are_no_messages() {
    let mut server = Server::start().await;
    let ours = handshake(&describe(&server.p.engine));
    let over_long = u32::MAX.to_le_bytes().to_vec();
    let no_message = [&8_u32.to_le_bytes()[..], &[0xff; 8]].concat();
    for frame in [over_long, no_message] {
        let mut stranger = Stranger::connect(server.control()).await;
        let theirs = stranger.shake_hands(&ours).await;
        let params = server.p.offer(1000).await;
        stranger.claim(&ours, &theirs, &params).await;
        until("claimed", || async { server.p.prefill.counts().await.claims == 1 }).await;
        stranger.say(&frame).await;
        // Its claim ends with the channel, and a right engine may have the lease.
        stranger.hung_up().await;
        until("ended", || async { server.p.prefill.counts().await.claims == 0 }).await;
        assert_eq!(server.d.fetch(1000, &params).await.unwrap(), BYTES);
        assert_eq!(server.p.freed(1000).await, Why::Satisfied);
    }
    server.at_rest().await;
}

/// Eight at a time, two hundred in all, while requests are handed over.
#[tokio::test(flavor = "multi_thread")]
async fn a_crowd_of_strangers() {
    let mut server = Server::start().await;
    let ports = [server.control(), server.data().await];
    let mut crowd = JoinSet::new();
    for member in 0..8 {
        crowd.spawn(async move {
            for (turn, port) in ports.into_iter().cycle().take(25).enumerate() {
                let mut stranger = Stranger::connect(port).await;
                stranger.say(&noise(member, 1 + turn * 40)).await;
                // Too little for a hello as well as too much: this is all.
                let _ = stranger.0.shutdown().await;
                assert_eq!(stranger.hung_up().await, b"");
            }
        });
    }
    for _ in 0..10 {
        server.serves().await;
    }
    within("the crowd", crowd.join_all()).await;
    server.serves_a_new_peer().await;
    server.at_rest().await;
}
