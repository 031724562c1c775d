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

/// All of them, by address. Requests for one peer share a handshake, and those of different
/// peers shake hands side by side.
#[derive(Default)]
pub(crate) struct Remotes {
    by_address: DashMap<(String, u16), Arc<OnceCell<Arc<Remote>>>>,
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
        let key = (address.host.clone(), address.port);
        loop {
            let cell = Arc::clone(&self.by_address.entry(key.clone()).or_default());
            let remote = cell.get_or_try_init(|| connect(agent, address)).await?;
            if remote.is_open(engine).await {
                return Ok(Arc::clone(remote));
            }
            self.by_address.remove_if(&key, |_, current| Arc::ptr_eq(current, &cell));
        }
    }
}

async fn connect(agent: &Agent, address: &Address) -> Result<Arc<Remote>, FetchError> {
    let name = format!("{}:{}", address.host, address.port);
    let failed = |why: ControlError| FetchError::Control { address: name.clone(), why };
    let targets = resolve(&name, address).await?;
    let stream = TcpStream::connect(&targets[..]).await.map_err(|why| failed(why.into()))?;
    let opened = control::dial(stream, &agent.hello, &agent.handshake).await.map_err(failed)?;
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
    let found = lookup_host((address.host.as_str(), address.port)).await;
    let found =
        found.map_err(|why| FetchError::Control { address: name.to_owned(), why: why.into() })?;
    let local: Vec<_> = found.filter(|found| found.ip().is_loopback()).collect();
    if local.is_empty() {
        return Err(FetchError::NotLoopback { address: name.to_owned() });
    }
    Ok(local)
}

fn card(theirs: &Handshake) -> Option<Card> {
    let card = theirs.cards.iter().find(|card| card.provider == TCP)?;
    let address = card.address.clone();
    Some(Card { provider: TCP, agent: AgentId(card.agent.0), address })
}
