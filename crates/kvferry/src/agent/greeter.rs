//! Shaking hands with every rank of a prefill engine.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;

use connector::handshake::{Handshake, compatible};
use connector::params::{Address, RankAddress};
use connector::{Acquaintance, AgentEpoch, Offer, Peer, counterparts};
use dashmap::DashMap;
use kv_layout::{BlockTable, CacheLayout, Planner, readers};
use tokio::net::{TcpStream, lookup_host};
use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use tokio::time::timeout;
use transport::session::{Role, Trust};

use super::choose::{Choice, Chooser};
use super::links::Fresh;
use super::{Command, greeting};
use crate::control::{self, ControlError, Dialled, Opened};
use crate::reach::Reach;
use crate::{Config, FetchError};

/// Ranks of one engine that are greeted at a time.
const SIDE_BY_SIDE: usize = 32;

/// Greets prefill engines for one decode agent.
#[derive(Clone)]
pub(super) struct Greeter {
    handshake: Arc<Handshake>,
    /// Those of this engine's ranks.
    layouts: Arc<[CacheLayout]>,
    commands: tokio::sync::mpsc::WeakSender<Command>,
    trust: Trust,
    reach: Arc<Reach>,
    chooser: Arc<Chooser>,
    /// Ranks with an open channel. An agent has one to each: a second one would take its place.
    known: Arc<DashMap<AgentEpoch, Arc<RemoteRank>>>,
}

/// A prefill engine that has been greeted.
pub(crate) struct Remote {
    /// All of its ranks, in their order.
    pub(crate) ranks: Vec<Arc<RemoteRank>>,
    /// Plans what this rank reads of them.
    pub(crate) planner: Planner,
}

impl Remote {
    /// Whether all of these are offers of its ranks.
    pub(super) fn has_all(&self, offers: &[Offer]) -> bool {
        let has = |offer: &Offer| self.ranks.iter().any(|rank| rank.peer.agent == offer.peer);
        offers.iter().all(has)
    }
}

/// One rank of it, as it described itself.
pub(crate) struct RemoteRank {
    pub(crate) peer: Peer,
    /// Its place in the engine, and how many ranks that has.
    rank: u32,
    ranks: u32,
    pub(crate) layout: CacheLayout,
    /// The blocks of a request that this rank has nothing of.
    pub(crate) no_blocks: Vec<BlockTable>,
}

/// What greeting an engine has led to.
pub(crate) struct Meeting {
    pub(super) remote: Remote,
    pub(super) acquaintance: Acquaintance,
    /// New channels to ranks that this one speaks to, with the provider of those that it reads.
    pub(super) channels: Vec<(Fresh, Arc<RemoteRank>, Option<Choice>)>,
}

/// One rank, with a channel if there was none before.
struct Met {
    rank: Arc<RemoteRank>,
    channel: Option<Box<Opened>>,
}

impl Greeter {
    pub(super) fn new(
        config: &Config,
        handshake: Arc<Handshake>,
        layouts: Arc<[CacheLayout]>,
        commands: tokio::sync::mpsc::WeakSender<Command>,
    ) -> Self {
        let (trust, reach) = (config.trust(), Arc::new(Reach::new(config)));
        let me = Peer { engine: handshake.engine, agent: handshake.agent };
        let chooser = Chooser::new(config, me, Arc::clone(&reach)).into();
        Self { handshake, layouts, commands, trust, reach, chooser, known: Arc::default() }
    }

    /// The channel to a rank is open from now on.
    pub(super) fn met(&self, rank: Arc<RemoteRank>) {
        self.known.insert(rank.peer.agent, rank);
    }

    /// It is not any more.
    pub(super) fn lost(&self, agent: AgentEpoch) {
        self.known.remove(&agent);
    }

    /// Shakes hands with all ranks of the engine at `address`, side by side, and keeps the
    /// channels to those that this rank speaks to: who these are follows from the shapes of all
    /// ranks of both engines.
    pub(super) async fn greet(&self, address: &Address) -> Result<Meeting, FetchError> {
        let met = self.all(address).await?;
        let theirs: Vec<&CacheLayout> = met.iter().map(|met| &met.rank.layout).collect();
        let ours: Vec<&CacheLayout> = self.layouts.iter().collect();
        let rank = self.handshake.rank;
        let planner = Planner::new(&theirs, &ours, rank.0 as usize)?;
        let spoken_to = counterparts(&readers(&theirs, &ours)?, ours.len(), rank);
        let engine = met.first().map(|met| met.rank.peer.engine).ok_or(FetchError::Stopped)?;
        let mut acquaintance = Acquaintance { engine, sources: BTreeMap::new() };
        let (mut ranks, mut channels) = (Vec::new(), Vec::new());
        for (index, Met { rank, channel }) in met.into_iter().enumerate() {
            ranks.push(Arc::clone(&rank));
            let Some(readers) = spoken_to.get(&index) else { continue };
            acquaintance.sources.insert(rank.peer.agent, readers.clone());
            if let Some(opened) = channel {
                // Whoever only tells a rank that it may free never reads it.
                let choice = match readers.is_empty() {
                    true => None,
                    false => Some(self.chooser.choose(&opened.theirs, opened.at).await?),
                };
                let commands = self.commands.upgrade().ok_or(FetchError::Stopped)?;
                channels.push((Fresh::new(*opened, commands), rank, choice));
            }
        }
        tracing::info!(
            peer = %address.first,
            ranks = ranks.len(),
            channels = channels.len(),
            "prefill engine greeted"
        );
        Ok(Meeting { remote: Remote { ranks, planner }, acquaintance, channels })
    }

    /// Every rank, in their order: the first alone, for it knows how many there are, and then
    /// the others side by side.
    async fn all(&self, address: &Address) -> Result<Vec<Met>, FetchError> {
        let ranks = address.rank_count();
        let first = self.rank(&address.first, 0, ranks).await?;
        let mut met = BTreeMap::from([(0, first)]);
        let (mut greetings, places) = (JoinSet::new(), Arc::new(Semaphore::new(SIDE_BY_SIDE)));
        for (index, at) in (1..).zip(&address.others) {
            let (greeter, at, places) = (self.clone(), at.clone(), Arc::clone(&places));
            greetings.spawn(async move {
                let _place = places.acquire().await;
                Ok::<_, FetchError>((index, greeter.rank(&at, index, ranks).await?))
            });
        }
        while let Some(greeted) = greetings.join_next().await {
            let (index, rank) = greeted.map_err(|_| FetchError::Stopped)??;
            met.insert(index, rank);
        }
        let met: Vec<Met> = met.into_values().collect();
        check_lives(&met, address)?;
        Ok(met)
    }

    /// One rank, at the first of its name's addresses that answers.
    async fn rank(&self, at: &RankAddress, index: usize, ranks: usize) -> Result<Met, FetchError> {
        let mut refused = FetchError::Nowhere { address: at.to_string() };
        for target in self.resolve(at).await? {
            match self.dial(at, target, index, ranks).await {
                Err(why @ FetchError::Control { .. }) => refused = why,
                ended => return ended,
            }
        }
        Err(refused)
    }

    async fn dial(
        &self,
        at: &RankAddress,
        target: SocketAddr,
        index: usize,
        ranks: usize,
    ) -> Result<Met, FetchError> {
        let failed =
            |why: ControlError| FetchError::Control { address: at.to_string(), why: why.into() };
        let stream = within("connection", TcpStream::connect(target)).await.map_err(failed)?;
        let greeting = greeting(Role::Decode, &self.handshake, self.trust.secret.clone());
        let greeting = greeting.map_err(|why| failed(why.into()))?;
        let known = |agent| self.known.get(&agent).map(|rank| Arc::clone(&rank));
        let certified = (at.host.as_str(), self.trust.tls.as_deref());
        let dialled = control::dial(stream, certified, greeting, &self.handshake, known).await;
        let met = match dialled.map_err(failed)? {
            Dialled::Known(rank) => Met { rank, channel: None },
            Dialled::Opened(opened) => {
                compatible(&self.handshake, &opened.theirs)?;
                Met { rank: Arc::new(RemoteRank::new(&opened.theirs)), channel: Some(opened) }
            }
        };
        check_place(&met.rank, index, ranks).map_err(failed)?;
        Ok(met)
    }

    /// The addresses of a rank that this side may connect to, of which there is at least one.
    async fn resolve(&self, at: &RankAddress) -> Result<Vec<SocketAddr>, FetchError> {
        let found = within("address", lookup_host((at.host.as_str(), at.port))).await;
        let failed =
            |why: ControlError| FetchError::Control { address: at.to_string(), why: why.into() };
        let (mut targets, mut refused) =
            (Vec::new(), FetchError::Nowhere { address: at.to_string() });
        for target in found.map_err(failed)? {
            match self.reach.check(&at.to_string(), target.ip()) {
                Ok(()) => targets.push(target),
                Err(why) => refused = why,
            }
        }
        if targets.is_empty() { Err(refused) } else { Ok(targets) }
    }
}

impl RemoteRank {
    fn new(theirs: &Handshake) -> Self {
        let nothing = || BlockTable { first_token: 0, ids: [].into() };
        let layout = theirs.layout.clone();
        let no_blocks = layout.groups.iter().map(|_| nothing()).collect();
        let peer = Peer { engine: theirs.engine, agent: theirs.agent };
        Self { peer, rank: theirs.rank.0, ranks: theirs.ranks, layout, no_blocks }
    }
}

/// The rank must be the one that the parameters call so, whether it is known already or not: its
/// share of every layer hangs on it.
fn check_place(met: &RemoteRank, index: usize, count: usize) -> Result<(), ControlError> {
    let (rank, ranks) = (met.rank, met.ranks);
    if (rank as usize, ranks as usize) == (index, count) {
        return Ok(());
    }
    Err(ControlError::Place { rank, ranks, index, count })
}

/// All ranks must be of one life of the engine. That no two of them are one agent follows from
/// their places, which an agent has one of.
fn check_lives(met: &[Met], address: &Address) -> Result<(), FetchError> {
    for (met_here, at) in met.iter().zip(address.ranks()) {
        let (first, other) = (met[0].rank.peer.engine, met_here.rank.peer.engine);
        if first != other {
            let why = ControlError::Lives { first: first.0, other: other.0 };
            return Err(FetchError::Control { address: at.to_string(), why: why.into() });
        }
    }
    Ok(())
}

async fn within<T>(
    what: &'static str,
    work: impl Future<Output = std::io::Result<T>>,
) -> Result<T, ControlError> {
    let done = timeout(control::HANDSHAKE, work).await;
    Ok(done.map_err(|_| ControlError::Late { what })??)
}
