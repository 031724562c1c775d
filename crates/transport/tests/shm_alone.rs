//! Alone in its process, since it counts the threads, descriptors and CPU time of all.

#![allow(clippy::unwrap_used, reason = "a test")]

use std::sync::Arc;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, poll};
use rustix::time::{ClockId, clock_gettime};
use strided::{BlockCopy, Blocks, Pattern, Region, RegionId};
use transport::memory::{HostMemory, SharedMemory};
use transport::shm::{ShmConfig, ShmEndpoint};
use transport::{
    AgentId, BoundRegion, Endpoint, Event, GrantToken, Memory, Outcome, Transfer, TransferId,
};

const BLOCK: u64 = 4 << 20;

fn endpoint(agent: u64, memory: Arc<dyn Memory>) -> ShmEndpoint {
    let mut endpoint = ShmEndpoint::bind(ShmConfig::new(AgentId(agent), 1)).unwrap();
    let region = Region { block_stride: BLOCK, block_count: 1 };
    endpoint.register(memory, &[BoundRegion { id: RegionId(0), offset: 0, region }]).unwrap();
    endpoint
}

fn blocks() -> Blocks {
    Blocks::new(RegionId(0), [0], Pattern::contiguous(0, BLOCK).unwrap()).unwrap()
}

/// A source and a reader that has read once.
fn pair(from: Arc<dyn Memory>, to: Arc<dyn Memory>) -> (ShmEndpoint, ShmEndpoint) {
    let (mut source, mut reader) = (endpoint(1, from), endpoint(2, to));
    let (id, token, timeout) = (TransferId(1), GrantToken(1), Duration::from_secs(10));
    source.grant(AgentId(2), token, vec![blocks()]).unwrap();
    let peer = reader.connect(&source.card()).unwrap();
    let copies = vec![BlockCopy::new(blocks(), blocks()).unwrap()];
    reader.submit(Transfer { id, peer, token, copies, timeout }).unwrap();
    poll(&mut [PollFd::from_borrowed_fd(reader.ready_fd(), PollFlags::IN)], None).unwrap();
    let mut events = Vec::new();
    reader.poll(&mut events);
    assert_eq!(events, [Event::Completion { id, outcome: Outcome::Done }]);
    (source, reader)
}

fn count(folder: &str) -> usize {
    std::fs::read_dir(format!("/proc/self/{folder}")).unwrap().count()
}

#[test]
fn nothing_is_left_behind_and_nothing_is_burnt() {
    let len = usize::try_from(BLOCK).unwrap();
    let host = || Arc::new(HostMemory::new(len).unwrap()) as Arc<dyn Memory>;
    let shared = || Arc::new(SharedMemory::new(len).unwrap()) as Arc<dyn Memory>;
    drop(pair(host(), host()));
    let before = (count("fd"), count("task"));
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap().matches("kvferry").count();
    for round in 0..200 {
        let from = if round % 2 == 0 { host() } else { shared() };
        drop(pair(from, host()));
    }
    // The system may still count a thread for a moment that has been joined.
    let begun = Instant::now();
    while (count("fd"), count("task")) != before {
        let now = (count("fd"), count("task"));
        assert!(begun.elapsed() < Duration::from_secs(10), "{now:?}, and {before:?} at the start");
        std::thread::sleep(Duration::from_millis(10));
    }
    let left = std::fs::read_to_string("/proc/self/maps").unwrap().matches("kvferry").count();
    assert_eq!(left, maps);

    let _idle = pair(shared(), host());
    let cpu = || Duration::try_from(clock_gettime(ClockId::ProcessCPUTime)).unwrap();
    let before = cpu();
    std::thread::sleep(Duration::from_millis(1500));
    let spent = cpu() - before;
    assert!(spent < Duration::from_millis(15), "{spent:?}");
}
