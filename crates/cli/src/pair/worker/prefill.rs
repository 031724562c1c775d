//! One rank of the prefill engine.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use kv_layout::BlockTable;
use kvferry::connector::params::RankAddress;
use kvferry::connector::{Lease, LeaseId};
use kvferry::{Config, Counts, Engine, FreedLeases, PrefillRank};

use super::super::errors::from_start_error;
use super::super::messages::{FromWorker, ToWorker};
use super::super::{prompt, resume_at};
use super::Words;
use super::blocks::{Blocks, Permit, Turn, filled, granted};
use crate::failure::{Code, Failure};

/// Blocks of a prompt, and the right to have that many.
struct Kept {
    request: u64,
    tables: Vec<BlockTable>,
    _blocks: Permit,
}

pub(super) struct Work {
    blocks: Blocks,
    rank: PrefillRank,
    kept: Mutex<BTreeMap<LeaseId, Kept>>,
    words: Words,
}

impl Work {
    /// Starts to listen. Gives the address by which peers reach it, too.
    pub(super) async fn start(
        config: &Config,
        engine: &Engine,
        blocks: Blocks,
        words: Words,
    ) -> Result<(Arc<Self>, RankAddress), Failure> {
        let started = PrefillRank::start(config, engine).await;
        let (rank, freed) = started.map_err(from_start_error)?;
        let address = rank.advertised().clone();
        let work = Arc::new(Self { blocks, rank, kept: Mutex::default(), words });
        tokio::spawn(Arc::clone(&work).free(freed));
        Ok((work, address))
    }

    async fn answer(self: Arc<Self>, request: u64, tokens: u64, lease: LeaseId, turn: Turn) {
        let kept = self.keep(request, tokens, lease, turn).await;
        self.words.answer(request, kept.map(|()| FromWorker::Kept { request }));
    }

    /// Computes the rank's KV cache of a prompt, which takes no time but that of writing it, and
    /// keeps it for the lease.
    async fn keep(
        &self,
        request: u64,
        tokens: u64,
        id: LeaseId,
        turn: Turn,
    ) -> Result<(), Failure> {
        let permit = granted(request, turn).await?;
        let engine = Arc::clone(self.blocks.engine());
        let compute = move || {
            let computed = engine.prefill_tokens(tokens);
            let tables = engine.allocate(tokens, resume_at(tokens))?;
            engine.prefill(request, computed, &tables);
            Some((tables, prompt(request, computed)))
        };
        let (tables, prompt) = filled(request, compute).await?;
        let lease = Lease { id: id.clone(), prompt, tables: tables.clone().into() };
        lock(&self.kept).insert(id.clone(), Kept { request, tables, _blocks: permit });
        let kept = self.rank.keep(lease).await;
        kept.map_err(|why| {
            lock(&self.kept).remove(&id);
            Failure::new(Code::Failed, why)
        })
    }

    async fn free(self: Arc<Self>, mut freed: FreedLeases) {
        while let Some((lease, _)) = freed.next().await {
            let Some(kept) = lock(&self.kept).remove(&lease) else { continue };
            tokio::spawn(Arc::clone(&self).retire(lease, kept));
        }
    }

    /// Paints over blocks that nobody reads any more and gives them back: whoever still read
    /// them would get bytes that no check lets pass.
    async fn retire(self: Arc<Self>, lease: LeaseId, kept: Kept) {
        let engine = Arc::clone(self.blocks.engine());
        let request = kept.request;
        let retire = move || {
            engine.retire(&kept.tables);
            Some(kept)
        };
        match filled(request, retire).await {
            // Said before the permits are back: nothing is settled before it is said.
            Ok(_kept) => self.words.say(FromWorker::Freed { lease }),
            Err(failure) => self.words.say(FromWorker::Failed(failure.into())),
        }
    }
}

impl super::Work for Work {
    fn hear(self: &Arc<Self>, word: ToWorker) -> Option<ToWorker> {
        let ToWorker::Prefill { request, tokens, lease } = word else { return Some(word) };
        match self.blocks.queue(request, tokens) {
            Ok(turn) => {
                tokio::spawn(Arc::clone(self).answer(request, tokens, lease, turn));
            }
            Err(failure) => self.words.answer(request, Err(failure)),
        }
        None
    }

    async fn counts(&self) -> Counts {
        self.rank.counts().await
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
