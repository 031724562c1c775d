//! The prefill worker's process from inside.

use std::collections::BTreeMap;
use std::fmt::Display;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use kv_layout::{BlockTable, PageOrder};
use kvferry::{Freed, Prefill};
use serde::Serialize;
use serde_json::json;
use sim::Engine;
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc};
use tokio::task::JoinSet;

use super::messages::{Account, FromPrefill, ToPrefill};
use super::{config, describe, from_engine_error, from_start_error, prompt};
use crate::args::WorkerArgs;
use crate::failure::{Code, Failure};
use crate::model;

/// After the parent's last word, everything must be read and freed within this time.
const FINISH: Duration = Duration::from_secs(60);

/// Blocks of a prompt, and the right to have that many.
struct Kept {
    tables: Vec<BlockTable>,
    _blocks: OwnedSemaphorePermit,
}

struct Worker {
    engine: Arc<Engine>,
    prefill: Prefill,
    /// One permit a block: prompts get theirs in the order in which they come.
    blocks: Arc<Semaphore>,
    kept: Mutex<BTreeMap<String, Kept>>,
    words: mpsc::UnboundedSender<FromPrefill>,
}

/// Serves the parent until it says `finish` or is gone.
pub(crate) async fn run(arguments: &WorkerArgs) {
    let (words, outbox) = mpsc::unbounded_channel();
    let speaking = tokio::spawn(speak(outbox));
    let last = match serve(arguments, words.clone()).await {
        Ok(account) => FromPrefill::Finished { account },
        Err(failure) => failed(failure),
    };
    let _ = words.send(last);
    drop(words);
    let _ = speaking.await;
}

/// Writes words to the parent. One that is gone hears nothing, and its end of the input says so.
async fn speak(mut words: mpsc::UnboundedReceiver<FromPrefill>) {
    let mut stdout = tokio::io::stdout();
    while let Some(word) = words.recv().await {
        let line = line(&word);
        if stdout.write_all(&line).await.is_err() || stdout.flush().await.is_err() {
            return;
        }
    }
}

/// The line that says `word`, or why it cannot be said: the parent waits for some answer.
fn line(word: &impl Serialize) -> Vec<u8> {
    let mut line = serde_json::to_vec(word).unwrap_or_else(|why| {
        let message = format!("a word to the parent cannot be written: {why}");
        let (hint, exit_code) = (None::<String>, Code::Failed as u8);
        let failed =
            json!({ "say": "failed", "message": message, "hint": hint, "exit_code": exit_code });
        failed.to_string().into_bytes()
    });
    line.push(b'\n');
    line
}

fn failed(Failure { code, message, hint }: Failure) -> FromPrefill {
    FromPrefill::Failed { message, hint, exit_code: code as u8 }
}

async fn serve(
    arguments: &WorkerArgs,
    words: mpsc::UnboundedSender<FromPrefill>,
) -> Result<Account, Failure> {
    let model = model::load(&arguments.model.model)?;
    let (block_size, seed) = (arguments.model.block_size, arguments.link.seed);
    let engine = Engine::new(&model, block_size, PageOrder::Joint, arguments.pool, seed)
        .map_err(from_engine_error)?;
    let (prefill, freed) = Prefill::start(&config(&arguments.link), &describe(&engine, "prefill"))
        .await
        .map_err(from_start_error)?;
    let blocks = Arc::new(Semaphore::new(engine.capacity()));
    let kept = Mutex::default();
    let worker = Arc::new(Worker { engine: Arc::new(engine), prefill, blocks, kept, words });
    let (queue, queued) = mpsc::unbounded_channel();
    // Both end with this function.
    let mut tasks = JoinSet::new();
    tasks.spawn(Arc::clone(&worker).admit(queued));
    tasks.spawn(Arc::clone(&worker).free(freed));
    let _ = worker.words.send(FromPrefill::Ready);
    listen(&queue).await?;
    worker.settle().await;
    Ok(Account::new(&worker.engine, worker.prefill.counts().await))
}

/// Takes the parent's words until `finish`. A parent that is gone has nobody left to read
/// anything.
async fn listen(queue: &mpsc::UnboundedSender<(u64, u64)>) -> Result<(), Failure> {
    let mut lines = BufReader::new(tokio::io::stdin()).lines();
    let failed = |why: std::io::Error| Failure::new(Code::Failed, why);
    while let Some(line) = lines.next_line().await.map_err(failed)? {
        match serde_json::from_str(&line).map_err(|why| Failure::new(Code::Failed, why))? {
            ToPrefill::Finish => return Ok(()),
            ToPrefill::Prefill { request, tokens } => {
                let _ = queue.send((request, tokens));
            }
        }
    }
    Err(Failure::new(Code::Failed, "the parent is gone"))
}

impl Worker {
    /// Gives prompts their blocks, in the order in which they come.
    async fn admit(self: Arc<Self>, mut queue: mpsc::UnboundedReceiver<(u64, u64)>) {
        while let Some((request, tokens)) = queue.recv().await {
            let needed = self.engine.blocks_needed(tokens, tokens.saturating_sub(1));
            if needed > self.engine.capacity() as u64 {
                // Waiting for them would never end.
                let why = format!("request {request}: {tokens} tokens are larger than the pool");
                let _ = self.words.send(failed(Failure::new(Code::Failed, why)));
                continue;
            }
            let needed = u32::try_from(needed).unwrap_or(u32::MAX);
            let Ok(blocks) = Arc::clone(&self.blocks).acquire_many_owned(needed).await else {
                return;
            };
            let worker = Arc::clone(&self);
            tokio::spawn(async move {
                let word = worker.offer(request, tokens, blocks).await.unwrap_or_else(failed);
                let _ = worker.words.send(word);
            });
        }
    }

    /// Computes a prompt's KV cache, which takes no time but that of writing it, and offers it.
    async fn offer(
        &self,
        request: u64,
        tokens: u64,
        blocks: OwnedSemaphorePermit,
    ) -> Result<FromPrefill, Failure> {
        let engine = Arc::clone(&self.engine);
        let work = move || {
            let computed = engine.prefill_tokens(tokens);
            let tables = engine.allocate(tokens, tokens.saturating_sub(1))?;
            engine.prefill(request, computed, &tables);
            Some((tables, prompt(request, computed)))
        };
        let (tables, prompt) = filled(request, work).await?;
        let name = request.to_string();
        lock(&self.kept).insert(name.clone(), Kept { tables: tables.clone(), _blocks: blocks });
        let params = self.prefill.offer(&name, prompt, &tables).await;
        let params = params.map_err(|why| Failure::new(Code::Failed, why))?;
        Ok(FromPrefill::Offered { request, params: params.to_json() })
    }

    /// Paints over the blocks of requests that are read and gives them back: whoever still read
    /// them would get bytes that no check lets pass.
    async fn free(self: Arc<Self>, mut freed: Freed) {
        while let Some(freed) = freed.next().await {
            let Some(kept) = lock(&self.kept).remove(freed.request.as_str()) else { continue };
            tokio::spawn(Arc::clone(&self).retire(freed.request.to_string(), kept));
        }
    }

    async fn retire(self: Arc<Self>, request: String, kept: Kept) {
        let engine = Arc::clone(&self.engine);
        let work = move || {
            engine.retire(&kept.tables);
            drop(kept);
            Some(())
        };
        if let Err(failure) = filled(request, work).await {
            let _ = self.words.send(failed(failure));
        }
    }

    /// Waits until every block is back.
    async fn settle(&self) {
        let all = u32::try_from(self.engine.capacity()).unwrap_or(u32::MAX);
        if tokio::time::timeout(FINISH, self.blocks.acquire_many(all)).await.is_err() {
            tracing::error!("blocks are still kept");
        }
    }
}

/// Does work on the blocks of a request that holds the permits for them: the permits are the
/// blocks, so that no answer, like a panic, is a bug that the parent must hear of.
async fn filled<T: Send + 'static>(
    request: impl Display,
    work: impl FnOnce() -> Option<T> + Send + 'static,
) -> Result<T, Failure> {
    let bug = |why: &dyn Display| {
        Failure::new(Code::Failed, format!("the prefill worker's request {request}: {why}"))
    };
    let filled = tokio::task::spawn_blocking(work).await.map_err(|why| bug(&why))?;
    filled.ok_or_else(|| bug(&"out of blocks"))
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests;
