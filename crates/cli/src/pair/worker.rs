//! A worker's process from inside: one rank of an engine.

mod blocks;
mod decode;
mod prefill;

use std::sync::Arc;
use std::time::Duration;

use kvferry::connector::params::RankAddress;
use kvferry::connector::{EngineEpoch, Rank};
use kvferry::{Counts, Engine};
use serde::Serialize;
use serde_json::json;
use sim::EngineError;
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::sync::mpsc;

use super::Role;
use super::messages::{Account, FromWorker, ToWorker};
use crate::args::WorkerArgs;
use crate::failure::{Code, Failure};
use crate::model;
use blocks::Blocks;

/// How often a worker says that it runs.
pub(super) const BEAT: Duration = Duration::from_secs(5);

/// What a worker says to its parent, in this order.
#[derive(Clone)]
struct Words(mpsc::UnboundedSender<FromWorker>);

impl Words {
    fn say(&self, word: FromWorker) {
        // Nobody hears the words of a process that is ending.
        let _ = self.0.send(word);
    }

    /// Says how something that was asked for a request ended.
    fn answer(&self, request: u64, answer: Result<FromWorker, Failure>) {
        let refused = |why: Failure| FromWorker::Refused { request, failure: why.into() };
        self.say(answer.unwrap_or_else(refused));
    }
}

/// One side's work.
trait Work: Sized + Send + Sync + 'static {
    /// Starts what a word asks for; a word that is not for this side comes back.
    fn hear(self: &Arc<Self>, word: ToWorker) -> Option<ToWorker>;

    /// What the agent holds.
    fn counts(&self) -> impl Future<Output = Counts> + Send;
}

/// Serves the parent until it says `finish` or is gone.
pub(crate) async fn run(role: Role, arguments: &WorkerArgs) {
    let (words, outbox) = mpsc::unbounded_channel();
    let words = Words(words);
    let speaking = tokio::spawn(speak(outbox));
    let beating = tokio::spawn(beat(words.clone()));
    let last = match serve(role, arguments, &words).await {
        Ok(account) => FromWorker::Finished { account },
        Err(failure) => FromWorker::Failed(failure.into()),
    };
    words.say(last);
    beating.abort();
    let _ = speaking.await;
}

async fn beat(words: Words) {
    loop {
        tokio::time::sleep(BEAT).await;
        words.say(FromWorker::Here);
    }
}

/// Writes words to the parent, up to the last. One that is gone hears nothing, and the end of
/// the input says so.
async fn speak(mut words: mpsc::UnboundedReceiver<FromWorker>) {
    let mut stdout = tokio::io::stdout();
    while let Some(word) = words.recv().await {
        let line = line(&word);
        if stdout.write_all(&line).await.is_err() || stdout.flush().await.is_err() {
            return;
        }
        if matches!(word, FromWorker::Finished { .. } | FromWorker::Failed(_)) {
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

async fn serve(role: Role, arguments: &WorkerArgs, words: &Words) -> Result<Account, Failure> {
    let model = model::load(&arguments.model)?;
    let WorkerArgs { shape, rank, pool, .. } = *arguments;
    let config = arguments.link.config()?;
    let engine = sim::Engine::of_rank(&model, shape, rank as usize, pool, arguments.link.seed);
    let engine = Arc::new(engine.map_err(from_engine_error)?);
    let described = describe(role, &engine, arguments)?;
    let blocks = Blocks::new(Arc::clone(&engine));
    match role {
        Role::Prefill => {
            let work = prefill::Work::start(&config, &described, blocks.clone(), words.clone());
            let (work, address) = work.await?;
            attend(work, Some(address), &blocks, words).await
        }
        Role::Decode => {
            let peer = source_blocks(&model, arguments)?;
            let work =
                decode::Work::start(&config, &described, blocks.clone(), words.clone(), peer)?;
            attend(work, None, &blocks, words).await
        }
    }
}

/// Does what the parent says until `finish`. A parent that is gone has nobody left to read
/// anything.
async fn attend<W: Work>(
    work: Arc<W>,
    address: Option<RankAddress>,
    blocks: &Blocks,
    words: &Words,
) -> Result<Account, Failure> {
    words.say(FromWorker::Ready { address, blocks: blocks.engine().capacity() });
    let mut lines = BufReader::new(tokio::io::stdin()).lines();
    let failed = |why: &dyn std::fmt::Display| Failure::new(Code::Failed, why);
    loop {
        let line = lines.next_line().await.map_err(|why| failed(&why))?;
        let line = line.ok_or_else(|| failed(&"the parent is gone"))?;
        match serde_json::from_str(&line).map_err(|why| failed(&why))? {
            ToWorker::Finish => break,
            ToWorker::Ping => words.say(FromWorker::Here),
            word => {
                if let Some(other) = work.hear(word) {
                    return Err(failed(&format!("not for this worker: {other:?}")));
                }
            }
        }
    }
    blocks.settle().await?;
    Ok(Account::new(blocks.engine(), work.counts().await))
}

/// The rank as the library must know it.
fn describe(role: Role, engine: &sim::Engine, arguments: &WorkerArgs) -> Result<Engine, Failure> {
    let own = engine.layout();
    let block_count = own.regions.first().map_or(0, |region| region.block_count);
    let layouts = arguments.shape.layouts(engine.model(), block_count).map_err(Failure::input)?;
    let (model, memory) = (engine.model(), Arc::clone(engine.memory()));
    Ok(Engine {
        name: role.to_string(),
        // Two configs are of one model where these agree, and what is kept of each layer does.
        model: format!("{} of {} layers", model.model_type, model.layers.len()),
        revision: String::new(),
        dtype: model.dtype,
        epoch: Some(EngineEpoch(arguments.epoch)),
        rank: Rank(arguments.rank),
        layouts: layouts.into(),
        memory,
        regions: engine.regions().to_vec(),
    })
}

/// Tokens of the other engine's blocks, by the names of layers.
fn source_blocks(model: &kv_layout::Model, args: &WorkerArgs) -> Result<decode::Sizes, Failure> {
    let peer = args.peer.ok_or_else(|| Failure::input("a decode rank needs --peer"))?;
    let layouts = peer.layouts(model, 1).map_err(Failure::input)?;
    let sizes = layouts.iter().flat_map(|layout| {
        let size = |layer: &kv_layout::PlacedLayer| {
            let group = layout.groups.get(layer.group as usize)?;
            Some((layer.name.clone(), group.block_size))
        };
        layout.layers.iter().filter_map(size).collect::<Vec<_>>()
    });
    Ok(sizes.collect())
}

fn from_engine_error(why: EngineError) -> Failure {
    match why {
        EngineError::Shape(why) => Failure::input(why),
        EngineError::PoolTooSmall { .. } => {
            Failure::input(why).hint("give a larger --pool or a smaller --block-size")
        }
        EngineError::Memory(_) => {
            Failure::input(why).hint("this host has not so much memory: use fewer tokens")
        }
        EngineError::OddRow { .. } => Failure::new(Code::Unsupported, why),
        _ => Failure::new(Code::Failed, why),
    }
}

#[cfg(test)]
mod tests;
