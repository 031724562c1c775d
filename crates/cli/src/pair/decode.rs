//! The decode worker, with the prefill worker's process at its side.

use std::sync::Arc;
use std::time::{Duration, Instant};

use kv_layout::{BlockTable, PageOrder};
use kvferry::Decode;
use sim::{Engine, Fault};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::child::PrefillProcess;
use super::messages::Account;
use super::{
    Setup, config, describe, from_engine_error, from_fetch_error, from_start_error, prompt,
};
use crate::failure::{Code, Failure};
use crate::model;

/// Both workers.
pub(crate) struct Pair {
    prefill: PrefillProcess,
    decode: Decode,
    engine: Arc<Engine>,
    /// One permit a block.
    blocks: Arc<Semaphore>,
}

/// A request that was handed over and checked; its blocks are taken until it is dismissed.
pub(crate) struct Held {
    request: u64,
    resume_at: u64,
    tables: Vec<BlockTable>,
    blocks: OwnedSemaphorePermit,
    pub(crate) figures: Figures,
}

/// What one hand-off took.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Figures {
    /// Bytes that moved.
    pub(crate) bytes: u64,
    /// Time that the hand-off took, from the parameters to the commit, less the time that the
    /// request waited for blocks.
    pub(crate) latency: Duration,
    /// The share of it after the claim: planning, reading, commit.
    pub(crate) reading: Duration,
}

impl Pair {
    /// Starts both workers. The child draws its block ids from the setup's seed, this side from
    /// the next one.
    pub(crate) async fn start(setup: &Setup) -> Result<Self, Failure> {
        let model = model::load(&setup.model.model)?;
        let seed = setup.link.seed.wrapping_add(1);
        let prefill = PrefillProcess::start(setup).await?;
        let engine =
            Engine::new(&model, setup.model.block_size, PageOrder::Joint, setup.pool, seed)
                .map_err(from_engine_error)?;
        let decode = Decode::start(&config(&setup.link), &describe(&engine, "decode"))
            .map_err(from_start_error)?;
        let blocks = Arc::new(Semaphore::new(engine.capacity()));
        Ok(Self { prefill, decode, engine: Arc::new(engine), blocks })
    }

    /// Whether a prompt of `tokens` can ever fit.
    pub(crate) fn fits(&self, tokens: u64) -> bool {
        self.engine.blocks_needed(tokens, tokens.saturating_sub(1)) <= self.engine.capacity() as u64
    }

    /// Hands one request over, waiting for blocks where needed, and checks every byte.
    pub(crate) async fn hand_over(&self, request: u64, tokens: u64) -> Result<Held, Failure> {
        let failed = |why| from_fetch_error(request, &why);
        let params = self.prefill.prefill(request, tokens).await?;
        let claimed = Instant::now();
        let prompt = prompt(request, self.engine.prefill_tokens(tokens));
        let offered = self.decode.claim(&request.to_string(), &params, prompt).await;
        let (offered, claiming) = (offered.map_err(failed)?, claimed.elapsed());
        let resume_at = tokens.saturating_sub(1);
        let (tables, blocks) = self.allocate(request, tokens, resume_at).await?;
        let started = Instant::now();
        let bytes = offered.receive(&tables, resume_at).await.map_err(failed)?;
        let reading = started.elapsed();
        let moved = self.engine.inspect_moved(bytes, resume_at, &tables);
        moved.map_err(|fault| wrong(request, &fault))?;
        let figures = Figures { bytes, latency: claiming + reading, reading };
        let held = Held { request, resume_at, tables, blocks, figures };
        self.inspect(held).await
    }

    async fn allocate(
        &self,
        request: u64,
        tokens: u64,
        resume_at: u64,
    ) -> Result<(Vec<BlockTable>, OwnedSemaphorePermit), Failure> {
        let exhausted = || Failure::new(Code::Failed, format!("request {request}: out of blocks"));
        let needed = self.engine.blocks_needed(tokens, resume_at);
        let needed = u32::try_from(needed).map_err(|_| exhausted())?;
        let blocks = Arc::clone(&self.blocks).acquire_many_owned(needed).await;
        let blocks = blocks.map_err(|_| exhausted())?;
        let engine = Arc::clone(&self.engine);
        let tables = in_background(move || {
            let Some(tables) = engine.allocate(tokens, resume_at) else { return Ok(None) };
            engine.inspect_unused(&tables).map(|()| Some(tables))
        });
        let tables = tables.await?.map_err(|fault| wrong(request, &fault))?;
        Ok((tables.ok_or_else(exhausted)?, blocks))
    }

    async fn inspect(&self, held: Held) -> Result<Held, Failure> {
        let engine = Arc::clone(&self.engine);
        let (held, verdict) = in_background(move || {
            let verdict = engine.inspect(held.request, held.resume_at, &held.tables);
            (held, verdict)
        })
        .await?;
        verdict.map_err(|fault| wrong(held.request, &fault)).map(|()| held)
    }

    /// Checks once more that the request's bytes are its own, and gives its blocks back.
    pub(crate) async fn dismiss(&self, held: Held) -> Result<(), Failure> {
        let held = self.inspect(held).await?;
        let engine = Arc::clone(&self.engine);
        in_background(move || {
            engine.retire(&held.tables);
            drop(held.blocks);
        })
        .await
    }

    /// Ends both workers when every request is dismissed: checks that the whole pool is as
    /// untouched as at the start, and that neither side holds anything.
    pub(crate) async fn finish(self) -> Result<Accounts, Failure> {
        let prefill = self.prefill.finish().await?;
        self.engine.inspect_pool().map_err(|fault| Failure::new(Code::Bytes, fault))?;
        let decode = Account::new(&self.engine, self.decode.counts().await);
        Ok(Accounts { prefill, decode })
    }

    /// What is behind `failure`: a prefill worker that failed knows better than this side, to
    /// which its end may look like anything. Only wrong bytes speak for themselves.
    pub(crate) async fn explain(self, failure: Failure) -> Failure {
        match failure.code {
            Code::Bytes => failure,
            _ => self.prefill.post_mortem().await.unwrap_or(failure),
        }
    }
}

/// What the two workers hold when all is done.
#[derive(Clone, Copy, Debug, serde::Serialize)]
pub(crate) struct Accounts {
    pub(crate) prefill: Account,
    pub(crate) decode: Account,
}

async fn in_background<T: Send + 'static>(
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<T, Failure> {
    tokio::task::spawn_blocking(work).await.map_err(|why| Failure::new(Code::Failed, why))
}

fn wrong(request: u64, fault: &Fault) -> Failure {
    Failure::new(Code::Bytes, format!("request {request}: {fault}"))
}
