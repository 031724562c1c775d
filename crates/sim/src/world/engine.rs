//! One engine: a scheduler that steps, its workers, its host's clock and its memory.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use connector::params::{Address, RankAddress};
use connector::{
    AgentEpoch, Bounds, ClaimId, EngineEpoch, Event, Offer, Peer, Rank, ReadToken, Scheduler,
    Worker,
};
use rand::RngExt;
use rand_chacha::ChaCha8Rng;

use super::clock::Clock;
use super::decode::DecodeDesk;
use super::endpoint::ToRead;
use super::events::Who;
use super::grants::Granted;
use super::memory::Memory;
use super::prefill::PrefillDesk;

/// One process of one worker.
#[derive(Debug)]
pub(crate) struct Agent {
    pub(crate) life: u32,
    pub(crate) up: bool,
    pub(crate) peer: Peer,
    pub(crate) worker: Worker,
    /// The open connection to each peer.
    pub(crate) links: BTreeMap<AgentEpoch, usize>,
    /// When it is to be woken next.
    pub(crate) wake: Option<u64>,
    /// It stands still until then.
    pub(crate) paused: u64,
    /// When the last orders reach it.
    pub(crate) ordered: u64,
    /// P: what may be read.
    pub(crate) granted: BTreeMap<ReadToken, Granted>,
    /// D: what it fetches.
    pub(crate) fetching: BTreeMap<ClaimId, Fetching>,
    /// D: engines that it is greeting.
    pub(crate) greeting: BTreeSet<usize>,
    /// D: reads that wait for room in the endpoint.
    pub(crate) waiting: VecDeque<(ClaimId, AgentEpoch)>,
}

/// What a worker of D knows of a request beside its machine.
#[derive(Debug, Default)]
pub(crate) struct Fetching {
    pub(crate) offers: Option<Vec<Offer>>,
    /// Since when it waits for P: for an offer, and then for an answer to its commit.
    pub(crate) since: u64,
    /// The engine has given blocks.
    pub(crate) allocated: bool,
    pub(crate) to_read: BTreeMap<AgentEpoch, ToRead>,
    /// Of each rank of P, when its last block was taken.
    pub(crate) taken: BTreeMap<usize, u64>,
    /// A planted mistake has told the engine that this has ended.
    pub(crate) told: bool,
}

#[derive(Debug)]
pub(crate) struct Engine {
    pub(crate) life: u32,
    pub(crate) up: bool,
    pub(crate) epoch: EngineEpoch,
    pub(crate) scheduler: Scheduler,
    pub(crate) clock: Clock,
    pub(crate) agents: Vec<Agent>,
    pub(crate) memory: Memory,
    /// What its workers have said since the last step.
    pub(crate) inbox: Vec<(Rank, Event)>,
    pub(crate) steps: Steps,
    pub(crate) prefill: PrefillDesk,
    pub(crate) decode: DecodeDesk,
}

/// When a scheduler steps, and whether its workers are all there.
#[derive(Debug, Default)]
pub(crate) struct Steps {
    pub(crate) at: Option<u64>,
    pub(crate) paused: u64,
    /// The end of the last time that anything of this engine stood still.
    pub(crate) stood_until: u64,
    /// Workers whose death the scheduler has not noticed.
    pub(crate) dead: BTreeSet<usize>,
    /// Its memory is being taken away; the workers that nobody can touch any more.
    pub(crate) asleep: Option<BTreeSet<usize>>,
}

/// What stays of an engine over its lives.
#[derive(Clone, Debug)]
pub(crate) struct Place {
    pub(crate) index: usize,
    pub(crate) blocks: u32,
    /// Of each rank, in how many parts its blocks are filled.
    pub(crate) parts: Vec<usize>,
    pub(crate) clock: Clock,
}

impl Engine {
    /// An engine that starts, for the `life`th time, its workers for the `lives`th.
    pub(crate) fn start(
        place: &Place,
        life: u32,
        lives: &[u32],
        random: &mut ChaCha8Rng,
    ) -> Option<Self> {
        let epoch = EngineEpoch(random.random());
        let address = address(place.index, place.parts.len());
        let agents =
            lives.iter().enumerate().map(|(rank, life)| Agent::start(epoch, rank, *life, random));
        let agents = agents.collect::<Option<Vec<_>>>()?;
        Some(Self {
            life,
            up: true,
            epoch,
            scheduler: Scheduler::new(epoch, address).ok()?,
            clock: place.clock,
            agents,
            memory: Memory::new(place.blocks, &place.parts, random.random()),
            inbox: Vec::new(),
            steps: Steps::default(),
            prefill: PrefillDesk::default(),
            decode: DecodeDesk::default(),
        })
    }
}

impl Agent {
    pub(crate) fn start(
        engine: EngineEpoch,
        rank: usize,
        life: u32,
        random: &mut ChaCha8Rng,
    ) -> Option<Self> {
        let peer = Peer { engine, agent: AgentEpoch(random.random()) };
        let rank = Rank(u32::try_from(rank).ok()?);
        Some(Self {
            life,
            up: true,
            peer,
            worker: Worker::new(peer, rank, Bounds::default(), random.random()).ok()?,
            links: BTreeMap::new(),
            wake: None,
            paused: 0,
            ordered: 0,
            granted: BTreeMap::new(),
            fetching: BTreeMap::new(),
            greeting: BTreeSet::new(),
            waiting: VecDeque::new(),
        })
    }
}

/// Every life of an engine answers at the same place: the port says which engine it is.
fn address(engine: usize, ranks: usize) -> Address {
    let port = u16::try_from(engine + 1).unwrap_or(u16::MAX);
    let at = |rank| RankAddress { host: format!("rank{rank}"), port };
    let tp_size = u32::try_from(ranks).unwrap_or(u32::MAX);
    let others = (1..ranks).map(at).collect();
    Address { engine_id: format!("p{engine}"), tp_size, first: at(0), others }
}

/// Which engine answers at an address.
pub(crate) fn engine_at(address: &Address) -> usize {
    usize::from(address.first.port).saturating_sub(1)
}

impl Who {
    pub(crate) fn of(engine: usize, rank: usize, agent: &Agent) -> Self {
        Self { engine, rank, life: agent.life }
    }
}
