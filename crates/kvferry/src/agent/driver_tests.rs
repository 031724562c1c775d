use std::collections::BTreeSet;

use connector::params::RankAddress;
use connector::{
    Acquaintance, Bounds, EngineEpoch, LeaseId, Nonce, Peer, PromptIdentity, Rank, RequestId,
};
use kv_layout::CacheLayout;
use tokio::sync::watch;
use transport::tcp::{TcpConfig, TcpEndpoint};

use super::super::greeter::Greeter;
use super::super::greetings::Greetings;
use super::*;

const ME: Peer = Peer { engine: EngineEpoch(1), agent: AgentEpoch(2) };

fn driver() -> Driver {
    let at = (std::net::Ipv4Addr::LOCALHOST, 0).into();
    let endpoint = TcpEndpoint::bind(TcpConfig::new(AgentId(2), 1, at)).unwrap();
    let worker = Worker::new(ME, Rank(0), Bounds::default(), [1; 32]).unwrap();
    let layout = CacheLayout { regions: Vec::new(), groups: Vec::new(), layers: Vec::new() };
    let handshake = connector::handshake::Handshake {
        engine: ME.engine,
        agent: ME.agent,
        rank: Rank(0),
        ranks: 1,
        model: "m".into(),
        revision: String::new(),
        dtype: kv_layout::DType::Bf16,
        layout: layout.clone(),
        cards: Vec::new(),
    };
    let nobody = mpsc::channel(1).0.downgrade();
    let greeter =
        Greeter::new(&Config::default(), handshake.into(), [layout.clone()].into(), nobody);
    let part = Part::Decode(Box::new(Greetings::new(greeter)));
    Driver::new(worker, Box::new(endpoint), &layout, &Config::default(), part)
}

/// A neighbour may vanish between a handshake and the claim: that is told at once, long
/// before the 5 s that an answer may take.
#[tokio::test]
async fn a_claim_at_a_vanished_neighbour() {
    let mut driver = driver();
    let request = RequestId::new("r").unwrap();
    let lease = LeaseId { engine: EngineEpoch(7), request: request.clone(), nonce: Nonce(1) };
    let claim = ClaimId { lease, engine: ME.engine, request };
    let prompt = PromptIdentity { tokens: &[1], model: "m", ..Default::default() }.digest();
    let first = RankAddress { host: "127.0.0.1".into(), port: 1 };
    let address = Address { engine_id: "p".into(), tp_size: 1, first, others: Vec::new() };
    let (reply, offers) = oneshot::channel();
    let hold = Hold { ticket: 0, gone: watch::channel(None).0 };
    driver.claim(Fetch { claim, shared: None, prompt, address: address.clone() }, hold, reply);
    let sources = BTreeMap::from([(AgentEpoch(8), BTreeSet::from([Rank(0)]))]);
    let acquaintance = Acquaintance { engine: EngineEpoch(7), sources };
    driver.input(Input::Greeted { address, acquaintance });
    driver.settle();
    let told = offers.await.unwrap();
    assert!(matches!(told, Err(FetchError::Failed(Failure::PeerLost))));
    assert_eq!(driver.worker.counts().receives, 0);
}
