//! What both sides of one channel make of each other.

use std::net::Ipv4Addr;
use std::sync::Arc;
use std::time::Instant;

use connector::handshake::Handshake;
use connector::{AgentEpoch, EngineEpoch, Rank};
use kv_layout::{DType, Kind, Layer, Model, PageOrder};
use tokio::io::AsyncWriteExt;
use tokio::net::{TcpListener, TcpStream};
use transport::AgentId;
use transport::session::{Channel, Greeting, Hello, Role, Secret, VERSIONS};

use super::*;

fn secret(text: &str) -> Option<Arc<Secret>> {
    Some(Arc::new(Secret::new(text.as_bytes()).unwrap()))
}

fn hello(role: Role, agent: u64) -> Hello {
    Hello {
        versions: VERSIONS,
        role,
        channel: Channel::Control,
        stream: 0,
        streams: 1,
        engine: agent,
        agent: AgentId(agent),
        random: [1; 16],
        proves: false,
    }
}

fn handshake(agent: u64) -> Handshake {
    let layer = Layer::attention("layers.0".to_owned(), Kind::Full, 1, 16, 16);
    let model = Model { model_type: "test".into(), dtype: DType::Bf16, layers: vec![layer] };
    let engine = sim::Engine::new(&model, 8, PageOrder::Joint, 1 << 16, 1).unwrap();
    Handshake {
        engine: EngineEpoch(agent),
        agent: AgentEpoch(agent),
        rank: Rank(0),
        ranks: 1,
        model: "tests".into(),
        revision: "main".into(),
        dtype: DType::Bf16,
        layout: engine.layout().clone(),
        cards: Vec::new(),
    }
}

async fn sockets() -> (TcpStream, TcpStream) {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
    let near = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
    (near, listener.accept().await.unwrap().0)
}

/// The outcome at the dialler, which is agent 1, and at the listener, agent 2.
async fn between(dialler: Greeting, listener: Greeting) -> [String; 2] {
    let (near, far) = sockets().await;
    let (ours, theirs) = (handshake(1), handshake(2));
    let stranger = |_| None::<()>;
    let dialled = dial(near, ("127.0.0.1", None), dialler, &ours, stranger);
    let (near, far) = tokio::join!(dialled, accept(far, None, listener, &theirs));
    let near = near.map(|dialled| match dialled {
        Dialled::Opened(opened) => *opened,
        Dialled::Known(()) => unreachable!("nobody is known"),
    });
    [near, far].map(|ended| match ended {
        Ok(opened) => format!("agent {}", opened.theirs.agent.0),
        Err(why) => why.to_string(),
    })
}

async fn with(dialler: Option<Arc<Secret>>, listener: Option<Arc<Secret>>) -> [String; 2] {
    let dialler = Greeting::dialler(hello(Role::Decode, 1), dialler);
    between(dialler, Greeting::listener(hello(Role::Prefill, 2), listener)).await
}

#[tokio::test]
async fn each_side_names_what_is_wrong_with_the_other() {
    let ours = || secret("a secret of some length");
    let only_theirs = "the peer has a secret and this side has none: give both the same";
    let only_ours = "this side has a secret and the peer has none: give both the same";
    let other = "the peer has another secret than this side: give both the same";
    let not_taken = "the peer did not take this side's secret for its own: give both the same";
    assert_eq!(with(None, None).await, ["agent 2", "agent 1"]);
    assert_eq!(with(ours(), ours()).await, ["agent 2", "agent 1"]);
    assert_eq!(with(ours(), None).await, [only_ours, only_theirs]);
    assert_eq!(with(None, ours()).await, [only_theirs, only_ours]);
    assert_eq!(with(ours(), secret("a secret of same length")).await, [not_taken, other]);
}

/// An agent proves one identity, and its handshake must not name another.
#[tokio::test]
async fn the_body_is_of_whom_the_proof_is_of() {
    let ours = || secret("a secret of some length");
    let dialler = Greeting::dialler(hello(Role::Decode, 3), ours());
    let listener = Greeting::listener(hello(Role::Prefill, 2), ours());
    let [_, told] = between(dialler, listener).await;
    assert_eq!(told, "engine is 0x3 in the hello and 0x1 in the handshake");
}

/// One byte a second: the time is that of the whole handshake.
#[tokio::test]
async fn whoever_drips_is_hung_up_on_in_time() {
    let (mut near, far) = sockets().await;
    let (started, ours) = (Instant::now(), handshake(2));
    let listener = Greeting::listener(hello(Role::Prefill, 2), secret("a secret of some length"));
    let drip = async {
        for byte in hello(Role::Decode, 1).encode() {
            let _ = near.write_all(&[byte]).await;
            tokio::time::sleep(Duration::from_secs(1)).await;
        }
    };
    let told = tokio::select! {
        told = accept(far, None, listener, &ours) => told.err().unwrap().to_string(),
        () = drip => panic!("it listened to all of it"),
    };
    assert_eq!(told, "no handshake within 5 s");
    assert!(started.elapsed() < Duration::from_secs(7), "{:?}", started.elapsed());
}
