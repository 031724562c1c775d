use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use connector::{LeaseId, Nonce, PromptIdentity, Rank, RequestId};
use kv_layout::{DType, Kind, Layer, Model, PageOrder};

use super::*;

fn agent() -> Agent {
    let layer = Layer::attention("layers.0".to_owned(), Kind::Full, 1, 16, 16);
    let model = Model { model_type: "test".into(), dtype: DType::Bf16, layers: vec![layer] };
    let engine = sim::Engine::new(&model, 8, PageOrder::Joint, 1 << 16, 1).unwrap();
    let engine = Engine {
        name: "engine".into(),
        model: "tests".into(),
        revision: "main".into(),
        dtype: DType::Bf16,
        epoch: None,
        rank: Rank(0),
        layouts: [engine.layout().clone()].into(),
        memory: Arc::clone(engine.memory()) as _,
        regions: engine.regions().to_vec(),
    };
    Agent::start(&Config::default(), &engine, Role::Decode, None).unwrap()
}

/// A neighbour may vanish between a handshake and the claim: that is told at once, long
/// before the 5 s that an answer may take.
#[tokio::test]
async fn a_claim_at_a_vanished_neighbour() {
    let agent = agent();
    let request = RequestId::new("r").unwrap();
    let lease = LeaseId { engine: EngineEpoch(1), request: request.clone(), nonce: Nonce(1) };
    let claim = ClaimId { lease, engine: agent.handshake.engine, request };
    let prompt = PromptIdentity { tokens: &[1], model: "m", ..Default::default() }.digest();
    let sources = BTreeMap::from([(AgentEpoch(7), BTreeSet::from([Rank(0)]))]);
    let start = Start { claim, prompt, sources };
    let (reply, offers) = oneshot::channel();
    let hold = Hold { ticket: 0, _open: watch::channel(()).0 };
    assert!(agent.commands.send(Command::Claim { start, hold, reply }).await.is_ok());
    let told = tokio::time::timeout(Duration::from_secs(3), offers).await;
    let told = told.expect("told at once").unwrap();
    assert!(matches!(told, Err(FetchError::Failed(Failure::PeerLost))));
    assert_eq!(agent.counts().await.unwrap(), Counts::default());
}

#[tokio::test]
async fn every_channel_has_randomness_of_its_own() {
    let agent = agent();
    assert_ne!(agent.hello().unwrap().random, agent.hello().unwrap().random);
}
