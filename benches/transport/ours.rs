use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, poll};
use strided::{BlockCopy, Blocks, Pattern, Region, RegionId};
use transport::memory::HostMemory;
use transport::session::{Tls, Trust};
use transport::tcp::{TcpConfig, TcpEndpoint};
use transport::{
    AgentId, BoundRegion, Endpoint, Event, GrantToken, Memory, Outcome, PeerId, Transfer,
    TransferId,
};

use crate::table::Taken;
use crate::workload::{Workload, word};
use crate::{Fallible, Mover};

const TOKEN: GrantToken = GrantToken(1);
const READER: AgentId = AgentId(2);

/// Two endpoints of this crate, with one granted set of blocks.
pub struct Ours {
    source: TcpEndpoint,
    reader: TcpEndpoint,
    peer: PeerId,
    target: Arc<HostMemory>,
    copies: Vec<BlockCopy>,
    moves: Vec<(usize, usize)>,
    block: usize,
    next: u64,
    name: &'static str,
}

impl Ours {
    pub fn new(workload: &Workload, tls: Option<Arc<Tls>>) -> Fallible<Self> {
        let name = if tls.is_some() { "ours, TLS" } else { "ours" };
        let from = Arc::new(HostMemory::new(workload.pool_bytes())?);
        let to = Arc::new(HostMemory::new(workload.pool_bytes())?);
        for (index, place) in from.words().iter().enumerate() {
            place.store(word(index), Ordering::Relaxed);
        }
        let mut source = endpoint(AgentId(1), tls.clone())?;
        let mut reader = endpoint(READER, tls)?;
        source.register(from, &regions(workload))?;
        reader.register(Arc::clone(&to) as Arc<dyn Memory>, &regions(workload))?;
        let copies = copies(workload)?;
        source.grant(READER, TOKEN, copies.iter().map(|copy| copy.source().clone()).collect())?;
        let peer = reader.connect(&source.card())?;
        let (moves, block) = (workload.moves(), workload.block);
        Ok(Self { source, reader, peer, target: to, copies, moves, block, next: 0, name })
    }

    /// Reads all blocks, asleep until they are there.
    pub fn read(&mut self) -> Fallible<()> {
        self.next += 1;
        let id = TransferId(self.next);
        let timeout = Duration::from_secs(60);
        let copies = self.copies.clone();
        let transfer = Transfer { id, peer: self.peer, token: TOKEN, copies, timeout };
        self.reader.submit(transfer).map_err(|error| error.why)?;
        let mut events = Vec::new();
        while events.is_empty() {
            let ready = PollFd::from_borrowed_fd(self.reader.ready_fd(), PollFlags::IN);
            poll(&mut [ready], None)?;
            self.reader.poll(&mut events);
        }
        match events.as_slice() {
            [Event::Completion { outcome: Outcome::Done, .. }] => Ok(()),
            other => Err(format!("{other:?} from {:?}", self.source.card()).into()),
        }
    }

    fn target_word(&self, byte: usize) -> Option<&std::sync::atomic::AtomicU64> {
        self.target.words().get(byte / 8)
    }
}

impl Mover for Ours {
    fn name(&self) -> String {
        self.name.to_owned()
    }

    fn poison(&mut self) {
        for (_, target) in &self.moves {
            for byte in (*target..target + self.block).step_by(8) {
                if let Some(place) = self.target_word(byte) {
                    place.store(0xeeee_eeee_eeee_eeee, Ordering::Relaxed);
                }
            }
        }
    }

    fn run(&mut self) -> Fallible<Taken> {
        Taken::by(|| self.read())
    }

    fn wrong_words(&self) -> usize {
        let wrong = |&(source, target): &(usize, usize)| {
            let right = |at: &usize| {
                let found = self.target_word(target + at);
                found.map(|place| place.load(Ordering::Relaxed)) == Some(word((source + at) / 8))
            };
            (0..self.block).step_by(8).filter(|at| !right(at)).count()
        };
        self.moves.iter().map(wrong).sum()
    }
}

fn endpoint(agent: AgentId, tls: Option<Arc<Tls>>) -> Fallible<TcpEndpoint> {
    let listen = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
    let trust = Trust { secret: None, tls };
    Ok(TcpEndpoint::bind(TcpConfig { trust, ..TcpConfig::new(agent, 0, listen) })?)
}

fn regions(workload: &Workload) -> Vec<BoundRegion> {
    let region = Region { block_stride: workload.block as u64, block_count: workload.pool };
    let bound = |id: u32| BoundRegion {
        id: RegionId(id),
        offset: u64::from(id) * workload.region_bytes() as u64,
        region,
    };
    (0..workload.regions).map(bound).collect()
}

fn copies(workload: &Workload) -> Fallible<Vec<BlockCopy>> {
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
