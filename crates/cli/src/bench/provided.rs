//! A provider's endpoint that reads.

use std::sync::Arc;
use std::time::{Duration, Instant};

use kvferry::transport::memory::HostMemory;
use kvferry::transport::{
    AgentId, BoundRegion, Card, Endpoint, Event, GrantToken, Memory, Outcome, PeerId, Transfer,
    TransferId,
};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use strided::{BlockCopy, Blocks, Pattern, Region, RegionId};

use super::bytes;
use super::case::{Case, Kind};
use super::providers::Provider;
use super::usage::Taken;
use super::words::CardWords;
use super::workload::{Move, Side, Workload};
use crate::failure::{Code, Failure};

/// The one permission of a pool.
pub(super) const TOKEN: GrantToken = GrantToken(1);

/// Far above what any workload takes.
const PATIENCE: Duration = Duration::from_secs(60);

/// What the reader's cases write into.
pub(super) struct Target {
    pub(super) memory: Arc<HostMemory>,
    pub(super) moves: Arc<[Move]>,
    pub(super) block: usize,
}

impl Target {
    pub(super) fn poison(&self) {
        bytes::poison(self.memory.words(), &self.moves, self.block);
    }

    pub(super) fn wrong_bytes(&self) -> u64 {
        bytes::wrong(self.memory.words(), &self.moves, self.block)
    }
}

/// An endpoint, connected when first used: that is a part of what its first transfer takes.
pub(super) struct Provided {
    provider: &'static Provider,
    endpoint: Box<dyn Endpoint>,
    card: Card,
    peer: Option<PeerId>,
    ids: [Arc<[u32]>; 2],
    workload: Workload,
    target: Arc<Target>,
    transfers: u64,
}

impl Provided {
    pub(super) fn new(
        provider: &'static Provider,
        mut endpoint: Box<dyn Endpoint>,
        card: CardWords,
        (workload, seed): (&Workload, u64),
        target: &Arc<Target>,
    ) -> Result<Self, Failure> {
        let memory = Arc::clone(&target.memory) as Arc<dyn Memory>;
        endpoint.register(memory, &regions(workload)).map_err(failed)?;
        let ids = [Side::Source, Side::Target].map(|side| workload.ids(side, seed).into());
        let CardWords { agent, address } = card;
        let card = Card { provider: provider.card, agent: AgentId(agent), address };
        let target = Arc::clone(target);
        let workload = workload.clone();
        Ok(Self { provider, endpoint, card, peer: None, ids, workload, target, transfers: 0 })
    }

    /// Reads all blocks, asleep until they are there. Gives when the transfer was on its way.
    fn read(&mut self) -> Result<Instant, Failure> {
        let peer = match self.peer {
            Some(peer) => peer,
            None => self.endpoint.connect(&self.card).map_err(lost)?,
        };
        self.peer = Some(peer);
        self.transfers += 1;
        let id = TransferId(self.transfers);
        let copies = copies(&self.workload, &self.ids).map_err(failed)?;
        let transfer = Transfer { id, peer, token: TOKEN, copies, timeout: PATIENCE };
        self.endpoint.submit(transfer).map_err(|error| failed(error.why))?;
        let posted = Instant::now();
        let mut events = Vec::new();
        while events.is_empty() {
            self.sleep()?;
            self.endpoint.poll(&mut events);
        }
        match events.as_slice() {
            [Event::Completion { outcome: Outcome::Done, .. }] => Ok(posted),
            [
                Event::PeerDown { why, .. }
                | Event::Completion { outcome: Outcome::Failed(why), .. },
                ..,
            ] => Err(self.not_read(why)),
            [first, ..] => Err(self.not_read(&format!("{first:?}"))),
            [] => Err(self.not_read(&"nothing was said")),
        }
    }

    fn not_read(&self, why: &dyn std::fmt::Display) -> Failure {
        lost(format!("the source cannot be read over {}: {why}", self.provider.name))
    }

    fn sleep(&self) -> Result<(), Failure> {
        let mut ready = [PollFd::from_borrowed_fd(self.endpoint.ready_fd(), PollFlags::IN)];
        let patience = Timespec::try_from(2 * PATIENCE).ok();
        match poll(&mut ready, patience.as_ref()) {
            Ok(0) => Err(self.not_read(&"nothing comes")),
            Ok(_) | Err(rustix::io::Errno::INTR) => Ok(()),
            Err(why) => Err(failed(why)),
        }
    }
}

impl Case for Provided {
    fn name(&self) -> &str {
        self.provider.name
    }

    fn kind(&self) -> Kind {
        self.provider.kind
    }

    fn is_limit(&self) -> bool {
        false
    }

    fn poison(&mut self) {
        self.target.poison();
    }

    fn run(&mut self) -> Result<Taken, Failure> {
        let (start, mut posted) = (Instant::now(), None);
        let taken = Taken::by(|| {
            posted = Some(self.read()?.duration_since(start));
            Ok(())
        })?;
        Ok(Taken { posted, ..taken })
    }

    fn wrong_bytes(&self) -> u64 {
        self.target.wrong_bytes()
    }
}

pub(super) fn regions(workload: &Workload) -> Vec<BoundRegion> {
    let region = Region { block_stride: workload.block.into(), block_count: workload.pool };
    let bound = |id: u32| BoundRegion {
        id: RegionId(id),
        offset: u64::from(id) * workload.region_bytes(),
        region,
    };
    (0..workload.regions).map(bound).collect()
}

/// The blocks of one side, region by region.
pub(super) fn blocks(workload: &Workload, ids: &Arc<[u32]>) -> Result<Vec<Blocks>, strided::Error> {
    let page = Pattern::contiguous(0, workload.block.into())?;
    (0..workload.regions).map(|id| Blocks::new(RegionId(id), Arc::clone(ids), page)).collect()
}

fn copies(workload: &Workload, ids: &[Arc<[u32]>; 2]) -> Result<Vec<BlockCopy>, strided::Error> {
    let [sources, targets] = ids.each_ref().map(|ids| blocks(workload, ids));
    sources?.into_iter().zip(targets?).map(|(from, to)| BlockCopy::new(from, to)).collect()
}

fn failed(why: impl ToString) -> Failure {
    Failure::new(Code::Failed, why)
}

fn lost(why: impl ToString) -> Failure {
    Failure::new(Code::Peer, why)
}
