//! The other end of a port of kvferry's, spoken by hand.

use std::collections::BTreeSet;
use std::io::ErrorKind;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use kvferry::connector::handshake::Handshake;
use kvferry::connector::message::{Body, Message, Request};
use kvferry::connector::params::HandoffParams;
use kvferry::connector::{AgentEpoch, ClaimId, EngineEpoch, Rank, codec};
use kvferry::transport::AgentId;
use kvferry::transport::session::{
    Channel, Greeting, HELLO_LEN, Hello, Role, Secret, Step, VERSIONS,
};
use serde_json::Value;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;

use super::within;

/// Below the 5 s that a silent stranger gets: who hangs up within this did not wait for more.
const AT_ONCE: Duration = Duration::from_secs(4);

const AGENT: u64 = 77;

pub struct Stranger(pub TcpStream);

impl Stranger {
    pub async fn connect(address: SocketAddr) -> Self {
        Self(TcpStream::connect(address).await.unwrap())
    }

    /// Says these bytes; a listener that has had enough may hang up meanwhile.
    pub async fn say(&mut self, bytes: &[u8]) {
        let _ = self.0.write_all(bytes).await;
    }

    /// Says a hello.
    pub async fn greet(&mut self, role: Role, channel: Channel) {
        self.say(&hello(role, channel)).await;
    }

    /// Hears the answer to a hello.
    pub async fn hear_hello(&mut self) -> Hello {
        let mut bytes = [0; HELLO_LEN];
        within("a hello", self.0.read_exact(&mut bytes)).await.unwrap();
        Hello::decode(&bytes).unwrap()
    }

    /// Opens a control channel as a decode agent that looks like the peer itself would. Gives
    /// what the peer says of itself.
    pub async fn shake_hands(&mut self, ours: &Handshake) -> Handshake {
        self.greet(Role::Decode, Channel::Control).await;
        self.hear_hello().await;
        self.say_body(ours).await;
        self.hear_body().await
    }

    /// The same with a secret, or without one.
    pub async fn known(mut self, ours: &Handshake, secret: Option<Arc<Secret>>) -> Handshake {
        let own = Hello::decode(&hello(Role::Decode, Channel::Control)).unwrap();
        let mut greeting = Greeting::dialler(own, secret);
        loop {
            match greeting.step().unwrap() {
                Step::Say(word) => self.say(&word).await,
                Step::Hear(len) => {
                    let mut heard = vec![0; len];
                    within("a greeting", self.0.read_exact(&mut heard)).await.unwrap();
                    greeting.hear(&heard).unwrap();
                }
                Step::Known(_) => break,
            }
        }
        self.say_body(ours).await;
        self.hear_body().await
    }

    /// Says a handshake's body.
    pub async fn say_body(&mut self, ours: &Handshake) {
        let body = ours.to_json().unwrap();
        self.say(&u32::try_from(body.len()).unwrap().to_le_bytes()).await;
        self.say(&body).await;
    }

    /// Hears one.
    pub async fn hear_body(&mut self) -> Handshake {
        let length = within("a body", self.0.read_u32_le()).await.unwrap();
        let mut theirs = vec![0; length as usize];
        within("a body", self.0.read_exact(&mut theirs)).await.unwrap();
        Handshake::from_json(&theirs).unwrap()
    }

    /// Claims what the parameters lead to, under the request's name.
    pub async fn claim(&mut self, ours: &Handshake, theirs: &Handshake, params: &Value) {
        let lease = HandoffParams::from_json(params).unwrap().lease;
        let claim = ClaimId { request: lease.request.clone(), engine: ours.engine, lease };
        let rank = Rank(0);
        let body = Body::Request(Request::Claim { rank, readers: BTreeSet::from([rank]) });
        let message = Message { from: ours.agent, to: theirs.agent, claim, body };
        self.say(&codec::encode(&message).unwrap()).await;
    }

    /// Hears so many beats in a row, and whatever message comes before the first.
    pub async fn hear_beats(&mut self, count: usize) {
        let mut heard = 0;
        while heard < count {
            let length = within("a frame", self.0.read_u32_le()).await.unwrap() as usize;
            within("a frame", self.0.read_exact(&mut vec![0; length])).await.unwrap();
            heard = if length == 0 { heard + 1 } else { 0 };
        }
    }

    /// Whether the other end hangs up at once. Gives what it said before.
    pub async fn hung_up(&mut self) -> Vec<u8> {
        let mut heard = Vec::new();
        match timeout(AT_ONCE, self.0.read_to_end(&mut heard)).await {
            Ok(Ok(_)) => {}
            Ok(Err(why)) => assert_eq!(why.kind(), ErrorKind::ConnectionReset),
            Err(_) => panic!("the other end did not hang up within {AT_ONCE:?}"),
        }
        heard
    }
}

pub fn hello(role: Role, channel: Channel) -> [u8; HELLO_LEN] {
    let agent = AgentId(AGENT);
    let hello = Hello {
        versions: VERSIONS,
        role,
        channel,
        stream: 0,
        streams: 1,
        engine: AGENT,
        agent,
        random: [7; 16],
        proves: false,
    };
    hello.encode()
}

/// What a decode worker of this engine would say of itself.
pub fn handshake(engine: &kvferry::Engine) -> Handshake {
    Handshake {
        engine: EngineEpoch(AGENT),
        agent: AgentEpoch(AGENT),
        rank: engine.rank,
        ranks: 1,
        model: engine.model.clone(),
        revision: engine.revision.clone(),
        dtype: engine.dtype,
        layout: engine.layouts[0].clone(),
        cards: Vec::new(),
    }
}

/// Bytes that look like nothing, from a seed.
pub fn noise(seed: u64, count: usize) -> Vec<u8> {
    let mut state = seed;
    let mut next = || {
        state =
            state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 56) as u8
    };
    (0..count).map(|_| next()).collect()
}
