//! What a child is told at its start, and what both children know of the requests.

use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use kvferry::connector::{Bounds, Rank};
use kvferry::kv_layout::{DType, Kind, Layer, Model, PageOrder};
use kvferry::{Config, Engine, PromptDigest, PromptIdentity, Provider, Secret};
use serde_json::{Value, json};

/// The variable that makes a child of this program.
pub const CHILD: &str = "KVFERRY_CHAOS_CHILD";

/// Pools of some ten requests: less than are under way, so that blocks are reused at once.
const POOL: u64 = 24 << 20;
const BLOCK: u32 = 16;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Part {
    Prefill,
    Decode,
}

#[derive(Clone, Debug)]
pub struct Spec {
    pub part: Part,
    pub listen: SocketAddr,
    pub bounds: Bounds,
    /// The network namespace to live in; beyond loopback, there is a secret.
    pub space: Option<PathBuf>,
    /// What moves the blocks.
    pub provider: Provider,
    /// A prefill engine that offers the bytes of another request, for a look at the judge.
    pub cheats: bool,
}

/// Bounds that let an abandoned lease go within seconds.
pub fn short() -> Bounds {
    Bounds {
        unclaimed: Duration::from_secs(2),
        renew_every: Duration::from_millis(200),
        claim_life: Duration::from_secs(2),
        ..Bounds::default()
    }
}

/// Bounds that no busy machine breaks, for runs in which nothing may fail.
pub fn patient() -> Bounds {
    Bounds { unclaimed: Duration::from_secs(5), ..Bounds::default() }
}

impl Spec {
    pub fn new(part: Part, bounds: Bounds) -> Self {
        Self {
            part,
            listen: (Ipv4Addr::LOCALHOST, 0).into(),
            bounds,
            space: None,
            provider: Provider::Tcp,
            cheats: false,
        }
    }

    pub fn to_json(&self) -> Value {
        let millis = |bound: Duration| u64::try_from(bound.as_millis()).unwrap();
        json!({
            "prefill": self.part == Part::Prefill,
            "listen": self.listen.to_string(),
            "unclaimed": millis(self.bounds.unclaimed),
            "renew_every": millis(self.bounds.renew_every),
            "claim_life": millis(self.bounds.claim_life),
            "space": self.space,
            "provider": self.provider.to_string(),
            "cheats": self.cheats,
        })
    }

    pub fn from_json(json: &Value) -> Self {
        let millis = |name: &str| Duration::from_millis(json[name].as_u64().unwrap());
        let prefill = json["prefill"].as_bool().unwrap();
        Self {
            part: if prefill { Part::Prefill } else { Part::Decode },
            listen: json["listen"].as_str().unwrap().parse().unwrap(),
            bounds: Bounds {
                unclaimed: millis("unclaimed"),
                renew_every: millis("renew_every"),
                claim_life: millis("claim_life"),
                ..Bounds::default()
            },
            space: json["space"].as_str().map(PathBuf::from),
            provider: json["provider"].as_str().unwrap().parse().unwrap(),
            cheats: json["cheats"].as_bool().unwrap(),
        }
    }

    pub fn config(&self) -> Config {
        let proof = || Arc::new(Secret::new(b"a secret of some length").unwrap());
        Config {
            listen: self.listen,
            secret: self.space.is_some().then(proof),
            bounds: self.bounds,
            provider: self.provider,
            ..Config::default()
        }
    }
}

/// Windowed and full layers, and a padding slot; some hundred KiB move for each request.
fn model() -> Model {
    let layer = |i: usize| {
        let kind = if i % 3 == 2 { Kind::Full } else { Kind::SlidingWindow { window: 40 } };
        Layer::attention(format!("layers.{i}"), kind, 4, 64, 64)
    };
    Model { model_type: "test".into(), dtype: DType::Bf16, layers: (0..7).map(layer).collect() }
}

pub fn engine(part: Part) -> sim::Engine {
    let seed = if part == Part::Prefill { 1 } else { 2 };
    sim::Engine::new(&model(), BLOCK, PageOrder::Joint, POOL, seed).unwrap()
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

/// Tokens of a request's prompt.
pub fn tokens(request: u64) -> u64 {
    50 + request * 37 % 450
}

/// Where the decode engine goes on.
pub fn resume(request: u64) -> u64 {
    tokens(request) - 1
}

/// The prompt of a request, as both sides know it.
pub fn prompt(request: u64) -> PromptDigest {
    let first = u32::try_from(request * 1000).unwrap();
    let tokens: Vec<u32> = (first..).zip(0..tokens(request)).map(|(token, _)| token).collect();
    PromptIdentity { tokens: &tokens, model: "tests", ..PromptIdentity::default() }.digest()
}
