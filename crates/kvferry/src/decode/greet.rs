//! Shaking hands with every rank of a prefill engine.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;

use connector::handshake::{Handshake, compatible};
use connector::params::{Address, RankAddress};
use connector::{AgentEpoch, counterparts};
use kv_layout::{BlockTable, CacheLayout, readers};
use tokio::net::{TcpStream, lookup_host};
use tokio::task::JoinSet;
use tokio::time::timeout;
use transport::{AgentId, Card};

use super::remotes::{Remote, RemoteRank};
use crate::FetchError;
use crate::agent::{self, Agent};
use crate::control::{self, ControlError, Opened};

/// The provider that this side has.
const TCP: &str = "tcp";

/// Shakes hands with all ranks of the engine at `address`, whose first is at `first`, side by
/// side, and keeps the channels to those that this rank speaks to: who these are follows from
/// the shapes of all ranks of both engines, whose layouts here are `ours`.
pub(super) async fn engine(
    agent: &Arc<Agent>,
    ours: &[CacheLayout],
    address: &Address,
    first: SocketAddr,
) -> Result<Remote, FetchError> {
    let opened = all(agent, address, first).await?;
    let theirs: Vec<&CacheLayout> = opened.iter().map(|rank| &rank.theirs.layout).collect();
    let own: Vec<&CacheLayout> = ours.iter().collect();
    let readers = readers(&theirs, &own)?;
    let spoken_to = counterparts(&readers, own.len(), agent.handshake.rank);
    let engine = opened.first().map(|rank| rank.theirs.engine).ok_or(FetchError::Stopped)?;
    let mut remote =
        Remote { engine, ranks: Vec::new(), sources: BTreeMap::new(), channels: Vec::new() };
    for (index, opened) in opened.into_iter().enumerate() {
        let Handshake { agent: peer, ref layout, .. } = opened.theirs;
        remote.ranks.push(RemoteRank::new(peer, layout.clone()));
        let Some(readers) = spoken_to.get(&index) else { continue };
        // Whoever only tells a rank that it may free never reads it.
        let card = if readers.is_empty() { None } else { Some(card(agent, &opened)?) };
        let attached = agent::attach(&agent.commands, opened, card).await;
        let (connected, closed) = attached.ok_or(FetchError::Stopped)?;
        connected?;
        remote.sources.insert(peer, readers.clone());
        remote.channels.push(closed);
    }
    tracing::info!(
        peer = %name(&address.first),
        ranks = remote.ranks.len(),
        channels = remote.channels.len(),
        provider = TCP,
        reason = "the only provider of this build",
        "prefill engine connected"
    );
    Ok(remote)
}

impl RemoteRank {
    fn new(agent: AgentEpoch, layout: CacheLayout) -> Self {
        let nothing = || BlockTable { first_token: 0, ids: [].into() };
        let no_blocks = layout.groups.iter().map(|_| nothing()).collect();
        Self { agent, layout, no_blocks }
    }
}

/// A channel to every rank, in their order.
async fn all(
    agent: &Arc<Agent>,
    address: &Address,
    first: SocketAddr,
) -> Result<Vec<Opened>, FetchError> {
    let mut greetings = JoinSet::new();
    for (index, at) in address.ranks().enumerate() {
        let (agent, at) = (Arc::clone(agent), at.clone());
        let (target, ranks) = ((index == 0).then_some(first), address.rank_count());
        greetings.spawn(async move {
            let opened = rank(&agent, &at, target).await?;
            let failed = |why| FetchError::Control { address: name(&at), why };
            check_place(&opened.theirs, index, ranks).map_err(failed)?;
            Ok::<_, FetchError>((index, opened))
        });
    }
    let mut opened = BTreeMap::new();
    while let Some(greeted) = greetings.join_next().await {
        let (index, rank) = greeted.map_err(|_| FetchError::Stopped)??;
        opened.insert(index, rank);
    }
    let opened: Vec<Opened> = opened.into_values().collect();
    check_lives(&opened, address)?;
    Ok(opened)
}

/// The rank must be the one that the parameters call so: its share of every layer hangs on it.
fn check_place(theirs: &Handshake, index: usize, count: usize) -> Result<(), ControlError> {
    let (rank, ranks) = (theirs.rank.0, theirs.ranks);
    if (rank as usize, ranks as usize) == (index, count) {
        return Ok(());
    }
    Err(ControlError::Place { rank, ranks, index, count })
}

/// All ranks must be of one life of the engine.
fn check_lives(opened: &[Opened], address: &Address) -> Result<(), FetchError> {
    for (rank, at) in opened.iter().zip(address.ranks()) {
        let (first, other) = (opened[0].theirs.engine, rank.theirs.engine);
        if first != other {
            let why = ControlError::Lives { first: first.0, other: other.0 };
            return Err(FetchError::Control { address: name(at), why });
        }
    }
    Ok(())
}

/// A channel to one rank: at `target`, or at the first of its name's addresses that answers.
async fn rank(
    agent: &Agent,
    at: &RankAddress,
    target: Option<SocketAddr>,
) -> Result<Opened, FetchError> {
    let targets = match target {
        Some(target) => vec![target],
        None => resolve(agent, at).await?,
    };
    let mut refused = FetchError::Nowhere { address: name(at) };
    for target in targets {
        match greet(agent, at, target).await {
            Err(why @ FetchError::Control { .. }) => refused = why,
            ended => return ended,
        }
    }
    Err(refused)
}

async fn greet(agent: &Agent, at: &RankAddress, target: SocketAddr) -> Result<Opened, FetchError> {
    let failed = |why: ControlError| FetchError::Control { address: name(at), why };
    let stream = within("connection", TcpStream::connect(target)).await.map_err(failed)?;
    let greeting = agent.greeting().map_err(|why| failed(why.into()))?;
    let opened = control::dial(stream, greeting, &agent.handshake).await.map_err(failed)?;
    compatible(&agent.handshake, &opened.theirs)?;
    Ok(opened)
}

/// The address as people write it.
pub(super) fn name(at: &RankAddress) -> String {
    format!("{}:{}", at.host, at.port)
}

/// The addresses of a rank that this side may connect to, of which there is at least one.
pub(super) async fn resolve(
    agent: &Agent,
    at: &RankAddress,
) -> Result<Vec<SocketAddr>, FetchError> {
    let found = within("address", lookup_host((at.host.as_str(), at.port))).await;
    let found = found.map_err(|why| FetchError::Control { address: name(at), why })?;
    let (mut targets, mut refused) = (Vec::new(), FetchError::Nowhere { address: name(at) });
    for target in found {
        match agent.reach.check(&name(at), target.ip()) {
            Ok(()) => targets.push(target),
            Err(why) => refused = why,
        }
    }
    if targets.is_empty() { Err(refused) } else { Ok(targets) }
}

async fn within<T>(
    what: &'static str,
    work: impl Future<Output = std::io::Result<T>>,
) -> Result<T, ControlError> {
    let done = timeout(control::HANDSHAKE, work).await;
    Ok(done.map_err(|_| ControlError::Late { what })??)
}

/// Where the blocks of a peer are, if this side may go there.
fn card(agent: &Agent, opened: &Opened) -> Result<Card, FetchError> {
    let card = opened.theirs.cards.iter().find(|card| card.provider == TCP);
    let card = card.ok_or(FetchError::NoProvider)?;
    let address = match card.address.parse() {
        Ok(address) => agent.reach.data(address, opened.at)?.to_string(),
        // The provider says what is wrong with it.
        Err(_) => card.address.clone(),
    };
    Ok(Card { provider: TCP, agent: AgentId(card.agent.0), address })
}
