//! Two processes: a prefill worker (a child) and a decode worker (this one).

mod child;
mod decode;
mod messages;
pub(crate) mod worker;

pub(crate) use decode::{Accounts, Figures, Pair};
pub(crate) use messages::Account;

use kvferry::connector::{Class, PromptDigest, PromptIdentity, Rank};
use kvferry::{Config, Engine, FetchError, StartError};
use sim::EngineError;

use crate::args::{LinkArgs, ModelArgs};
use crate::failure::{Code, Failure};

/// What a pair is made of.
#[derive(Clone, Debug)]
pub(crate) struct Setup {
    pub(crate) model: ModelArgs,
    pub(crate) link: LinkArgs,
    /// Bytes of the KV cache of each side.
    pub(crate) pool: u64,
}

/// Model id that both workers state.
const MODEL: &str = "kvferry/pattern";

/// The prompt of a request, as both workers know it without asking each other.
fn prompt(request: u64, tokens: u64) -> PromptDigest {
    let first = sim::pattern::seed(request, 0, 0, 0);
    let ids: Vec<u32> = (0..tokens).map(|i| token_id(first.wrapping_add(i))).collect();
    PromptIdentity { tokens: &ids, model: MODEL, ..PromptIdentity::default() }.digest()
}

/// A token id of a vocabulary of 2^17.
fn token_id(number: u64) -> u32 {
    u32::try_from(number % (1 << 17)).unwrap_or(0)
}

fn config(link: &LinkArgs) -> Config {
    Config { listen: link.listen, ..Config::default() }
}

/// The engine as the library must know it.
fn describe(engine: &sim::Engine, name: &str) -> Engine {
    let memory = std::sync::Arc::clone(engine.memory());
    Engine {
        name: name.to_owned(),
        model: MODEL.to_owned(),
        revision: String::new(),
        dtype: engine.model().dtype,
        epoch: None,
        rank: Rank(0),
        layouts: [engine.layout().clone()].into(),
        memory,
        regions: engine.regions().to_vec(),
    }
}

fn from_engine_error(why: EngineError) -> Failure {
    match why {
        EngineError::Shape(why) => Failure::input(why),
        EngineError::PoolTooSmall { .. } => {
            Failure::input(why).hint("give a larger --pool or a smaller --block-size")
        }
        EngineError::OddRow { .. } => Failure::new(Code::Unsupported, why),
        _ => Failure::new(Code::Failed, why),
    }
}

fn from_start_error(why: StartError) -> Failure {
    let hint = match &why {
        StartError::NotLoopback { .. } => "give --listen an address such as 127.0.0.1:0 or [::1]:0",
        StartError::Listen { .. } => {
            "give --listen an address of this host with a free port; port 0 lets the system choose"
        }
        _ => return Failure::new(Code::Failed, why),
    };
    Failure::new(Code::Peer, why).hint(hint)
}

fn from_fetch_error(request: u64, why: &FetchError) -> Failure {
    let code = match why {
        FetchError::Plan(plan) if plan.is_unsupported() => Code::Unsupported,
        FetchError::Control { .. }
        | FetchError::NotLoopback { .. }
        | FetchError::NoProvider
        | FetchError::Connect(_) => Code::Peer,
        FetchError::Failed(failure) if failure.class() == Class::PeerLost => Code::Peer,
        _ => Code::Failed,
    };
    Failure::new(code, format!("request {request}: {why}"))
}
