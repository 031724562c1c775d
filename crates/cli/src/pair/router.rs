//! The parent: both engines' ranks, the prefill engine's scheduler, and the router between.

use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use kv_layout::Kind;
use kvferry::connector::params::{Address, HandoffParams, RankAddress};
use kvferry::connector::{
    EngineEpoch, Finished, LeaseId, Nonce, Order, Rank, RequestId, Scheduler,
};
use tokio::sync::watch;
use tokio::time::timeout;

use super::child::FirstLoss;
use super::messages::{Account, Figures, FromWorker, ToWorker};
use super::side::{Ready, Side, StartingSide};
use super::{Role, Shapes, prompt};
use crate::args::LinkArgs;
use crate::failure::{Code, Failure};

/// A process that is gone is seen to be gone within this time.
const POST_MORTEM: Duration = Duration::from_secs(1);

/// What a pair is made of.
pub(crate) struct Setup {
    pub(crate) model: PathBuf,
    pub(crate) shapes: Shapes,
    pub(crate) link: LinkArgs,
    /// Bytes of each rank's KV cache.
    pub(crate) prefill_pool: u64,
    pub(crate) decode_pool: u64,
}

impl Setup {
    pub(super) fn pool(&self, role: Role) -> u64 {
        match role {
            Role::Prefill => self.prefill_pool,
            Role::Decode => self.decode_pool,
        }
    }
}

/// Both engines.
pub(crate) struct Pair {
    pub(crate) setup: Setup,
    prefill: Side,
    decode: Side,
    scheduler: Arc<Mutex<Scheduler>>,
    /// Blocks of the smallest pool of each side.
    blocks: [usize; 2],
    first_loss: FirstLoss,
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
    /// Starts all workers, side by side.
    pub(crate) async fn start(setup: Setup) -> Result<Self, Failure> {
        let epoch = rand::random();
        let mut prefill = StartingSide::new(&setup, Role::Prefill, epoch)?;
        let mut decode = StartingSide::new(&setup, Role::Decode, rand::random())?;
        let at = prefill.ready().await?;
        let blocks = [at.blocks, decode.ready().await?.blocks];
        let scheduler = Scheduler::new(EngineEpoch(epoch), address(&setup, &at)?);
        let scheduler = Arc::new(Mutex::new(scheduler.map_err(failed)?));
        let first_loss = watch::Sender::new(None);
        let freed = {
            let scheduler = Arc::clone(&scheduler);
            move |rank: Rank, word| match word {
                FromWorker::Freed { lease } => {
                    let mut scheduler = lock(&scheduler);
                    scheduler.freed(&lease, rank);
                    // The ranks have pools of their own, and know themselves what is free.
                    let _ = scheduler.poll_outcome();
                    None
                }
                other => Some(other),
            }
        };
        let prefill = prefill.listen(&first_loss, freed);
        let decode = decode.listen(&first_loss, |_, word| Some(word));
        Ok(Self { setup, prefill, decode, scheduler, blocks, first_loss })
    }

    /// Whether a prompt of `tokens` can ever fit.
    pub(crate) fn fits(&self, tokens: u64) -> bool {
        let fits = |(role, blocks): (Role, usize)| {
            self.setup.shapes.of(role).blocks(tokens) <= blocks as u64
        };
        [Role::Prefill, Role::Decode].into_iter().zip(self.blocks).all(fits)
    }

    /// Hands one request over, waiting for blocks where needed, and checks every byte. The
    /// outcome is that of all decode ranks; where one fails, the others give the request up.
    pub(crate) async fn hand_over(&self, request: u64, tokens: u64) -> Result<Held, Failure> {
        let (lease, params) = self.finish_prefill(request, tokens)?;
        // No rank is asked for what it does not keep yet.
        self.prefill.ask(request, &ToWorker::Prefill { request, tokens, lease }).await?;
        let params = params.to_json();
        let receive = ToWorker::Receive { request, tokens, params };
        match self.decode.ask(request, &receive).await {
            Ok(answers) => Ok(Held { request, figures: sum(&answers) }),
            Err(failure) => {
                self.decode.tell(&ToWorker::Dismiss { request })?;
                Err(failure)
            }
        }
    }

    /// The prefill engine's scheduler grants a lease. The blocks are chosen by the ranks, for
    /// each has a pool of its own.
    fn finish_prefill(
        &self,
        request: u64,
        tokens: u64,
    ) -> Result<(LeaseId, HandoffParams), Failure> {
        let shapes = &self.setup.shapes;
        let kinds = shapes.model.layers.iter().map(|layer| layer.kind);
        let prompt = prompt(request, Kind::prefill_tokens(kinds, tokens));
        let finished = Finished {
            request: RequestId::new(&request.to_string()).map_err(failed)?,
            nonce: Nonce(rand::random()),
            prompt,
            tables: shapes.of(Role::Prefill).tables(tokens).into(),
        };
        let mut scheduler = lock(&self.scheduler);
        let params = scheduler.finish(finished).map_err(failed)?;
        match scheduler.poll_order() {
            Some(Order::Keep(lease)) => Ok((lease.id, params)),
            other => Err(failed(format!("the scheduler orders {other:?}"))),
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
        let mut prefill = self.prefill.finish().await?;
        let decode = self.decode.finish().await?;
        // A lease that some rank did not free is left at the engine.
        prefill.leases += lock(&self.scheduler).leases();
        Ok(Accounts { prefill, decode })
    }

    /// What is behind `failure`: to the others, the end of a worker, or one that hangs, may look
    /// like anything. Only wrong bytes speak for themselves.
    pub(crate) async fn explain(self, failure: Failure) -> Failure {
        if failure.code == Code::Bytes {
            return failure;
        }
        let mut loss = self.first_loss.subscribe();
        let first = timeout(POST_MORTEM, loss.wait_for(Option::is_some)).await;
        if let Some(first) = first.ok().and_then(|first| first.ok()?.clone()) {
            return first;
        }
        match self.prefill.hangs().await {
            Some(hangs) => hangs,
            None => self.decode.hangs().await.unwrap_or(failure),
        }
    }
}

/// Where the prefill engine's ranks answer.
fn address(setup: &Setup, ready: &Ready) -> Result<Address, Failure> {
    let at = |address: &std::net::SocketAddr| RankAddress {
        host: address.ip().to_string(),
        port: address.port(),
    };
    let mut ranks = ready.addresses.iter().map(at);
    let first = ranks.next();
    let first = first.ok_or_else(|| failed("the prefill engine listens nowhere"))?;
    let tp_size = setup.shapes.of(Role::Prefill).engine.tensor;
    Ok(Address { engine_id: "prefill".to_owned(), tp_size, first, others: ranks.collect() })
}

fn sum(answers: &[FromWorker]) -> Figures {
    let figures = answers.iter().filter_map(|answer| match answer {
        FromWorker::Received { figures, .. } => Some(*figures),
        _ => None,
    });
    figures.fold(Figures::default(), Figures::and)
}

fn failed(why: impl ToString) -> Failure {
    Failure::new(Code::Failed, why)
}

/// The scheduler is whole between any two of its calls, whoever panicked.
fn lock(scheduler: &Mutex<Scheduler>) -> MutexGuard<'_, Scheduler> {
    scheduler.lock().unwrap_or_else(PoisonError::into_inner)
}
