//! One rank of the decode engine.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use kv_layout::{BlockTable, Layer};
use kvferry::{Config, Counts, Decode, Engine, FetchError, Offered};
use serde_json::Value;
use sim::Fault;
use tokio::sync::oneshot;

use super::super::errors::{from_fetch_error, from_start_error};
use super::super::messages::{Figures, FromWorker, ToWorker};
use super::super::ways::Ways;
use super::super::{prompt, resume_at};
use super::Words;
use super::blocks::{Blocks, Permit, Turn, filled, granted};
use crate::failure::{Code, Failure};

/// Tokens of the prefill engine's blocks, by the names of layers.
pub(super) type Sizes = BTreeMap<String, u32>;

pub(super) struct Work {
    blocks: Blocks,
    decode: Decode,
    source_blocks: Sizes,
    /// Ends with a word when the request is dismissed.
    requests: Mutex<BTreeMap<u64, oneshot::Sender<()>>>,
    words: Words,
}

/// What is to be received.
#[derive(Clone, Copy)]
struct Request {
    number: u64,
    tokens: u64,
}

/// Blocks of a request, and the right to have that many; given back wherever it is dropped.
struct Taken {
    engine: Arc<sim::Engine>,
    tables: Arc<[BlockTable]>,
    _blocks: Permit,
}

impl Drop for Taken {
    fn drop(&mut self) {
        self.engine.retire(&self.tables);
    }
}

/// A request whose KV cache waits, and how long it took to learn that.
struct Claimed {
    offered: Offered,
    claiming: Duration,
}

/// The parent's word that a request is over.
type Dismissed = oneshot::Receiver<()>;

impl Work {
    pub(super) fn start(
        config: &Config,
        engine: &Engine,
        blocks: Blocks,
        words: Words,
        source_blocks: Sizes,
    ) -> Result<Arc<Self>, Failure> {
        let decode = Decode::start(config, engine).map_err(from_start_error)?;
        let requests = Mutex::default();
        Ok(Arc::new(Self { blocks, decode, source_blocks, requests, words }))
    }

    /// A request from its claim to its dismissal.
    async fn serve(
        self: Arc<Self>,
        request: Request,
        params: Value,
        turn: Turn,
        mut dismissed: Dismissed,
    ) {
        let answer = self.fetch(request, &params, turn, &mut dismissed).await;
        lock(&self.requests).remove(&request.number);
        self.words.answer(request.number, answer);
    }

    async fn fetch(
        &self,
        request: Request,
        params: &Value,
        turn: Turn,
        dismissed: &mut Dismissed,
    ) -> Result<FromWorker, Failure> {
        let Request { number, .. } = request;
        let (claimed, taken) = tokio::select! {
            prepared = self.prepare(request, params, turn) => prepared?,
            _ = &mut *dismissed => return Err(given_up(number)),
        };
        let over = match self.receive(request, claimed, &taken.tables, dismissed).await {
            Ok(figures) => {
                self.words.say(FromWorker::Received { request: number, figures });
                let _ = dismissed.await;
                self.inspect(request, &taken.tables).await
            }
            Err(failure) => Err(failure),
        };
        self.retire(number, taken).await?;
        over.map(|()| FromWorker::Dismissed { request: number })
    }

    /// Claims at once, for the request may have to wait for blocks, and takes these.
    async fn prepare(
        &self,
        request: Request,
        params: &Value,
        turn: Turn,
    ) -> Result<(Claimed, Taken), Failure> {
        let Request { number, tokens } = request;
        let started = Instant::now();
        let prompt = prompt(number, self.blocks.engine().prefill_tokens(tokens));
        let offered = self.decode.claim(&number.to_string(), params, prompt).await;
        let offered = offered.map_err(|why| unfetched(number, &why))?;
        let claimed = Claimed { offered, claiming: started.elapsed() };
        let permit = granted(number, turn).await?;
        Ok((claimed, self.take(request, permit).await?))
    }

    async fn take(&self, request: Request, permit: Permit) -> Result<Taken, Failure> {
        let Request { number, tokens } = request;
        let engine = Arc::clone(self.blocks.engine());
        let take = move || {
            let tables = engine.allocate(tokens, resume_at(tokens))?.into();
            // Before anything else: nobody may be left to take it.
            let taken = Taken { engine, tables, _blocks: permit };
            Some(taken.engine.inspect_unused(&taken.tables).map(|()| taken))
        };
        filled(number, take).await?.map_err(|fault| wrong(number, &fault))
    }

    /// Receives into blocks, and checks every byte.
    async fn receive(
        &self,
        request: Request,
        Claimed { offered, claiming }: Claimed,
        tables: &Arc<[BlockTable]>,
        dismissed: &mut Dismissed,
    ) -> Result<Figures, Failure> {
        let Request { number, tokens } = request;
        let started = Instant::now();
        let settled = offered.settled();
        let bytes = tokio::select! {
            received = offered.receive(tables, resume_at(tokens)) => received,
            _ = &mut *dismissed => {
                settled.await;
                return Err(given_up(number));
            }
        };
        let bytes = bytes.map_err(|why| unfetched(number, &why))?;
        let reading = started.elapsed();
        let source_block = |layer: &Layer| self.source_blocks.get(&layer.name).copied();
        let moved =
            self.blocks.engine().inspect_pieces(bytes, resume_at(tokens), tables, |layer| {
                source_block(layer).unwrap_or(0)
            });
        moved.map_err(|fault| wrong(number, &fault))?;
        self.inspect(request, tables).await?;
        let ways = Ways::of(&self.decode.paths());
        Ok(Figures { bytes, latency: claiming + reading, reading, ways })
    }

    async fn inspect(&self, request: Request, tables: &Arc<[BlockTable]>) -> Result<(), Failure> {
        let Request { number, tokens } = request;
        let (engine, tables) = (Arc::clone(self.blocks.engine()), Arc::clone(tables));
        let inspect = move || Some(engine.inspect(number, resume_at(tokens), &tables));
        filled(number, inspect).await?.map_err(|fault| wrong(number, &fault))
    }

    async fn retire(&self, request: u64, taken: Taken) -> Result<(), Failure> {
        let retire = move || {
            drop(taken);
            Some(())
        };
        filled(request, retire).await
    }
}

impl super::Work for Work {
    fn hear(self: &Arc<Self>, word: ToWorker) -> Option<ToWorker> {
        match word {
            ToWorker::Receive { request: number, tokens, params } => {
                match self.blocks.queue(number, tokens) {
                    Ok(turn) => {
                        let (dismiss, dismissed) = oneshot::channel();
                        lock(&self.requests).insert(number, dismiss);
                        let request = Request { number, tokens };
                        tokio::spawn(Arc::clone(self).serve(request, params, turn, dismissed));
                    }
                    Err(failure) => self.words.answer(number, Err(failure)),
                }
                None
            }
            ToWorker::Dismiss { request } => {
                // One that has failed is not there any more.
                let dismiss = lock(&self.requests).remove(&request);
                let _ = dismiss.map(|dismiss| dismiss.send(()));
                None
            }
            other => Some(other),
        }
    }

    async fn counts(&self) -> Counts {
        self.decode.counts().await
    }
}

fn given_up(request: u64) -> Failure {
    Failure::new(Code::Failed, format!("request {request}: given up"))
}

fn wrong(request: u64, fault: &Fault) -> Failure {
    Failure::new(Code::Bytes, format!("request {request}: {fault}"))
}

fn unfetched(request: u64, why: &FetchError) -> Failure {
    let failure = from_fetch_error(why);
    Failure { message: format!("request {request}: {}", failure.message), ..failure }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
