//! Alone in its process, since it looks at the memory of the whole.

#![allow(clippy::unwrap_used, reason = "a test")]

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, poll};
use strided::{BlockCopy, Blocks, Pattern, Region, RegionId};
use transport::loopback::LoopbackNet;
use transport::memory::{HostMemory, SharedMemory};
use transport::shm::{ShmConfig, ShmEndpoint};
use transport::tcp::{TcpConfig, TcpEndpoint};
use transport::{
    AgentId, BoundRegion, Endpoint, Event, GrantToken, Memory, Outcome, PeerId, Transfer,
    TransferId,
};

const SOURCE: AgentId = AgentId(1);
const READER: AgentId = AgentId(2);
const BLOCKS: u32 = 64;
/// Requests that are under way at a time.
const TOGETHER: u64 = 50;

/// A source and a reader, and what they have done.
struct Pair {
    source: Box<dyn Endpoint>,
    reader: Box<dyn Endpoint>,
    peer: PeerId,
    done: u64,
}

impl Pair {
    fn new(endpoint: impl Fn(AgentId) -> Box<dyn Endpoint>, from: Arc<dyn Memory>) -> Self {
        let (mut source, mut reader) = (endpoint(SOURCE), endpoint(READER));
        let region = Region { block_stride: 4096, block_count: BLOCKS };
        let bound = BoundRegion { id: RegionId(0), offset: 0, region };
        source.register(from, &[bound]).unwrap();
        reader.register(host(), &[bound]).unwrap();
        let peer = reader.connect(&source.card()).unwrap();
        Self { source, reader, peer, done: 0 }
    }

    /// Grants, reads and takes back so many times [`TOGETHER`] requests.
    fn play(&mut self, times: u64) {
        for _ in 0..times {
            let requests = self.done..self.done + TOGETHER;
            requests.clone().for_each(|request| self.read(request));
            for event in next(&mut *self.reader) {
                assert!(matches!(event, Event::Completion { outcome: Outcome::Done, .. }));
            }
            requests.for_each(|request| self.source.revoke(GrantToken(request)));
            for event in next(&mut *self.source) {
                assert!(matches!(event, Event::Revoked { .. }));
            }
            self.done += TOGETHER;
        }
    }

    /// With blocks and a token of its own each time.
    fn read(&mut self, request: u64) {
        let (id, token) = (TransferId(request), GrantToken(request));
        let first = u32::try_from(request % 32).unwrap();
        let ids: Vec<u32> = (first..first + 32).step_by(2).collect();
        let blocks = Blocks::new(RegionId(0), ids, Pattern::contiguous(0, 4096).unwrap()).unwrap();
        self.source.grant(READER, token, vec![blocks.clone()]).unwrap();
        let copies = vec![BlockCopy::new(blocks.clone(), blocks).unwrap()];
        let (peer, timeout) = (self.peer, Duration::from_secs(30));
        self.reader.submit(Transfer { id, peer, token, copies, timeout }).unwrap();
    }
}

/// What has happened to each of [`TOGETHER`] requests.
fn next(endpoint: &mut dyn Endpoint) -> Vec<Event> {
    let mut events = Vec::new();
    while (events.len() as u64) < TOGETHER {
        poll(&mut [PollFd::from_borrowed_fd(endpoint.ready_fd(), PollFlags::IN)], None).unwrap();
        endpoint.poll(&mut events);
    }
    assert_eq!(events.len() as u64, TOGETHER, "{events:?}");
    events
}

fn host() -> Arc<dyn Memory> {
    Arc::new(HostMemory::new(4096 * 64).unwrap())
}

/// Bytes of this process that are in memory, and its descriptors, threads and mappings.
fn held() -> (u64, [usize; 3]) {
    let text = |file: &str| std::fs::read_to_string(format!("/proc/self/{file}")).unwrap();
    let status = text("status");
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
    let kib: u64 = line.trim().trim_end_matches(" kB").parse().unwrap();
    let count = |folder: &str| std::fs::read_dir(format!("/proc/self/{folder}")).unwrap().count();
    // Mappings of files; those of the heap come and go in pieces.
    let files = text("maps").lines().filter(|line| line.contains('/')).count();
    (kib << 10, [count("fd"), count("task"), files])
}

/// Report R95: the cache of registrations grew with each transfer, until the host had no memory
/// left. What may be had for a day of ten transfers a second, 50 MB, is 58 bytes a transfer.
#[test]
fn r95_a_transfer_leaves_nothing_behind() {
    const TIMES: u64 = 10_000;
    let net = LoopbackNet::new();
    let tcp = |agent| -> Box<dyn Endpoint> {
        let listen = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
        Box::new(TcpEndpoint::bind(TcpConfig::new(agent, 1, listen)).unwrap())
    };
    let shm = |agent| -> Box<dyn Endpoint> {
        Box::new(ShmEndpoint::bind(ShmConfig::new(agent, 1)).unwrap())
    };
    let loopback = |agent| -> Box<dyn Endpoint> { Box::new(net.endpoint(agent, 64).unwrap()) };
    let pairs = [
        ("tcp", Pair::new(tcp, host())),
        ("shm, foreign", Pair::new(shm, host())),
        ("shm, mapped", Pair::new(shm, Arc::new(SharedMemory::new(4096 * 64).unwrap()))),
        ("loopback", Pair::new(loopback, host())),
    ];
    for (place, mut pair) in pairs {
        pair.play(2_000 / TOGETHER);
        let (before, things) = held();
        pair.play(TIMES / TOGETHER);
        let (after, now) = held();
        assert_eq!(now, things, "{place}: descriptors, threads, mapped files");
        let grown = after.saturating_sub(before);
        println!("{place}: {grown} bytes more after {TIMES} transfers");
        assert!(grown <= 58 * TIMES, "{place}: {before} bytes, then {after}");
    }
}
