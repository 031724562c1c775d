use connector::Rank;
use kv_layout::{DType, Kind, Layer, Model, PageOrder};

use transport::session::Step;

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
    Agent::start(&Config::default(), &engine, None).unwrap()
}

#[tokio::test]
async fn every_channel_has_randomness_of_its_own() {
    let agent = agent();
    let first_word = || {
        let mut greeting = greeting(Role::Decode, &agent.handshake, None).unwrap();
        match greeting.step().unwrap() {
            Step::Say(word) => word,
            _ => panic!("a dialler speaks first"),
        }
    };
    assert_ne!(first_word(), first_word());
}
