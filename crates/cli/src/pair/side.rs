//! All ranks of one engine, as their parent sees them.

use std::net::SocketAddr;
use std::sync::{Mutex, PoisonError};

use kvferry::connector::Rank;
use tokio::process::Command;
use tokio::sync::mpsc;

use super::Role;
use super::child::{FirstLoss, Name, Starting, Worker};
use super::messages::{Account, FromWorker, ToWorker};
use super::router::Setup;
use crate::failure::{Code, Failure};

/// The ranks of an engine that start.
pub(super) struct StartingSide(Vec<Starting>);

/// What the ranks say once they can be asked.
pub(super) struct Ready {
    /// Where each rank answers; of D, nowhere.
    pub(super) addresses: Vec<SocketAddr>,
    /// Blocks of the smallest pool.
    pub(super) blocks: usize,
}

/// The ranks of an engine; they die with this value.
pub(super) struct Side {
    workers: Vec<Worker>,
    /// All ranks hear of requests in the same order: each gives blocks in the order in which it
    /// hears, and two requests, of which each has its blocks at one rank and waits for the other
    /// one's at another, would wait for ever.
    order: Mutex<()>,
}

impl StartingSide {
    /// Starts a process for each rank.
    pub(super) fn new(setup: &Setup, role: Role, epoch: u64) -> Result<Self, Failure> {
        let ranks = setup.shapes.of(role).ranks();
        let start = |rank| {
            let mut command = command(setup, role, epoch, rank)?;
            Starting::new(Name::new(role, rank, ranks), &mut command)
        };
        (0..ranks).map(start).collect::<Result<_, _>>().map(Self)
    }

    /// Waits until all can be asked.
    pub(super) async fn ready(&mut self) -> Result<Ready, Failure> {
        let mut ready = Ready { addresses: Vec::new(), blocks: usize::MAX };
        for rank in &mut self.0 {
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
        first_loss: &FirstLoss,
        heard: impl Fn(Rank, FromWorker) -> Option<FromWorker> + Clone + Send + 'static,
    ) -> Side {
        let listen = |(rank, starting): (u32, Starting)| {
            let heard = heard.clone();
            starting.listen(first_loss.clone(), move |word| heard(Rank(rank), word))
        };
        Side { workers: (0..).zip(self.0).map(listen).collect(), order: Mutex::new(()) }
    }
}

impl Side {
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

fn command(setup: &Setup, role: Role, epoch: u64, rank: usize) -> Result<Command, Failure> {
    let failed = |why: &dyn std::fmt::Display| Failure::new(Code::Failed, why);
    let program = std::env::current_exe().map_err(|why| failed(&why))?;
    let json = |role| serde_json::to_string(&setup.shapes.of(role).engine);
    let peer = if role == Role::Prefill { Role::Decode } else { Role::Prefill };
    let (shape, peer) =
        json(role).and_then(|own| Ok((own, json(peer)?))).map_err(|why| failed(&why))?;
    // No two ranks draw the same block ids.
    let seed =
        setup.link.seed.wrapping_add(2 * rank as u64).wrapping_add((role == Role::Decode).into());
    let mut command = Command::new(program);
    command
        .arg(format!("{role}-worker"))
        .arg(&setup.model)
        .args(["--shape", &shape, "--peer", &peer])
        .args(["--rank", &rank.to_string(), "--epoch", &epoch.to_string()])
        .args(["--pool", &setup.pool(role).to_string(), "--seed", &seed.to_string()])
        .args(["--listen", &listen(setup.link.listen, role, rank)?.to_string()]);
    Ok(command)
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
