use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, poll};
use strided::{BlockCopy, Blocks, Pattern, Region, RegionId};
use transport::memory::HostMemory;
use transport::session::{Tls, Trust};
use transport::shm::{ShmConfig, ShmEndpoint};
use transport::tcp::{TcpConfig, TcpEndpoint};
use transport::{
    AgentId, BoundRegion, Card, Endpoint, Event, GrantToken, Memory, Outcome, PeerId, Transfer,
    TransferId,
};

use crate::other::{Other, fill};
use crate::table::Taken;
use crate::workload::{Workload, word};
use crate::{Fallible, Mover};

pub const TOKEN: GrantToken = GrantToken(1);
pub const READER: AgentId = AgentId(2);

/// Where the blocks of a workload go.
pub struct Target {
    pub memory: Arc<HostMemory>,
    moves: Vec<(usize, usize)>,
    block: usize,
}

impl Target {
    pub fn new(workload: &Workload, memory: Arc<HostMemory>) -> Self {
        Self { memory, moves: workload.moves(), block: workload.block }
    }

    fn word(&self, byte: usize) -> Option<&AtomicU64> {
        self.memory.words().get(byte / 8)
    }

    pub fn poison(&self) {
        for (_, target) in &self.moves {
            for byte in (*target..target + self.block).step_by(8) {
                if let Some(place) = self.word(byte) {
                    place.store(0xeeee_eeee_eeee_eeee, Ordering::Relaxed);
                }
            }
        }
    }

    pub fn wrong_words(&self) -> usize {
        let wrong = |&(source, target): &(usize, usize)| {
            let right = |at: &usize| {
                let found = self.word(target + at);
                found.map(|place| place.load(Ordering::Relaxed)) == Some(word((source + at) / 8))
            };
            (0..self.block).step_by(8).filter(|at| !right(at)).count()
        };
        self.moves.iter().map(wrong).sum()
    }
}

/// A reader of this crate, and the source that has granted it one set of blocks.
pub struct Ours {
    source: Source,
    reader: Box<dyn Endpoint>,
    peer: PeerId,
    target: Target,
    copies: Vec<BlockCopy>,
    next: u64,
    name: &'static str,
}

/// What must live while its blocks are read.
enum Source {
    Here(Box<dyn Endpoint>),
    Other(Arc<Other>),
}

impl Ours {
    pub fn new(workload: &Workload, tls: Option<Arc<Tls>>) -> Fallible<Self> {
        let name = if tls.is_some() { "ours, TLS" } else { "ours" };
        let from = Arc::new(HostMemory::new(workload.pool_bytes())?);
        fill(from.words());
        let mut source = endpoint(AgentId(1), tls.clone())?;
        let reader = endpoint(READER, tls)?;
        source.register(from, &regions(workload))?;
        let granted = copies(workload)?.iter().map(|copy| copy.source().clone()).collect();
        source.grant(READER, TOKEN, granted)?;
        let card = source.card();
        Self::reading(workload, name, Source::Here(Box::new(source)), Box::new(reader), &card)
    }

    /// Out of another process.
    pub fn shm(workload: &Workload, other: &Arc<Other>, copiers: Option<u16>) -> Fallible<Self> {
        let mut config = ShmConfig::new(READER, 0);
        config.copiers = copiers.unwrap_or(config.copiers);
        let name = if config.copiers == 1 { "ours, shm, 1 thread" } else { "ours, shm" };
        let reader = Box::new(ShmEndpoint::bind(config)?);
        let source = Source::Other(Arc::clone(other));
        Self::reading(workload, name, source, reader, &other.card)
    }

    fn reading(
        workload: &Workload,
        name: &'static str,
        source: Source,
        mut reader: Box<dyn Endpoint>,
        card: &Card,
    ) -> Fallible<Self> {
        let to = Arc::new(HostMemory::new(workload.pool_bytes())?);
        reader.register(Arc::clone(&to) as Arc<dyn Memory>, &regions(workload))?;
        let (peer, copies) = (reader.connect(card)?, copies(workload)?);
        let target = Target::new(workload, to);
        Ok(Self { source, reader, peer, target, copies, next: 0, name })
    }

    /// Reads all blocks, asleep until they are there.
    pub fn read(&mut self) -> Fallible<()> {
        self.submit(self.copies.clone())?;
        self.wait(1, || ())
    }

    /// The blocks in so many parts, each of which has some of every region.
    pub fn shares(&self, parts: usize) -> Fallible<Vec<Vec<BlockCopy>>> {
        let part = |number: usize| {
            let of = |copy: &BlockCopy| {
                let some = |blocks: &Blocks| {
                    let (ids, len) = (blocks.ids(), blocks.ids().len());
                    let ids = &ids[len * number / parts..len * (number + 1) / parts];
                    Blocks::new(blocks.region(), ids, *blocks.pattern())
                };
                Ok(BlockCopy::new(some(copy.source())?, some(copy.target())?)?)
            };
            self.copies.iter().map(of).collect()
        };
        (0..parts).map(part).collect()
    }

    /// Reads all of these at once. Gives when each was there.
    pub fn read_together(&mut self, shares: &[Vec<BlockCopy>]) -> Fallible<Vec<Duration>> {
        let (start, mut each) = (Instant::now(), Vec::new());
        for copies in shares {
            self.submit(copies.clone())?;
        }
        self.wait(shares.len(), || each.push(start.elapsed()))?;
        Ok(each)
    }

    fn submit(&mut self, copies: Vec<BlockCopy>) -> Fallible<()> {
        self.next += 1;
        let (id, timeout) = (TransferId(self.next), Duration::from_secs(60));
        let transfer = Transfer { id, peer: self.peer, token: TOKEN, copies, timeout };
        Ok(self.reader.submit(transfer).map_err(|error| error.why)?)
    }

    fn wait(&mut self, mut transfers: usize, mut done: impl FnMut()) -> Fallible<()> {
        let mut events = Vec::new();
        while transfers > 0 {
            let ready = PollFd::from_borrowed_fd(self.reader.ready_fd(), PollFlags::IN);
            poll(&mut [ready], None)?;
            self.reader.poll(&mut events);
            for event in events.drain(..) {
                let Event::Completion { outcome: Outcome::Done, .. } = event else {
                    return Err(format!("{event:?} from {:?}", self.source.card()).into());
                };
                done();
                transfers -= 1;
            }
        }
        Ok(())
    }
}

impl Source {
    fn card(&self) -> Card {
        match self {
            Self::Here(endpoint) => endpoint.card(),
            Self::Other(other) => other.card.clone(),
        }
    }
}

impl Mover for Ours {
    fn name(&self) -> String {
        self.name.to_owned()
    }

    fn poison(&mut self) {
        self.target.poison();
    }

    fn run(&mut self) -> Fallible<Taken> {
        Taken::by(|| self.read())
    }

    fn wrong_words(&self) -> usize {
        self.target.wrong_words()
    }
}

fn endpoint(agent: AgentId, tls: Option<Arc<Tls>>) -> Fallible<TcpEndpoint> {
    let listen = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
    let trust = Trust { secret: None, tls };
    Ok(TcpEndpoint::bind(TcpConfig { trust, ..TcpConfig::new(agent, 0, listen) })?)
}

pub fn regions(workload: &Workload) -> Vec<BoundRegion> {
    let region = Region { block_stride: workload.block as u64, block_count: workload.pool };
    let bound = |id: u32| BoundRegion {
        id: RegionId(id),
        offset: u64::from(id) * workload.region_bytes() as u64,
        region,
    };
    (0..workload.regions).map(bound).collect()
}

pub fn copies(workload: &Workload) -> Fallible<Vec<BlockCopy>> {
    let page = Pattern::contiguous(0, workload.block as u64)?;
    let sources: Arc<[u32]> = workload.source_ids().into();
    let targets: Arc<[u32]> = workload.target_ids().into();
    let copy = |region| {
        let source = Blocks::new(RegionId(region), Arc::clone(&sources), page)?;
        let target = Blocks::new(RegionId(region), Arc::clone(&targets), page)?;
        Ok(BlockCopy::new(source, target)?)
    };
    (0..workload.regions).map(copy).collect()
}
