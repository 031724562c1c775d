use std::future::poll_fn;
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;

use connector::PromptIdentity;
use kv_layout::{DType, Kind, Layer, Model, PageOrder};

use super::*;

/// A driver that is behind makes an offer wait; one that is dropped then has promised nothing.
#[tokio::test]
async fn an_offer_dropped_while_it_waits() {
    let layer = Layer::attention("layers.0".to_owned(), Kind::Full, 1, 16, 16);
    let model = Model { model_type: "test".into(), dtype: DType::Bf16, layers: vec![layer] };
    let pool = sim::Engine::new(&model, 8, PageOrder::Joint, 1 << 16, 1).unwrap();
    let engine = Engine {
        name: "engine".into(),
        model: "tests".into(),
        revision: "main".into(),
        dtype: DType::Bf16,
        epoch: None,
        rank: Rank(0),
        layouts: [pool.layout().clone()].into(),
        memory: Arc::clone(pool.memory()) as _,
        regions: pool.regions().to_vec(),
    };
    let (prefill, _freed) = Prefill::start(&Config::default(), &engine).await.unwrap();
    let tables = pool.allocate(8, 8).unwrap();
    let prompt = PromptIdentity { tokens: &[1; 8], model: "m", ..Default::default() }.digest();
    let commands = prefill.rank.commands();
    // All places of the queue: on this one thread the driver takes none meanwhile.
    let places = commands.reserve_many(commands.capacity());
    let places = places.await.unwrap();
    {
        let mut offer = pin!(prefill.offer("r", prompt, &tables));
        let pending = poll_fn(|cx| Poll::Ready(offer.as_mut().poll(cx).is_pending()));
        assert!(pending.await);
    }
    assert_eq!(lock(&prefill.scheduler).leases(), 0);
    drop(places);
    prefill.offer("r", prompt, &tables).await.unwrap();
    assert_eq!(lock(&prefill.scheduler).leases(), 1);
    assert_eq!(prefill.counts().await.leases, 1);
}
