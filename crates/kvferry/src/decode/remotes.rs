//! Prefill engines that this agent has shaken hands with.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use connector::params::Address;
use connector::{AgentEpoch, EngineEpoch, Rank};
use dashmap::DashMap;
use kv_layout::{BlockTable, CacheLayout};
use tokio::sync::{OnceCell, watch};
use tokio::time::timeout;

use super::greet::{self, resolve};
use crate::FetchError;
use crate::agent::Agent;
use crate::control::ControlError;

/// The end of a channel is seen within this time after the other side has closed it.
const MOMENT: Duration = Duration::from_secs(1);

/// A prefill engine with an open control channel to each of its ranks that this one speaks to.
pub(crate) struct Remote {
    pub(super) engine: EngineEpoch,
    /// All of its ranks, in their order.
    pub(super) ranks: Vec<RemoteRank>,
    /// Those that this rank speaks to, each with the ranks of this engine that read it.
    pub(super) sources: BTreeMap<AgentEpoch, BTreeSet<Rank>>,
    /// Each ends with its channel.
    pub(super) channels: Vec<watch::Receiver<()>>,
}

/// One rank of it, as it described itself.
pub(crate) struct RemoteRank {
    pub(super) agent: AgentEpoch,
    pub(super) layout: CacheLayout,
    /// The blocks of a request that this rank has nothing of.
    pub(super) no_blocks: Vec<BlockTable>,
}

impl Remote {
    /// Whether all channels stand. Those to another life of the engine than is asked for, which
    /// may be about to end, get a moment for that.
    async fn is_open(&self, engine: EngineEpoch) -> bool {
        if self.engine != engine
            && let Some(channel) = self.channels.first()
        {
            let _ = timeout(MOMENT, channel.clone().changed()).await;
        }
        self.stands()
    }

    fn stands(&self) -> bool {
        self.channels.iter().all(|channel| channel.has_changed().is_ok())
    }
}

/// Times that a peer may complete a handshake and hang up before a claim fails.
const ATTEMPTS: usize = 2;

type Cell = Arc<OnceCell<Arc<Remote>>>;
type Cells = Arc<DashMap<SocketAddr, Cell>>;

/// All of them, by the address that the names of their first ranks lead to: two names of one
/// engine share a channel, of which an agent has one. Requests for one peer share a handshake,
/// and those of different peers shake hands side by side.
pub(crate) struct Remotes {
    agent: Arc<Agent>,
    /// Those of this engine's ranks.
    layouts: Arc<[CacheLayout]>,
    cells: Cells,
}

impl Remotes {
    pub(super) fn new(agent: Arc<Agent>, layouts: Arc<[CacheLayout]>) -> Self {
        Self { agent, layouts, cells: Cells::default() }
    }

    /// The engine at `address`, shaking hands with it if need be. It may turn out to be in
    /// another life than `engine`.
    pub(crate) async fn get(
        &self,
        address: &Address,
        engine: EngineEpoch,
    ) -> Result<Arc<Remote>, FetchError> {
        let targets = resolve(&self.agent, &address.first).await?;
        if let Some(known) = targets.iter().find_map(|target| self.known(*target, engine)) {
            return Ok(known);
        }
        for _ in 0..ATTEMPTS {
            let remote = self.first(address, &targets).await?;
            if remote.is_open(engine).await {
                return Ok(remote);
            }
            let gone = |_: &SocketAddr, cell: &Cell| {
                cell.get().is_some_and(|current| Arc::ptr_eq(current, &remote))
            };
            targets.iter().for_each(|target| drop(self.cells.remove_if(target, gone)));
        }
        let address = greet::name(&address.first);
        Err(FetchError::Control { address, why: ControlError::HungUp })
    }

    /// An open channel to this life of the engine.
    fn known(&self, target: SocketAddr, engine: EngineEpoch) -> Option<Arc<Remote>> {
        let remote = Arc::clone(self.cells.get(&target)?.get()?);
        (remote.engine == engine && remote.stands()).then_some(remote)
    }

    /// The first of several addresses of one engine that answers.
    async fn first(
        &self,
        address: &Address,
        targets: &[SocketAddr],
    ) -> Result<Arc<Remote>, FetchError> {
        let mut refused = FetchError::Nowhere { address: greet::name(&address.first) };
        for target in targets {
            let entered = Entered::new(&self.cells, *target);
            let connect = greet::engine(&self.agent, &self.layouts, address, *target);
            match entered.remote(connect).await {
                // The engine may listen at another of its name's addresses.
                Err(why @ FetchError::Control { .. }) => refused = why,
                ended => return ended,
            }
        }
        Err(refused)
    }
}

/// Somebody who waits for a cell. The last one who leaves it empty, by an error or by being
/// dropped, takes it away; nobody is cut off from those who come later before that.
struct Entered<'a> {
    cells: &'a Cells,
    target: SocketAddr,
    cell: Cell,
}

impl<'a> Entered<'a> {
    fn new(cells: &'a Cells, target: SocketAddr) -> Self {
        let cell = Arc::clone(&cells.entry(target).or_default());
        Self { cells, target, cell }
    }

    async fn remote(
        &self,
        connect: impl Future<Output = Result<Remote, FetchError>>,
    ) -> Result<Arc<Remote>, FetchError> {
        let connect = async || {
            let remote = connect.await?;
            remote.channels.iter().for_each(|channel| self.forget_with(channel.clone()));
            Ok(Arc::new(remote))
        };
        self.cell.get_or_try_init(connect).await.cloned()
    }

    /// Takes the engine away when one of its channels ends, as all do with the agent.
    fn forget_with(&self, mut channel: watch::Receiver<()>) {
        let (cells, target, cell) = (Arc::clone(self.cells), self.target, Arc::clone(&self.cell));
        tokio::spawn(async move {
            while channel.changed().await.is_ok() {}
            cells.remove_if(&target, |_, current| Arc::ptr_eq(current, &cell));
        });
    }
}

impl Drop for Entered<'_> {
    fn drop(&mut self) {
        // The map's reference and this one: all others are taken under the map's lock.
        let alone = |cell: &Cell| cell.get().is_none() && Arc::strong_count(cell) == 2;
        self.cells.remove_if(&self.target, |_, cell| Arc::ptr_eq(cell, &self.cell) && alone(cell));
    }
}
