//! The prefill engine, as its parent has it: its ranks and its scheduler.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use kvferry::connector::params::{Address, HandoffParams};
use kvferry::connector::{
    EngineEpoch, Finished, LeaseId, Nonce, Order, Rank, RequestId, Scheduler,
};
use serde_json::Value;

use super::errors::failed;
use super::loss::FirstLoss;
use super::messages::{Account, FromWorker, ToWorker};
use super::side::{Common, Engine, Ready, Side, StartingSide};
use super::{Role, Shape, prompt};
use crate::failure::Failure;

/// Its ranks start.
pub(super) struct Starting {
    side: StartingSide,
    shape: Arc<Shape>,
    epoch: u64,
}

/// An engine that computes prompts and keeps their KV cache until it is read.
pub(crate) struct Prefill {
    side: Side,
    scheduler: Arc<Mutex<Scheduler>>,
}

impl Starting {
    pub(super) fn new(common: &Common, shape: &Arc<Shape>, pool: u64) -> Result<Self, Failure> {
        let (role, epoch, shape) = (Role::Prefill, rand::random(), Arc::clone(shape));
        let engine = Engine { common, role, shape: Arc::clone(&shape), source: None, epoch, pool };
        Ok(Self { side: StartingSide::new(&engine)?, shape, epoch })
    }

    /// Waits until all ranks can be asked.
    pub(super) async fn ready(mut self, first_loss: &FirstLoss) -> Result<Prefill, Failure> {
        let ready = self.side.ready().await?;
        let scheduler = Scheduler::new(EngineEpoch(self.epoch), address(&self.shape, &ready)?);
        let scheduler = Arc::new(Mutex::new(scheduler.map_err(failed)?));
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
        let side = self.side.listen(&ready, first_loss, freed);
        Ok(Prefill { side, scheduler })
    }
}

impl Prefill {
    /// Starts all ranks.
    pub(crate) async fn start(
        common: &Common,
        shape: &Arc<Shape>,
        pool: u64,
        first_loss: &FirstLoss,
    ) -> Result<Self, Failure> {
        Starting::new(common, shape, pool)?.ready(first_loss).await
    }

    pub(super) fn shape(&self) -> &Shape {
        &self.side.shape
    }

    /// Whether a prompt of `tokens` can ever fit.
    pub(super) fn fits(&self, tokens: u64) -> bool {
        self.side.fits(tokens)
    }

    /// Computes a prompt, waiting for blocks where needed, and gives the parameters that lead to
    /// its KV cache.
    pub(super) async fn offer(&self, request: u64, tokens: u64) -> Result<Value, Failure> {
        let (lease, params) = self.finish_prefill(request, tokens)?;
        // Nobody is led to what is not kept yet.
        self.side.ask(request, &ToWorker::Prefill { request, tokens, lease }).await?;
        Ok(params.to_json())
    }

    /// The scheduler grants a lease. The blocks are chosen by the ranks, for each has a pool of
    /// its own.
    fn finish_prefill(
        &self,
        request: u64,
        tokens: u64,
    ) -> Result<(LeaseId, HandoffParams), Failure> {
        let shape = self.shape();
        let finished = Finished {
            request: RequestId::new(&request.to_string()).map_err(failed)?,
            nonce: Nonce(rand::random()),
            prompt: prompt(request, shape.prefill_tokens(tokens)),
            tables: shape.tables(tokens).into(),
        };
        let mut scheduler = lock(&self.scheduler);
        let params = scheduler.finish(finished).map_err(failed)?;
        match scheduler.poll_order() {
            Some(Order::Keep(lease)) => Ok((lease.id, params)),
            other => Err(failed(format!("the scheduler orders {other:?}"))),
        }
    }

    /// That a rank hangs, if one does.
    pub(super) async fn hangs(&self) -> Option<Failure> {
        self.side.hangs().await
    }

    /// Lets all ranks finish.
    pub(super) async fn finish(self) -> Result<Account, Failure> {
        let mut account = self.side.finish().await?;
        // A lease that some rank did not free is left at the engine.
        account.leases += lock(&self.scheduler).leases();
        Ok(account)
    }
}

/// Where the ranks answer.
fn address(shape: &Shape, ready: &Ready) -> Result<Address, Failure> {
    let mut ranks = ready.addresses.iter().cloned();
    let first = ranks.next();
    let first = first.ok_or_else(|| failed("the prefill engine listens nowhere"))?;
    let tp_size = shape.engine.tensor;
    Ok(Address { engine_id: "prefill".to_owned(), tp_size, first, others: ranks.collect() })
}

/// The scheduler is whole between any two of its calls, whoever panicked.
fn lock(scheduler: &Mutex<Scheduler>) -> MutexGuard<'_, Scheduler> {
    scheduler.lock().unwrap_or_else(PoisonError::into_inner)
}
