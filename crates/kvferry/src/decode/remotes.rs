//! Prefill engines that this agent has shaken hands with.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use connector::handshake::{Handshake, compatible};
use connector::params::Address;
use connector::{AgentEpoch, EngineEpoch};
use dashmap::DashMap;
use kv_layout::CacheLayout;
use tokio::net::{TcpStream, lookup_host};
use tokio::sync::{OnceCell, watch};
use tokio::time::timeout;
use transport::{AgentId, Card};

use crate::FetchError;
use crate::agent::{self, Agent};
use crate::control::{self, ControlError};

/// The provider that this side has.
const TCP: &str = "tcp";

/// The end of a channel is seen within this time after the other side has closed it.
const MOMENT: Duration = Duration::from_secs(1);

/// A prefill engine with an open control channel.
pub(crate) struct Remote {
    pub(crate) engine: EngineEpoch,
    pub(crate) agent: AgentEpoch,
    pub(crate) layout: CacheLayout,
    /// Ends with the channel.
    closed: watch::Receiver<()>,
}

impl Remote {
    /// Whether the channel stands. One to another life of the engine than is asked for, which
    /// may be about to end, gets a moment for that.
    async fn is_open(&self, engine: EngineEpoch) -> bool {
        if self.engine != engine {
            let _ = timeout(MOMENT, self.closed.clone().changed()).await;
        }
        self.closed.has_changed().is_ok()
    }
}

/// Times that a peer may complete a handshake and hang up before a claim fails.
const ATTEMPTS: usize = 2;

type Cell = Arc<OnceCell<Arc<Remote>>>;
type Cells = Arc<DashMap<SocketAddr, Cell>>;

/// All of them, by the address that their names lead to: two names of one engine share a
/// channel, of which an agent has one. Requests for one peer share a handshake, and those of
/// different peers shake hands side by side.
#[derive(Default)]
pub(crate) struct Remotes {
    cells: Cells,
}

impl Remotes {
    /// The engine at `address`, shaking hands with it if need be. It may turn out to be in
    /// another life than `engine`.
    pub(crate) async fn get(
        &self,
        agent: &Agent,
        address: &Address,
        engine: EngineEpoch,
    ) -> Result<Arc<Remote>, FetchError> {
        let name = format!("{}:{}", address.host, address.port);
        let targets = resolve(&name, address).await?;
        if let Some(known) = targets.iter().find_map(|target| self.known(*target, engine)) {
            return Ok(known);
        }
        for _ in 0..ATTEMPTS {
            let remote = self.first(agent, &name, &targets).await?;
            if remote.is_open(engine).await {
                return Ok(remote);
            }
            let gone = |_: &SocketAddr, cell: &Cell| {
                cell.get().is_some_and(|current| Arc::ptr_eq(current, &remote))
            };
            targets.iter().for_each(|target| drop(self.cells.remove_if(target, gone)));
        }
        Err(FetchError::Control { address: name, why: ControlError::HungUp })
    }

    /// An open channel to this life of the engine.
    fn known(&self, target: SocketAddr, engine: EngineEpoch) -> Option<Arc<Remote>> {
        let remote = Arc::clone(self.cells.get(&target)?.get()?);
        (remote.engine == engine && remote.closed.has_changed().is_ok()).then_some(remote)
    }

    /// The first of several addresses of one engine that answers.
    async fn first(
        &self,
        agent: &Agent,
        name: &str,
        targets: &[SocketAddr],
    ) -> Result<Arc<Remote>, FetchError> {
        let mut refused = FetchError::NotLoopback { address: name.to_owned() };
        for target in targets {
            let entered = Entered::new(&self.cells, *target);
            match entered.remote(agent, name).await {
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

    async fn remote(&self, agent: &Agent, name: &str) -> Result<Arc<Remote>, FetchError> {
        let connect = async || {
            let remote = connect(agent, name, self.target).await?;
            let (cells, target, cell) =
                (Arc::clone(self.cells), self.target, Arc::clone(&self.cell));
            let mut closed = remote.closed.clone();
            // It ends with the channel, which ends with the agent.
            tokio::spawn(async move {
                while closed.changed().await.is_ok() {}
                cells.remove_if(&target, |_, current| Arc::ptr_eq(current, &cell));
            });
            Ok(remote)
        };
        self.cell.get_or_try_init(connect).await.cloned()
    }
}

impl Drop for Entered<'_> {
    fn drop(&mut self) {
        // The map's reference and this one: all others are taken under the map's lock.
        let alone = |cell: &Cell| cell.get().is_none() && Arc::strong_count(cell) == 2;
        self.cells.remove_if(&self.target, |_, cell| Arc::ptr_eq(cell, &self.cell) && alone(cell));
    }
}

async fn connect(agent: &Agent, name: &str, target: SocketAddr) -> Result<Arc<Remote>, FetchError> {
    let failed = |why: ControlError| FetchError::Control { address: name.to_owned(), why };
    let stream = within("connection", TcpStream::connect(target)).await.map_err(failed)?;
    let hello = agent.hello().map_err(|why| failed(why.into()))?;
    let opened = control::dial(stream, &hello, &agent.handshake).await.map_err(failed)?;
    let theirs = opened.theirs.clone();
    compatible(&agent.handshake, &theirs)?;
    let card = card(&theirs).ok_or(FetchError::NoProvider)?;
    let attached = agent::attach(&agent.commands, opened, Some(card)).await;
    let (connected, closed) = attached.ok_or(FetchError::Stopped)?;
    connected?;
    tracing::info!(
        peer = %name,
        agent = theirs.agent.0,
        provider = TCP,
        reason = "the only provider of this build",
        "prefill engine connected"
    );
    let Handshake { engine, agent, layout, .. } = theirs;
    Ok(Arc::new(Remote { engine, agent, layout, closed }))
}

/// The addresses that stay on this host: peers do not prove who they are yet.
async fn resolve(name: &str, address: &Address) -> Result<Vec<SocketAddr>, FetchError> {
    let found = within("address", lookup_host((address.host.as_str(), address.port))).await;
    let found = found.map_err(|why| FetchError::Control { address: name.to_owned(), why })?;
    let local: Vec<_> = found.filter(|found| found.ip().is_loopback()).collect();
    if local.is_empty() {
        return Err(FetchError::NotLoopback { address: name.to_owned() });
    }
    Ok(local)
}

async fn within<T>(
    what: &'static str,
    work: impl Future<Output = std::io::Result<T>>,
) -> Result<T, ControlError> {
    let done = timeout(control::HANDSHAKE, work).await;
    Ok(done.map_err(|_| ControlError::Late { what })??)
}

fn card(theirs: &Handshake) -> Option<Card> {
    let card = theirs.cards.iter().find(|card| card.provider == TCP)?;
    let address = card.address.clone();
    Some(Card { provider: TCP, agent: AgentId(card.agent.0), address })
}
