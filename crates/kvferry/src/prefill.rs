//! The prefill side.

mod accept;
mod rank;

use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};

use connector::params::{Address, HandoffParams};
use connector::{
    Counts, Finished, LeaseId, Nonce, Order, Outcome, PromptDigest, Rank, RequestId, Scheduler, Why,
};
use kv_layout::BlockTable;

use crate::{Config, Engine, OfferError, StartError, agent};
pub use rank::{FreedLeases, PrefillRank};

/// A prefill engine of one rank, scheduler and worker in one: keeps the blocks of finished
/// prefills until they are read. The ranks of a larger engine are [`PrefillRank`]s, and their
/// scheduler is a [`connector::Scheduler`].
pub struct Prefill {
    rank: PrefillRank,
    scheduler: Arc<Mutex<Scheduler>>,
}

/// Reports the requests whose blocks may be reused.
pub struct Freed {
    leases: FreedLeases,
    scheduler: Arc<Mutex<Scheduler>>,
}

/// A request whose blocks may be reused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FreedRequest {
    /// As it was [offered](Prefill::offer).
    pub request: RequestId,
    /// Tells two offers of one request apart: that of the lease in the offer's parameters.
    pub nonce: Nonce,
    /// Why it is free.
    pub why: Why,
}

impl Prefill {
    /// Starts to listen. Must be called in a tokio runtime.
    ///
    /// # Errors
    /// [`StartError`]: the address, the memory or the bounds cannot be used, or the engine has
    /// several ranks.
    pub async fn start(config: &Config, engine: &Engine) -> Result<(Self, Freed), StartError> {
        let ranks = engine.layouts.len();
        if ranks != 1 {
            return Err(StartError::SeveralRanks { ranks });
        }
        let (rank, leases) = PrefillRank::start(config, engine).await?;
        let first = rank.advertised().clone();
        let engine_id = engine.name.clone();
        let place = Address { engine_id, tp_size: 1, first, others: Vec::new() };
        let scheduler = Arc::new(Mutex::new(Scheduler::new(rank.epoch(), place)?));
        let freed = Freed { leases, scheduler: Arc::clone(&scheduler) };
        Ok((Self { rank, scheduler }, freed))
    }

    /// Where the control channel listens.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.rank.address()
    }

    /// Promises to keep the blocks of a finished prefill, and gives the parameters that lead a
    /// decode engine to them. `tables` has one table for each KV cache group; the blocks must
    /// not change before [`Freed::next`] names the request.
    ///
    /// # Errors
    /// [`OfferError`]: nothing was promised.
    ///
    /// # Cancel safety
    /// Where the future is dropped before it is ready, nothing was promised.
    pub async fn offer(
        &self,
        request: &str,
        prompt: PromptDigest,
        tables: &[BlockTable],
    ) -> Result<HandoffParams, OfferError> {
        let nonce = Nonce(agent::random_u64().map_err(OfferError::System)?);
        let request = RequestId::new(request)?;
        let finished = Finished { request, nonce, prompt, tables: tables.into() };
        // The last point at which this future can be dropped comes before the promise.
        let room = self.rank.room(tables).await?;
        let mut scheduler = lock(&self.scheduler);
        let params = scheduler.finish(finished)?;
        if let Some(Order::Keep(lease)) = scheduler.poll_order() {
            room.keep(lease);
        }
        Ok(params)
    }

    /// Ends every lease, as an engine must before it takes its memory away (sleep): returns when
    /// nothing is sent from it any more. What is [offered](Self::offer) after that is freed at
    /// once.
    pub async fn withdraw(&self) {
        self.rank.withdraw().await;
    }

    /// The memory is there again, at the same place, and offers are kept again.
    pub async fn restore(&self) {
        self.rank.restore().await;
    }

    /// What the agent holds now; all 0 once it has stopped.
    pub async fn counts(&self) -> Counts {
        self.rank.counts().await
    }
}

impl Freed {
    /// The next request whose blocks may be reused; `None` once the agent has stopped.
    pub async fn next(&mut self) -> Option<FreedRequest> {
        loop {
            let (lease, why) = self.leases.next().await?;
            let mut scheduler = lock(&self.scheduler);
            scheduler.freed(&lease, Rank(0));
            if let Some(Outcome::Freed(LeaseId { request, nonce, .. })) = scheduler.poll_outcome() {
                return Some(FreedRequest { request, nonce, why });
            }
        }
    }
}

/// The scheduler is whole between any two of its calls, whoever panicked.
fn lock(scheduler: &Mutex<Scheduler>) -> std::sync::MutexGuard<'_, Scheduler> {
    scheduler.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
#[path = "prefill_tests.rs"]
mod tests;
