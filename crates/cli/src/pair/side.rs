//! All ranks of one engine, as their parent sees them.

use std::ffi::{OsStr, OsString};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};

use kv_layout::EngineShape;
use kvferry::connector::Rank;
use kvferry::connector::params::RankAddress;
use tokio::process::Command;
use tokio::sync::mpsc;

use super::child::{Name, Starting, Worker};
use super::loss::FirstLoss;
use super::messages::{Account, FromWorker, ToWorker};
use super::{Role, Shape};
use crate::args::{Allow, LinkArgs};
use crate::failure::{Code, Failure};

/// What the ranks of every engine on this host have in common.
pub(crate) struct Common {
    pub(crate) model: PathBuf,
    pub(crate) link: LinkArgs,
}

/// One engine.
pub(super) struct Engine<'a> {
    pub(super) common: &'a Common,
    pub(super) role: Role,
    pub(super) shape: Arc<Shape>,
    /// Of D, what it reads from.
    pub(super) source: Option<EngineShape>,
    /// The life of P's ranks that its scheduler is of.
    pub(super) epoch: u64,
    /// Bytes of each rank's KV cache.
    pub(super) pool: u64,
}

/// The ranks of an engine that start.
pub(super) struct StartingSide {
    ranks: Vec<Starting>,
    shape: Arc<Shape>,
}

/// What the ranks say once they can be asked.
pub(super) struct Ready {
    /// Where peers reach each rank; of D, nowhere.
    pub(super) addresses: Vec<RankAddress>,
    /// Blocks of the smallest pool.
    blocks: usize,
}

/// The ranks of an engine; they die with this value.
pub(super) struct Side {
    workers: Vec<Worker>,
    pub(super) shape: Arc<Shape>,
    /// Blocks of the smallest pool.
    blocks: usize,
    /// All ranks hear of requests in the same order: each gives blocks in the order in which it
    /// hears, and two requests, of which each has its blocks at one rank and waits for the other
    /// one's at another, would wait for ever.
    order: Mutex<()>,
}

impl StartingSide {
    /// Starts a process for each rank.
    pub(super) fn new(engine: &Engine<'_>) -> Result<Self, Failure> {
        let ranks = engine.shape.ranks();
        let start = |rank| {
            let mut command = engine.command(rank)?;
            Starting::new(Name::new(engine.role, rank, ranks), &mut command)
        };
        let ranks = (0..ranks).map(start).collect::<Result<_, _>>()?;
        Ok(Self { ranks, shape: Arc::clone(&engine.shape) })
    }

    /// Waits until all can be asked.
    pub(super) async fn ready(&mut self) -> Result<Ready, Failure> {
        let mut ready = Ready { addresses: Vec::new(), blocks: usize::MAX };
        for rank in &mut self.ranks {
            if let FromWorker::Ready { address, blocks } = rank.ready().await? {
                ready.addresses.extend(address);
                ready.blocks = ready.blocks.min(blocks);
            }
        }
        Ok(ready)
    }

    /// Listens to all from now on. Words that answer nothing go to `heard`.
    pub(super) fn listen(
        self,
        ready: &Ready,
        first_loss: &FirstLoss,
        heard: impl Fn(Rank, FromWorker) -> Option<FromWorker> + Clone + Send + 'static,
    ) -> Side {
        let listen = |(rank, starting): (u32, Starting)| {
            let heard = heard.clone();
            starting.listen(first_loss.clone(), move |word| heard(Rank(rank), word))
        };
        let workers = (0..).zip(self.ranks).map(listen).collect();
        Side { workers, shape: self.shape, blocks: ready.blocks, order: Mutex::new(()) }
    }
}

impl Side {
    /// Whether a prompt of `tokens` can ever fit.
    pub(super) fn fits(&self, tokens: u64) -> bool {
        self.shape.blocks(tokens) <= self.blocks as u64
    }

    /// Asks all ranks something about a request, about which nothing else is being asked. Gives
    /// their answers in no order, or the first failure.
    pub(super) async fn ask(
        &self,
        request: u64,
        word: &ToWorker,
    ) -> Result<Vec<FromWorker>, Failure> {
        let (reply, mut answers) = mpsc::unbounded_channel();
        {
            let _in_order = self.order.lock().unwrap_or_else(PoisonError::into_inner);
            for worker in &self.workers {
                worker.ask(request, word, reply.clone())?;
            }
        }
        // Only those who were asked can answer: where all are gone, so is the wait.
        drop(reply);
        let mut all = Vec::new();
        for _ in &self.workers {
            let lost = || Failure::new(Code::Failed, format!("request {request}: no answer"));
            all.push(answers.recv().await.ok_or_else(lost)??);
        }
        Ok(all)
    }

    /// Tells all ranks something that needs no answer.
    pub(super) fn tell(&self, word: &ToWorker) -> Result<(), Failure> {
        self.workers.iter().try_for_each(|worker| worker.say(word))
    }

    /// That a rank hangs, if one does.
    pub(super) async fn hangs(&self) -> Option<Failure> {
        for worker in &self.workers {
            if let Some(failure) = worker.hangs().await {
                return Some(failure);
            }
        }
        None
    }

    /// Lets all end. Gives the sum of their last accounts.
    pub(super) async fn finish(self) -> Result<Account, Failure> {
        self.tell(&ToWorker::Finish)?;
        let mut all = Account::default();
        for worker in self.workers {
            all = all.and(worker.end().await?);
        }
        Ok(all)
    }
}

impl Engine<'_> {
    fn command(&self, rank: usize) -> Result<Command, Failure> {
        let failed = |why: &dyn std::fmt::Display| Failure::new(Code::Failed, why);
        let program = std::env::current_exe().map_err(|why| failed(&why))?;
        let json = |shape| serde_json::to_string(shape).map_err(|why| failed(&why));
        let Common { model, link } = self.common;
        let (role, decodes) = (self.role, self.role == Role::Decode);
        // No two ranks draw the same block ids.
        let seed = link.seed.wrapping_add(2 * rank as u64).wrapping_add(decodes.into());
        let mut command = Command::new(program);
        command
            .arg(format!("{role}-worker"))
            .arg(model)
            .args(["--shape", &json(&self.shape.engine)?])
            .args(["--rank", &rank.to_string(), "--epoch", &self.epoch.to_string()])
            .args(["--pool", &self.pool.to_string(), "--seed", &seed.to_string()])
            .args(["--listen", &listen(link.listen(), role, rank)?.to_string()])
            .args(["--transport", &link.transport.to_string()]);
        if let Some(source) = &self.source {
            command.args(["--peer", &json(source)?]);
        }
        // The path: nobody sees what a process keeps in its memory, and everybody its arguments.
        command.args(option("--secret-file", link.secret_file.as_ref()));
        let tls = link.tls.given();
        command.args(tls.into_iter().filter_map(|(flag, file)| option(flag, file)));
        match role {
            Role::Prefill => command.args(option("--advertise", link.advertise.as_ref())),
            Role::Decode => command.args(option("--allow", link.allow.as_ref().map(Allow::text))),
        };
        Ok(command)
    }
}

fn option(flag: &str, value: Option<impl AsRef<OsStr>>) -> Option<OsString> {
    // In one word, so that no value is taken for a flag.
    let value = value?;
    let mut word = OsString::from(flag);
    word.push("=");
    word.push(value);
    Some(word)
}

/// Each prefill rank has a port of its own; decode ranks need only the host.
fn listen(first: SocketAddr, role: Role, rank: usize) -> Result<SocketAddr, Failure> {
    let port = match (role, first.port()) {
        (Role::Decode, _) | (_, 0) => Some(0),
        (Role::Prefill, port) => u16::try_from(rank).ok().and_then(|rank| port.checked_add(rank)),
    };
    let refused = || {
        Failure::input(format!("--listen {first}: there is no port for prefill rank {rank}"))
            .hint("give --listen a smaller port, or 0 to let the system choose")
    };
    Ok(SocketAddr::new(first.ip(), port.ok_or_else(refused)?))
}
