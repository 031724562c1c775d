//! Engines of several ranks, every rank an agent of its own, every byte inspected.

use std::sync::{Arc, Mutex};

use crate::common::{RESUME, TOKENS, describe, live, prompt, until, within};
use kvferry::connector::params::{Address, RankAddress};
use kvferry::connector::{
    EngineEpoch, Finished, Nonce, Order, Outcome, Rank, RequestId, Scheduler, Why,
};
use kvferry::kv_layout::{BlockTable, DType, EngineShape, Kind, Layer, Model, PageOrder};
use kvferry::{Config, Decode, FetchError, FreedLeases, PrefillRank};
use serde_json::Value;
use tokio::task::JoinSet;

const POOL: u64 = 1 << 20;

/// Layers of every window and 4 heads, which up to 4 ranks share and 8 keep twice.
pub fn model() -> Model {
    let layer = |i: usize| {
        let kind = if i % 3 == 2 { Kind::Full } else { Kind::SlidingWindow { window: 20 } };
        Layer::attention(format!("layers.{i}"), kind, 4, 16, 16)
    };
    Model { model_type: "test".into(), dtype: DType::Bf16, layers: (0..6).map(layer).collect() }
}

/// One head that every rank keeps, as the latent vector of MLA is.
fn of_one_head() -> Model {
    let layer = |i| Layer::attention(format!("layers.{i}"), Kind::Full, 1, 16, 16);
    Model { model_type: "test".into(), dtype: DType::Bf16, layers: (0..2).map(layer).collect() }
}

pub fn tensor(tensor: u32) -> EngineShape {
    EngineShape { tensor, ..EngineShape::single(8, PageOrder::Joint) }
}

pub fn ranks_of(model: &Model, shape: EngineShape, seed: u64) -> Vec<Arc<sim::Engine>> {
    let count = shape.ranks(model).unwrap().len();
    let rank = |rank| Arc::new(sim::Engine::of_rank(model, shape, rank, POOL, seed).unwrap());
    (0..count).map(rank).collect()
}

pub fn described(
    engines: &[Arc<sim::Engine>],
    epoch: u64,
) -> impl Iterator<Item = kvferry::Engine> + '_ {
    let layouts: Arc<[_]> = engines.iter().map(|engine| engine.layout().clone()).collect();
    (0..).map(Rank).zip(engines).map(move |(rank, engine)| kvferry::Engine {
        epoch: Some(EngineEpoch(epoch)),
        rank,
        layouts: Arc::clone(&layouts),
        ..describe(engine)
    })
}

struct P {
    engines: Vec<Arc<sim::Engine>>,
    ranks: Vec<(PrefillRank, FreedLeases)>,
    scheduler: Scheduler,
    kept: Mutex<Vec<Vec<BlockTable>>>,
}

impl P {
    async fn start(model: &Model, shape: EngineShape) -> Self {
        let engines = ranks_of(model, shape, 1);
        let mut ranks = Vec::new();
        for engine in described(&engines, 1) {
            ranks.push(PrefillRank::start(&Config::default(), &engine).await.unwrap());
        }
        let mut addresses = ranks.iter().map(|(rank, _)| RankAddress {
            host: rank.address().ip().to_string(),
            port: rank.address().port(),
        });
        let first = addresses.next().unwrap();
        let others = addresses.collect();
        let address = Address { engine_id: "p".into(), tp_size: shape.tensor, first, others };
        let scheduler = Scheduler::new(EngineEpoch(1), address).unwrap();
        Self { engines, ranks, scheduler, kept: Mutex::default() }
    }

    /// Prefills at every rank, each into blocks of its own, and offers.
    async fn offer(&mut self, request: u64) -> Value {
        let finished = Finished {
            request: RequestId::new("p").unwrap(),
            nonce: Nonce(request),
            prompt: prompt(request),
            tables: [].into(),
        };
        let params = self.scheduler.finish(finished).unwrap();
        let Some(Order::Keep(lease)) = self.scheduler.poll_order() else { panic!("no lease") };
        for (engine, (rank, _)) in self.engines.iter().zip(&self.ranks) {
            let tables = engine.allocate(TOKENS, RESUME).unwrap();
            engine.prefill(request, TOKENS, &tables);
            let mut lease = lease.clone();
            lease.tables = tables.clone().into();
            self.kept.lock().unwrap().push(tables);
            rank.keep(lease).await.unwrap();
        }
        params.to_json()
    }

    /// Waits until every rank has freed the lease, and says why each did.
    async fn freed(&mut self) -> Vec<Why> {
        let mut reasons = Vec::new();
        let last = self.ranks.len() - 1;
        for (index, (_, freed)) in self.ranks.iter_mut().enumerate() {
            let (lease, why) = within("freed", freed.next()).await.unwrap();
            let rank = Rank(u32::try_from(index).unwrap());
            self.scheduler.freed(&lease, rank);
            let freed = (index == last).then_some(Outcome::Freed(lease));
            assert_eq!(self.scheduler.poll_outcome(), freed);
            reasons.push(why);
        }
        let kept = std::mem::take(&mut *self.kept.lock().unwrap());
        self.engines.iter().zip(kept).for_each(|(engine, tables)| engine.retire(&tables));
        reasons
    }

    async fn at_rest(&self) {
        assert_eq!(self.scheduler.leases(), 0);
        for (engine, (rank, _)) in self.engines.iter().zip(&self.ranks) {
            until("prefill at rest", || async { live(rank.counts().await) == [0; 5] }).await;
            engine.inspect_pool().unwrap();
        }
    }
}

struct D(Vec<(Arc<sim::Engine>, Arc<Decode>)>);

impl D {
    fn start(model: &Model, shape: EngineShape) -> Self {
        let engines = ranks_of(model, shape, 2);
        let start = |engine| Arc::new(Decode::start(&Config::default(), &engine).unwrap());
        let decodes: Vec<_> = described(&engines, 2).map(start).collect();
        Self(engines.into_iter().zip(decodes).collect())
    }

    /// Every rank receives and inspects its share. Gives what each moved.
    async fn fetch(&self, request: u64, params: &Value) -> Vec<Result<u64, FetchError>> {
        let mut fetches = JoinSet::new();
        for (index, (engine, decode)) in self.0.iter().enumerate() {
            let (engine, decode, params) = (Arc::clone(engine), Arc::clone(decode), params.clone());
            fetches.spawn(async move {
                let offered = decode.claim("d", &params, prompt(request)).await;
                let moved = match offered {
                    Ok(offered) => {
                        let tables = engine.allocate(TOKENS, RESUME).unwrap();
                        let moved = offered.receive(&tables, RESUME).await;
                        if moved.is_ok() {
                            engine.inspect(request, RESUME, &tables).unwrap();
                        }
                        engine.retire(&tables);
                        moved
                    }
                    Err(why) => Err(why),
                };
                (index, moved)
            });
        }
        let mut moved = within("fetches", fetches.join_all()).await;
        moved.sort_by_key(|(index, _)| *index);
        moved.into_iter().map(|(_, moved)| moved).collect()
    }

    async fn at_rest(&self) {
        for (engine, decode) in &self.0 {
            until("decode at rest", || async { live(decode.counts().await) == [0; 5] }).await;
            engine.inspect_pool().unwrap();
        }
    }
}

/// Hands two requests over and leaves nothing. Gives why each rank of P freed the last one.
async fn hand_over(model: &Model, from: EngineShape, to: EngineShape) -> Vec<Why> {
    let (mut p, d) = (P::start(model, from).await, D::start(model, to));
    let mut reasons = Vec::new();
    for request in 0..2 {
        let params = p.offer(request).await;
        for moved in d.fetch(request, &params).await {
            moved.unwrap();
        }
        reasons = p.freed().await;
    }
    p.at_rest().await;
    d.at_rest().await;
    reasons
}

#[tokio::test(flavor = "multi_thread")]
async fn tensor_parallel_in_both_directions() {
    for (from, to) in [(1, 2), (2, 1), (2, 4), (4, 2), (4, 8), (8, 4), (8, 8)] {
        let reasons = hand_over(&model(), tensor(from), tensor(to)).await;
        assert!(reasons.iter().all(|why| *why == Why::Satisfied), "{from} to {to}: {reasons:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn one_head_for_all() {
    for (from, to) in [(1, 2), (2, 1), (4, 3), (3, 4)] {
        hand_over(&of_one_head(), tensor(from), tensor(to)).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn stages_other_blocks_and_orders() {
    let stages = EngineShape { pipeline: 2, block_size: 4, ..tensor(2) };
    let tokens_outside = EngineShape { order: PageOrder::TokensOutside, ..tensor(4) };
    hand_over(&model(), stages, tokens_outside).await;
    hand_over(&model(), tokens_outside, stages).await;
}

/// The last stage of P keeps a layer that D has not, and nothing else.
#[tokio::test(flavor = "multi_thread")]
async fn a_rank_that_nobody_reads_is_told_so() {
    let mut drafting = model();
    let draft = Layer::attention("draft.0".to_owned(), Kind::Full, 4, 16, 16);
    drafting.layers.push(draft);
    let stages = EngineShape { pipeline: 7, ..tensor(1) };
    let (mut p, d) = (P::start(&drafting, stages).await, D::start(&model(), tensor(2)));
    let params = p.offer(1).await;
    for moved in d.fetch(1, &params).await {
        moved.unwrap();
    }
    let reasons = p.freed().await;
    assert_eq!(reasons[..6], [Why::Satisfied; 6]);
    assert_eq!(reasons[6], Why::Released);
    p.at_rest().await;
    d.at_rest().await;
}

/// A rank's share of every layer hangs on its place: parameters that mix ranks up are refused,
/// by whom nobody is known to yet and by whom everybody is. A rank that is named twice would be
/// read once, and half of the blocks would be somebody else's.
#[tokio::test(flavor = "multi_thread")]
async fn ranks_in_the_wrong_place() {
    for model in [model(), of_one_head()] {
        let (mut p, d) = (P::start(&model, tensor(2)).await, D::start(&model, tensor(1)));
        let params = p.offer(1).await;
        mixed_up(&d, &params).await;
        for moved in d.fetch(1, &params).await {
            moved.unwrap();
        }
        p.freed().await;
        let params = p.offer(2).await;
        mixed_up(&d, &params).await;
        for moved in d.fetch(2, &params).await {
            moved.unwrap();
        }
        p.freed().await;
        p.at_rest().await;
        d.at_rest().await;
    }
}

async fn mixed_up(d: &D, params: &Value) {
    let mut missing = params.clone();
    missing["kvferry"]["other_ranks"] = Value::Array(Vec::new());
    let mut twice = params.clone();
    twice["kvferry"]["other_ranks"][0]["port"] = params["remote_port"].clone();
    let mut more = params.clone();
    let other = params["kvferry"]["other_ranks"][0].clone();
    more["kvferry"]["other_ranks"].as_array_mut().unwrap().push(other);
    for (params, told) in [
        (missing, "it is rank 0 of 2, not rank 0 of 1"),
        (twice, "it is rank 0 of 2, not rank 1 of 2"),
        (more, "it is rank 0 of 2, not rank 0 of 3"),
    ] {
        let moved = d.fetch(1, &params).await.remove(0);
        let why = moved.expect_err("ranks that are mixed up").to_string();
        assert!(why.ends_with(told), "{why}");
    }
}

/// One rank that is said to be two: both are the same agent.
#[tokio::test(flavor = "multi_thread")]
async fn one_rank_is_not_two() {
    let (mut p, d) = (P::start(&model(), tensor(1)).await, D::start(&model(), tensor(1)));
    let params = p.offer(1).await;
    for moved in d.fetch(1, &params).await {
        moved.unwrap();
    }
    p.freed().await;
    let mut params = p.offer(2).await;
    let itself = serde_json::json!({
        "host": params["remote_host"], "port": params["remote_port"],
    });
    params["kvferry"]["other_ranks"] = serde_json::json!([itself]);
    let why = d.fetch(2, &params).await.remove(0).expect_err("one rank as two").to_string();
    assert!(why.ends_with("it is rank 0 of 1, not rank 0 of 2"), "{why}");
    d.at_rest().await;
}

/// A read from several ranks is as good as the worst of them.
#[tokio::test(flavor = "multi_thread")]
async fn one_lost_rank_fails_those_that_read_it() {
    let (mut p, d) = (P::start(&model(), tensor(2)).await, D::start(&model(), tensor(1)));
    let params = p.offer(1).await;
    let (engine, decode) = &d.0[0];
    let offered = within("claim", decode.claim("d", &params, prompt(1))).await.unwrap();
    p.ranks.pop();
    let tables = engine.allocate(TOKENS, RESUME).unwrap();
    let lost = within("receive", offered.receive(&tables, RESUME)).await;
    assert!(matches!(lost, Err(FetchError::Failed(_))), "{lost:?}");
    engine.retire(&tables);
    d.at_rest().await;
    let (lease, why) = within("freed", p.ranks[0].1.next()).await.unwrap();
    assert_eq!((lease.nonce, why), (Nonce(1), Why::Released));
}
