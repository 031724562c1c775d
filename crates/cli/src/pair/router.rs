//! Both engines and the router between: the decode engine's ranks are on this host, and the
//! prefill engine is here as well or on another one.

use std::sync::Arc;

use serde_json::Value;

use super::hosts::Remote;
use super::loss::FirstLoss;
use super::messages::{Account, Figures, FromWorker, ToWorker};
use super::prefill::{self, Prefill};
use super::side::{Common, Engine, Side, StartingSide};
use super::{Role, Shape, Shapes};
use crate::failure::{Code, Failure};

/// Both engines.
pub(crate) struct Pair {
    pub(crate) shapes: Shapes,
    source: Source,
    decode: Side,
    first_loss: FirstLoss,
}

/// Where the prefill engine is.
enum Source {
    Here(Prefill),
    There(Remote),
}

/// A request that was handed over and checked; its blocks are taken until it is dismissed.
pub(crate) struct Held {
    request: u64,
    pub(crate) figures: Figures,
}

/// What the two sides hold when all is done.
#[derive(Clone, Copy, Debug, serde::Serialize)]
pub(crate) struct Accounts {
    pub(crate) prefill: Account,
    pub(crate) decode: Account,
}

impl Pair {
    /// Starts both engines on this host, side by side. `pool` says how many bytes each rank of an
    /// engine has for its KV cache.
    pub(crate) async fn start(
        shapes: Shapes,
        common: &Common,
        pool: impl Fn(&Shape) -> u64,
    ) -> Result<Self, Failure> {
        // A secret that cannot be used is told once, before any process is started.
        common.link.config()?;
        let first_loss = FirstLoss::new();
        let shape = shapes.of(Role::Prefill);
        let starting = prefill::Starting::new(common, shape, pool(shape))?;
        let decode = decode(&shapes, common, &pool)?;
        let source = Source::Here(starting.ready(&first_loss).await?);
        let decode = ready(decode, &first_loss).await?;
        Ok(Self { shapes, source, decode, first_loss })
    }

    /// Starts the decode engine, to read from a prefill engine on another host.
    pub(crate) async fn join(
        remote: Remote,
        shapes: Shapes,
        common: &Common,
        pool: impl Fn(&Shape) -> u64,
        first_loss: FirstLoss,
    ) -> Result<Self, Failure> {
        let started = match decode(&shapes, common, &pool) {
            Ok(starting) => ready(starting, &first_loss).await,
            Err(failure) => Err(failure),
        };
        match started {
            Ok(decode) => Ok(Self { shapes, source: Source::There(remote), decode, first_loss }),
            Err(failure) => Err(remote.give_up(failure).await),
        }
    }

    /// Whether a prompt of `tokens` can ever fit.
    pub(crate) fn fits(&self, tokens: u64) -> bool {
        // The prefill engine on another host has said so for its part.
        let source = match &self.source {
            Source::Here(prefill) => prefill.fits(tokens),
            Source::There(_) => true,
        };
        source && self.decode.fits(tokens)
    }

    /// Hands one request over, waiting for blocks where needed, and checks every byte. The
    /// outcome is that of all decode ranks; where one fails, the others give the request up.
    pub(crate) async fn hand_over(&self, request: u64, tokens: u64) -> Result<Held, Failure> {
        let params = self.source.offer(request, tokens).await?;
        let receive = ToWorker::Receive { request, tokens, params };
        match self.decode.ask(request, &receive).await {
            Ok(answers) => Ok(Held { request, figures: sum(&answers)? }),
            Err(failure) => {
                self.decode.tell(&ToWorker::Dismiss { request })?;
                Err(failure)
            }
        }
    }

    /// Has the request's bytes checked once more, and its blocks given back.
    pub(crate) async fn dismiss(&self, held: Held) -> Result<(), Failure> {
        let request = held.request;
        self.decode.ask(request, &ToWorker::Dismiss { request }).await.map(drop)
    }

    /// Lets all workers finish.
    pub(crate) async fn finish(self) -> Result<Accounts, Failure> {
        // The decode ranks, which may still have to tell that nobody reads, end last.
        let prefill = self.source.finish().await?;
        let decode = self.decode.finish().await?;
        Ok(Accounts { prefill, decode })
    }

    /// What is behind `failure`. Another host is told.
    pub(crate) async fn explain(self, failure: Failure) -> Failure {
        let hangs = async {
            match self.source.hangs().await {
                Some(hangs) => Some(hangs),
                None => self.decode.hangs().await,
            }
        };
        let behind = self.first_loss.behind(failure, hangs).await;
        match self.source {
            Source::Here(_) => behind,
            Source::There(remote) => remote.give_up(behind).await,
        }
    }
}

impl Source {
    async fn offer(&self, request: u64, tokens: u64) -> Result<Value, Failure> {
        match self {
            Self::Here(prefill) => prefill.offer(request, tokens).await,
            Self::There(remote) => remote.offer(request, tokens).await,
        }
    }

    /// Only its parent can tell that a rank on another host hangs, and does.
    async fn hangs(&self) -> Option<Failure> {
        match self {
            Self::Here(prefill) => prefill.hangs().await,
            Self::There(_) => None,
        }
    }

    async fn finish(self) -> Result<Account, Failure> {
        match self {
            Self::Here(prefill) => prefill.finish().await,
            Self::There(remote) => remote.finish().await,
        }
    }
}

fn decode(
    shapes: &Shapes,
    common: &Common,
    pool: impl Fn(&Shape) -> u64,
) -> Result<StartingSide, Failure> {
    let shape = shapes.of(Role::Decode);
    StartingSide::new(&Engine {
        common,
        role: Role::Decode,
        shape: Arc::clone(shape),
        source: Some(shapes.of(Role::Prefill).engine),
        epoch: rand::random(),
        pool: pool(shape),
    })
}

async fn ready(mut starting: StartingSide, first_loss: &FirstLoss) -> Result<Side, Failure> {
    let ready = starting.ready().await?;
    Ok(starting.listen(&ready, first_loss, |_, word| Some(word)))
}

/// Over all ranks, each of which must have received its share.
fn sum(answers: &[FromWorker]) -> Result<Figures, Failure> {
    answers.iter().try_fold(Figures::default(), |sum, answer| match answer {
        FromWorker::Received { figures, .. } => Ok(sum.and(*figures)),
        other => Err(Failure::new(Code::Failed, format!("a decode rank says {other:?}"))),
    })
}
