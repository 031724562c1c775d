//! Agents of fake engines in one process, and the state that a test must leave behind.

pub mod proxy;
pub mod stranger;

use std::collections::BTreeMap;
use std::future::poll_fn;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::Poll;
use std::time::Duration;

use kvferry::connector::{Bounds, Failure, Rank, Why};
use kvferry::kv_layout::{BlockTable, DType, Kind, Layer, Model, PageOrder};
use kvferry::{
    Config, Counts, Decode, Engine, FetchError, Freed, Offered, Prefill, PromptDigest,
    PromptIdentity, StartError,
};
use serde_json::Value;

/// Far above what anything here takes, however busy the machine is.
pub const PATIENCE: Duration = Duration::from_secs(20);
/// Between two looks.
const MOMENT: Duration = Duration::from_millis(2);
pub const BLOCK: u32 = 8;
pub const TOKENS: u64 = 53;
pub const RESUME: u64 = TOKENS - 1;
/// 2 full layers with blocks 0 to 6; 5 windowed ones whose query at 52 sees keys from 33 on, so
/// blocks 4 to 6; 8 tokens of 3 heads with 32 bytes each in a page.
pub const BYTES: u64 = (2 * 7 + 5 * 3) * 8 * 3 * 32;
const POOL: u64 = 1 << 20;

/// Windowed and full layers, and a padding slot.
pub fn model() -> Model {
    let layer = |i: usize| {
        let kind = if i % 3 == 2 { Kind::Full } else { Kind::SlidingWindow { window: 20 } };
        Layer::attention(format!("layers.{i}"), kind, 3, 16, 16)
    };
    Model { model_type: "test".into(), dtype: DType::Bf16, layers: (0..7).map(layer).collect() }
}

/// The default settings with other bounds.
pub fn bounded(bounds: Bounds) -> Config {
    Config { bounds, ..Config::default() }
}

/// The prompt of a request, as both sides know it.
pub fn prompt(request: u64) -> PromptDigest {
    let first = u32::try_from(request * 1000).unwrap();
    let tokens: Vec<u32> = (first..).zip(0..TOKENS).map(|(token, _)| token).collect();
    PromptIdentity { tokens: &tokens, model: "tests", ..PromptIdentity::default() }.digest()
}

pub fn describe(engine: &sim::Engine) -> Engine {
    Engine {
        name: "engine".into(),
        model: "tests".into(),
        revision: "main".into(),
        dtype: engine.model().dtype,
        epoch: None,
        rank: Rank(0),
        layouts: [engine.layout().clone()].into(),
        memory: Arc::clone(engine.memory()) as _,
        regions: engine.regions().to_vec(),
    }
}

pub async fn within<T>(what: &str, work: impl Future<Output = T>) -> T {
    let done = tokio::time::timeout(PATIENCE, work).await;
    done.unwrap_or_else(|_| panic!("{what}: not within {PATIENCE:?}"))
}

/// Asks again until it is so.
pub async fn until<F: Future<Output = bool>>(what: &str, mut is_so: impl FnMut() -> F) {
    within(what, async {
        while !is_so().await {
            tokio::time::sleep(MOMENT).await;
        }
    })
    .await;
}

/// Polls a future once, which must not be ready.
pub async fn begin<T>(work: &mut (impl Future<Output = T> + Unpin)) {
    let pending = poll_fn(|cx| Poll::Ready(Pin::new(&mut *work).poll(cx).is_pending()));
    assert!(pending.await, "ready at once");
}

/// A prefill engine and its agent.
pub struct P {
    pub engine: sim::Engine,
    pub prefill: Prefill,
    freed: Freed,
    kept: Mutex<BTreeMap<String, Vec<BlockTable>>>,
}

impl P {
    /// Waits for the address if it has to: a predecessor may be just leaving it.
    pub async fn start(config: &Config, order: PageOrder) -> Self {
        let engine = sim::Engine::new(&model(), BLOCK, order, POOL, 1).unwrap();
        let (prefill, freed) = within("the address", async {
            loop {
                match Prefill::start(config, &describe(&engine)).await {
                    Ok(started) => return started,
                    Err(StartError::Listen { .. }) => tokio::time::sleep(MOMENT).await,
                    Err(why) => panic!("{why}"),
                }
            }
        })
        .await;
        Self { engine, prefill, freed, kept: Mutex::default() }
    }

    /// Prefills a request and offers it. Gives the parameters.
    pub async fn offer(&self, request: u64) -> Value {
        let tables = self.engine.allocate(TOKENS, RESUME).unwrap();
        self.engine.prefill(request, TOKENS, &tables);
        let name = format!("p-{request}");
        self.kept.lock().unwrap().insert(name.clone(), tables.clone());
        self.prefill.offer(&name, prompt(request), &tables).await.unwrap().to_json()
    }

    /// Waits for the next freed request, which must be this one, and takes its blocks back.
    pub async fn freed(&mut self, request: u64) -> Why {
        let freed = within("freed", self.freed.next()).await.unwrap();
        assert_eq!(freed.request.as_str(), format!("p-{request}"));
        self.take_back(freed.request.as_str());
        freed.why
    }

    /// Waits until so many requests are freed, in any order, each satisfied.
    pub async fn all_satisfied(&mut self, count: usize) {
        for _ in 0..count {
            let freed = within("freed", self.freed.next()).await.unwrap();
            assert_eq!(freed.why, Why::Satisfied, "{}", freed.request);
            self.take_back(freed.request.as_str());
        }
    }

    fn take_back(&self, name: &str) {
        let tables = self.kept.lock().unwrap().remove(name).expect("freed once, after an offer");
        self.engine.retire(&tables);
    }

    /// Nothing is kept, claimed or readable, and every block is back.
    pub async fn at_rest(&self) {
        until("prefill at rest", || async { live(self.prefill.counts().await) == [0; 5] }).await;
        assert_eq!(self.engine.free_blocks(), self.engine.capacity());
        self.engine.inspect_pool().unwrap();
    }
}

/// What a worker holds; the totals aside.
pub fn live(counts: Counts) -> [usize; 5] {
    let Counts { leases, claims, tokens, early, receives, .. } = counts;
    [leases, claims, tokens, early, receives]
}

/// A decode engine and its agent.
pub struct D {
    pub engine: sim::Engine,
    pub decode: Decode,
}

impl D {
    pub fn start(config: &Config, order: PageOrder) -> Self {
        Self::with(config, order, &model(), |_| ())
    }

    /// One that keeps `model` and says of itself what `change` makes of the truth.
    pub fn with(
        config: &Config,
        order: PageOrder,
        model: &Model,
        change: impl FnOnce(&mut Engine),
    ) -> Self {
        let engine = sim::Engine::new(model, BLOCK, order, POOL, 2).unwrap();
        let mut described = describe(&engine);
        change(&mut described);
        let decode = Decode::start(config, &described).unwrap();
        Self { engine, decode }
    }

    pub async fn claim(&self, request: u64, params: &Value) -> Result<Offered, FetchError> {
        let name = format!("d-{request}");
        within("claim", self.decode.claim(&name, params, prompt(request))).await
    }

    /// Reads into fresh blocks and inspects every byte of them. Gives the bytes that moved.
    pub async fn receive(&self, request: u64, offered: Offered) -> Result<u64, FetchError> {
        let tables = self.engine.allocate(TOKENS, RESUME).unwrap();
        self.engine.inspect_unused(&tables).unwrap();
        let received = within("receive", offered.receive(&tables, RESUME)).await;
        if received.is_ok() {
            self.engine.inspect(request, RESUME, &tables).unwrap();
        }
        self.engine.retire(&tables);
        received
    }

    pub async fn fetch(&self, request: u64, params: &Value) -> Result<u64, FetchError> {
        let offered = self.claim(request, params).await?;
        self.receive(request, offered).await
    }

    /// Nothing is under way, every block is back, and no byte was ever written elsewhere.
    pub async fn at_rest(&self) {
        until("decode at rest", || async { live(self.decode.counts().await) == [0; 5] }).await;
        assert_eq!(self.engine.free_blocks(), self.engine.capacity());
        self.engine.inspect_pool().unwrap();
    }
}

/// The failure of a hand-off that was begun.
pub fn failure<T>(ended: Result<T, FetchError>) -> Failure {
    match ended {
        Err(FetchError::Failed(failure)) => failure,
        Err(other) => panic!("not a failed hand-off: {other}"),
        Ok(_) => panic!("a hand-off that should have failed"),
    }
}
