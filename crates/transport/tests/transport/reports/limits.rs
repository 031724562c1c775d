//! What cannot be registered, what can, and processes that start at once.

use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use crate::common::limited::Limited;
use crate::common::*;
use crate::shm_other::{BLOCK, Other};
use strided::{Blocks, Pattern, Region, RegionId};
use transport::loopback::LoopbackNet;
use transport::shm::{ShmConfig, ShmEndpoint};
use transport::{
    BoundRegion, Card, Endpoint, Memory, Outcome, RegisterError, Several, Transfer, TransferId,
};

/// Regions of a block of 8 bytes each, one behind the other in one memory.
fn regions(count: u32) -> (Arc<dyn Memory>, Vec<BoundRegion>) {
    let pool = Pool::new(8 * u64::from(count), 1);
    pool.fill(5);
    let region = Region { block_stride: 8, block_count: 1 };
    let bound = |id| BoundRegion { id: RegionId(id), offset: 8 * u64::from(id), region };
    (pool.memory, (0..count).map(bound).collect())
}

/// Registration failed at one of several devices, and what the others had registered stayed.
#[test]
fn r93_what_one_provider_cannot_register_none_has() {
    let net = LoopbackNet::new();
    for first in [true, false] {
        let narrow = Limited { inner: Net::Tcp.endpoint(SOURCE), most: 2 };
        let wide = net.endpoint(SOURCE, 8).unwrap();
        let mut all: Vec<Box<dyn Endpoint>> = vec![Box::new(narrow), Box::new(wide)];
        if first {
            all.reverse();
        }
        let mut several = Several::new(all).unwrap();
        let (memory, regions) = regions(3);
        let kept = Arc::strong_count(&memory);
        let refused = several.register(Arc::clone(&memory), &regions).unwrap_err();
        assert_eq!(refused, RegisterError::TooMany { regions: 3, most: 2 });
        assert_eq!(refused.to_string(), "3 regions in one registration, where 2 are the most");
        assert_eq!(Arc::strong_count(&memory), kept, "nobody holds it");
        // Their names are free again, and fewer of them will do.
        let fewer = several.register(Arc::clone(&memory), &regions[..2]).unwrap();
        several.deregister(fewer).unwrap();
    }
}

/// Registration succeeded, and the first use failed. Where the most regions are registered that a
/// provider takes, the last of them is read; one more is refused, by number.
#[test]
fn r93_the_most_regions_are_read_and_one_more_is_refused() {
    // What is told of a registration has 2 MiB: 24 bytes in front, and 24 for each region.
    let most = (2 << 20) / 24 - 1;
    let mut source = ShmEndpoint::bind(ShmConfig::new(SOURCE, 1)).unwrap();
    let (memory, regions) = regions(most as u32 + 1);
    let refused = source.register(Arc::clone(&memory), &regions).unwrap_err();
    assert_eq!(refused, RegisterError::TooMany { regions: most + 1, most });
    source.register(memory, &regions[..most]).unwrap();
    let last = most as u32 - 1;
    let word = || Pattern::contiguous(0, 8).unwrap();
    let from = Blocks::new(RegionId(last), [0], word()).unwrap();
    source.grant(READER, TOKEN, vec![from.clone()]).unwrap();
    let (reader, to) = (Net::Foreign.endpoint(READER), Pool::new(8, 1));
    read_once(reader, &source.card(), &to, from, page(&[0], 8));
    let mut random = Random(5);
    let filled: Vec<u64> = (0..most).map(|_| random.next()).collect();
    assert_eq!(to.memory.words()[0].load(Ordering::Relaxed), filled[most - 1]);
}

fn read_once(mut reader: Box<dyn Endpoint>, card: &Card, to: &Pool, from: Blocks, target: Blocks) {
    to.register(&mut *reader, 0);
    let peer = reader.connect(card).unwrap();
    let (id, copies, timeout) = (TransferId(1), vec![copy(from, target)], PATIENCE);
    reader.submit(Transfer { id, peer, token: TOKEN, copies, timeout }).unwrap();
    assert_eq!(outcome(&mut *reader, 1), Outcome::Done);
}

/// Regions of 4 GiB and more were registered, and crashed at first use. Most of these pages do
/// not exist: nothing but the last 4 KiB is written or read.
#[test]
fn r93_a_region_of_five_gibibytes_is_read_at_its_end() {
    const GIB: u64 = 1 << 30;
    let end = Pattern::contiguous(GIB - 4096, 4096).unwrap();
    let places = [Net::Loopback(LoopbackNet::new()), Net::Tcp, Net::Foreign, Net::Mapped];
    for net in places {
        let large = || Pool::shared(Region { block_stride: GIB, block_count: 5 });
        let (from, to) = (large(), large());
        let last = from.memory.words().len() - 512..;
        for (word, number) in from.memory.words()[last.clone()].iter().zip(1..) {
            word.store(number, Ordering::Relaxed);
        }
        let mut source = net.endpoint(SOURCE);
        from.register(&mut *source, 0);
        let blocks = || Blocks::new(RegionId(0), [4], end).unwrap();
        source.grant(READER, TOKEN, vec![blocks()]).unwrap();
        read_once(net.endpoint(READER), &source.card(), &to, blocks(), blocks());
        let read = to.memory.words()[last].iter().map(|word| word.load(Ordering::Relaxed));
        assert!(read.eq(1..=512));
    }
}

/// Two agents that started at the same time hung.
#[test]
fn r95_eight_processes_that_start_at_once() {
    let mut others: Vec<Other> = (0..8).map(|_| Other::start("source mapped")).collect();
    let mut reader = Net::Foreign.endpoint(READER);
    let to = Pool::new(BLOCK, 1);
    to.register(&mut *reader, 0);
    let addresses: HashSet<String> = others.iter_mut().map(|other| other.hear("card ")).collect();
    assert_eq!(addresses.len(), 8);
    for (id, address) in (0..).zip(addresses) {
        let card = Card { provider: "shm", agent: SOURCE, address };
        let peer = reader.connect(&card).unwrap();
        let copies = vec![copy(page(&[0], BLOCK), page(&[0], BLOCK))];
        let (id, timeout) = (TransferId(id), PATIENCE);
        reader.submit(Transfer { id, peer, token: TOKEN, copies, timeout }).unwrap();
        assert_eq!(outcome(&mut *reader, id.0), Outcome::Done);
    }
}
