//! What the tests of all providers share.
pub mod limited;
pub mod raw;
pub mod unix;

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use crate::certs::{Authority, HERE};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use strided::{BlockCopy, Blocks, Dim, Pattern, Region, RegionId};
use transport::loopback::LoopbackNet;
use transport::memory::{HostMemory, SharedMemory};
use transport::session::{Tls, Trust};
use transport::shm::{ShmConfig, ShmEndpoint};
use transport::tcp::{TcpConfig, TcpEndpoint};
use transport::{
    AgentId, BoundRegion, Endpoint, Event, GrantToken, Memory, Outcome, PeerId, Several, Transfer,
    TransferId,
};

pub const SOURCE: AgentId = AgentId(100);
pub const READER: AgentId = AgentId(200);
pub const TOKEN: GrantToken = GrantToken(7);
pub const PATIENCE: Duration = Duration::from_secs(10);

/// A place where endpoints can meet.
pub enum Net {
    Loopback(LoopbackNet),
    Tcp,
    /// TCP over so many sockets.
    Streams(u16),
    Tls(Arc<Tls>),
    /// Loopback and TCP, joined; peers meet by that which comes first.
    Several(LoopbackNet, First),
    /// One process's memory is read by the other.
    Foreign,
    /// Both map the same memory.
    Mapped,
}

pub enum First {
    Loopback,
    Tcp,
}

impl Net {
    pub fn endpoint(&self, agent: AgentId) -> Box<dyn Endpoint> {
        self.endpoint_with(agent, 1024)
    }

    pub fn endpoint_with(&self, agent: AgentId, max_in_flight: usize) -> Box<dyn Endpoint> {
        match self {
            Self::Loopback(net) => Box::new(net.endpoint(agent, max_in_flight).unwrap()),
            Self::Tcp => Self::tcp(agent, max_in_flight, None),
            Self::Streams(streams) => {
                let config = TcpConfig { max_in_flight, streams: *streams, ..config(agent) };
                Box::new(TcpEndpoint::bind(config).unwrap())
            }
            Self::Tls(tls) => Self::tcp(agent, max_in_flight, Some(Arc::clone(tls))),
            Self::Several(net, first) => {
                let loopback = Box::new(net.endpoint(agent, max_in_flight).unwrap());
                let tcp = Self::tcp(agent, max_in_flight, None);
                let endpoints: Vec<Box<dyn Endpoint>> = match first {
                    First::Loopback => vec![loopback, tcp],
                    First::Tcp => vec![tcp, loopback],
                };
                Box::new(Several::new(endpoints).unwrap())
            }
            Self::Foreign | Self::Mapped => {
                let config = ShmConfig { max_in_flight, ..ShmConfig::new(agent, 1) };
                Box::new(ShmEndpoint::bind(config).unwrap())
            }
        }
    }

    /// The pool of a source, in the memory that belongs to this place.
    fn pool(&self, pool: Pool) -> Pool {
        match self {
            Self::Mapped => Pool::shared(pool.region),
            _ => pool,
        }
    }

    fn tcp(agent: AgentId, max_in_flight: usize, tls: Option<Arc<Tls>>) -> Box<dyn Endpoint> {
        let trust = Trust { secret: None, tls };
        Box::new(TcpEndpoint::bind(TcpConfig { max_in_flight, trust, ..config(agent) }).unwrap())
    }
}

/// What a side of [`HERE`] shows that this authority certifies, and whom it takes.
pub fn tls(authority: &Authority) -> Arc<Tls> {
    tls_for(authority, &HERE)
}

pub fn tls_for(authority: &Authority, names: &[&str]) -> Arc<Tls> {
    let folder = tempfile::tempdir().unwrap();
    authority.certify(folder.path(), names);
    let [chain, key, ca] = ["cert.pem", "key.pem", "ca.pem"].map(|name| folder.path().join(name));
    Arc::new(Tls::from_files(&chain, &key, &ca).unwrap())
}

pub fn config(agent: AgentId) -> TcpConfig {
    TcpConfig::new(agent, 1, SocketAddr::from((Ipv4Addr::LOCALHOST, 0)))
}

/// Memory that a test looks at.
pub trait Words: Memory {
    fn words(&self) -> &[AtomicU64];
}

impl Words for HostMemory {
    fn words(&self) -> &[AtomicU64] {
        self.words()
    }
}

impl Words for SharedMemory {
    fn words(&self) -> &[AtomicU64] {
        self.words()
    }
}

/// Registered memory of one region.
pub struct Pool {
    pub memory: Arc<dyn Words>,
    pub region: Region,
}

impl Pool {
    pub fn new(block_stride: u64, block_count: u32) -> Self {
        let region = Region { block_stride, block_count };
        let len = usize::try_from(region.bytes().unwrap()).unwrap();
        Self { memory: Arc::new(HostMemory::new(len).unwrap()), region }
    }

    pub fn shared(region: Region) -> Self {
        let len = usize::try_from(region.bytes().unwrap()).unwrap();
        Self { memory: Arc::new(SharedMemory::new(len).unwrap()), region }
    }

    pub fn register(&self, endpoint: &mut dyn Endpoint, id: u32) -> transport::Registration {
        let bound = BoundRegion { id: RegionId(id), offset: 0, region: self.region };
        let memory: Arc<dyn Memory> = Arc::clone(&self.memory) as _;
        endpoint.register(memory, &[bound]).unwrap()
    }

    pub fn fill(&self, seed: u64) {
        let mut random = Random(seed);
        for word in self.memory.words() {
            word.store(random.next(), Ordering::Relaxed);
        }
    }

    pub fn bytes(&self) -> Vec<u8> {
        self.block_bytes(0..self.region.block_count)
    }

    /// The bytes of some blocks, whose stride is a multiple of 8.
    pub fn block_bytes(&self, blocks: std::ops::Range<u32>) -> Vec<u8> {
        let words = |block: u32| block as usize * self.region.block_stride as usize / 8;
        let words = &self.memory.words()[words(blocks.start)..words(blocks.end)];
        words.iter().flat_map(|word| word.load(Ordering::Relaxed).to_ne_bytes()).collect()
    }
}

/// A source and a reader, connected, each with one region that is number 0.
pub struct Pair {
    pub source: Box<dyn Endpoint>,
    pub reader: Box<dyn Endpoint>,
    pub peer: PeerId,
    pub from: Pool,
    pub to: Pool,
}

impl Pair {
    pub fn new(net: &Net, from: Pool, to: Pool) -> Self {
        Self::with_room_for(1024, net, from, to)
    }

    /// With a reader that takes so many transfers at a time.
    pub fn with_room_for(max_in_flight: usize, net: &Net, from: Pool, to: Pool) -> Self {
        let mut source = net.endpoint(SOURCE);
        let mut reader = net.endpoint_with(READER, max_in_flight);
        let from = net.pool(from);
        from.register(&mut *source, 0);
        to.register(&mut *reader, 0);
        from.fill(1);
        to.fill(2);
        let peer = reader.connect(&source.card()).unwrap();
        Self { source, reader, peer, from, to }
    }

    pub fn transfer(&self, id: u64, copies: Vec<BlockCopy>) -> Transfer {
        let (id, peer) = (TransferId(id), self.peer);
        Transfer { id, peer, token: TOKEN, copies, timeout: PATIENCE }
    }

    /// Submits, and waits for the end.
    pub fn read(&mut self, id: u64, copies: Vec<BlockCopy>) -> Outcome {
        self.read_with(TOKEN, id, copies)
    }

    pub fn read_with(&mut self, token: GrantToken, id: u64, copies: Vec<BlockCopy>) -> Outcome {
        let transfer = Transfer { token, ..self.transfer(id, copies) };
        self.reader.submit(transfer).unwrap();
        outcome(&mut *self.reader, id)
    }
}

/// Waits for the one completion that is expected next; pings and such aside, nothing else may
/// come.
pub fn outcome(endpoint: &mut dyn Endpoint, expected: u64) -> Outcome {
    let events = wait(endpoint, |events| !events.is_empty());
    match events.as_slice() {
        [Event::Completion { id, outcome }] if id.0 == expected => outcome.clone(),
        other => panic!("expected the completion of {expected}, not {other:?}"),
    }
}

/// Polls, sleeping on the ready descriptor, until `enough` events have come.
pub fn wait(endpoint: &mut dyn Endpoint, enough: impl Fn(&[Event]) -> bool) -> Vec<Event> {
    let (mut events, end) = (Vec::new(), Instant::now() + PATIENCE);
    loop {
        endpoint.poll(&mut events);
        if enough(&events) {
            return events;
        }
        let left = end.saturating_duration_since(Instant::now());
        assert!(!left.is_zero(), "only {events:?} came");
        let left = Timespec::try_from(left).unwrap();
        let ready = PollFd::from_borrowed_fd(endpoint.ready_fd(), PollFlags::IN);
        let _ = poll(&mut [ready], Some(&left));
    }
}

pub fn is_down(events: &[Event]) -> bool {
    events.iter().any(|event| matches!(event, Event::PeerDown { .. }))
}

pub fn page(ids: &[u32], len: u64) -> Blocks {
    Blocks::new(RegionId(0), ids, Pattern::contiguous(0, len).unwrap()).unwrap()
}

pub fn copy(source: Blocks, target: Blocks) -> BlockCopy {
    BlockCopy::new(source, target).unwrap()
}

/// The bytes of `blocks` one by one, spelled out from the definition of a pattern.
pub fn spelled_out(blocks: &Blocks, region: Region) -> Vec<usize> {
    let pattern = blocks.pattern();
    let mut elements = vec![pattern.offset()];
    for &Dim { count, stride } in pattern.dims() {
        let step = |at: u64| (0..u64::from(count)).map(move |index| at + index * stride);
        elements = elements.into_iter().flat_map(step).collect();
    }
    let mut bytes = Vec::new();
    for &id in blocks.ids().iter() {
        for element in &elements {
            let start = u64::from(id) * region.block_stride + element;
            bytes.extend((start..start + pattern.element_len()).map(|at| at as usize));
        }
    }
    bytes
}

/// What the target must look like after the copies.
pub fn expected(pair: &Pair, before: &[u8], copies: &[BlockCopy]) -> Vec<u8> {
    let (from, mut to) = (pair.from.bytes(), before.to_vec());
    for copy in copies {
        let source = spelled_out(copy.source(), pair.from.region);
        let target = spelled_out(copy.target(), pair.to.region);
        assert_eq!(source.len(), target.len());
        for (source, target) in source.into_iter().zip(target) {
            to[target] = from[source];
        }
    }
    to
}

/// A small generator, so that a failure can be run again.
pub struct Random(pub u64);

impl Random {
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut word = self.0;
        word = (word ^ (word >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        word = (word ^ (word >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        word ^ (word >> 31)
    }

    pub fn below(&mut self, limit: u64) -> u64 {
        self.next() % limit
    }

    /// `count` different ids below `limit`, in random order.
    pub fn ids(&mut self, count: usize, limit: u32) -> Vec<u32> {
        let mut ids: Vec<u32> = (0..limit).collect();
        for at in 0..count {
            let other = at + self.below((ids.len() - at) as u64) as usize;
            ids.swap(at, other);
        }
        ids.truncate(count);
        ids
    }
}
