//! Few descriptors, many of them, and more than a queue takes.

use std::collections::HashSet;

use allocation_counter::measure;

use crate::common::*;
use strided::BlockCopy;
use transport::loopback::LoopbackNet;
use transport::{Event, Outcome, SubmitErrorKind};

/// Descriptors of one batch: few, and around the sizes at which batches were cut.
const COUNTS: [u32; 7] = [1, 2, 10, 15, 16, 17, 1000];

/// A name for each place, in panics and in the place itself.
fn everywhere() -> [(&'static str, Net); 5] {
    [
        ("loopback", Net::Loopback(LoopbackNet::new())),
        ("tcp, 1 stream", Net::Streams(1)),
        ("tcp, 4 streams", Net::Streams(4)),
        ("shm, foreign", Net::Foreign),
        ("shm, mapped", Net::Mapped),
    ]
}

/// A source that grants every second one of its 2,000 blocks, and as many targets backwards: no
/// block continues another, so each is a descriptor of its own.
fn pair(net: &Net, room: usize) -> Pair {
    let mut pair = Pair::with_room_for(room, net, Pool::new(64, 2000), Pool::new(64, 2000));
    let granted: Vec<u32> = (0..2000).step_by(2).collect();
    pair.source.grant(READER, TOKEN, vec![page(&granted, 64)]).unwrap();
    pair
}

fn batch(count: u32) -> Vec<BlockCopy> {
    let sources: Vec<u32> = (0..2000).step_by(2).take(count as usize).collect();
    let targets: Vec<u32> = (0..2000).rev().step_by(2).take(count as usize).collect();
    vec![copy(page(&sources, 64), page(&targets, 64))]
}

/// Batches of few writes never completed: a lock had split them, and the last one stayed open.
/// Nothing follows here that would push a batch out, and every byte is compared.
#[test]
fn r89_a_batch_of_any_size_completes_alone() {
    for (place, net) in everywhere() {
        let mut pair = pair(&net, 1024);
        for (id, count) in (0..).zip(COUNTS) {
            pair.to.fill(100 + id);
            let copies = batch(count);
            let expected = expected(&pair, &pair.to.bytes(), &copies);
            assert_eq!(pair.read(id, copies), Outcome::Done, "{place}: {count}");
            assert!(pair.to.bytes() == expected, "{place}: {count}");
        }
    }
}

/// The same of transfers that are posted together: as many are seen to end as were posted.
#[test]
fn r89_as_many_complete_as_were_posted() {
    for (place, net) in everywhere() {
        let mut pair = pair(&net, 1024);
        let mut first = 0;
        for count in COUNTS.map(u64::from) {
            for id in first..first + count {
                pair.reader.submit(pair.transfer(id, batch(1))).unwrap();
            }
            let events = wait(&mut *pair.reader, |events| events.len() as u64 >= count);
            let seen: HashSet<u64> = events.iter().map(done).collect();
            assert_eq!(seen, (first..first + count).collect(), "{place}: {count}");
            first += count;
        }
    }
}

fn done(event: &Event) -> u64 {
    match event {
        Event::Completion { id, outcome: Outcome::Done } => id.0,
        other => panic!("{other:?}"),
    }
}

/// Some 240 in flight were a cliff: posts beyond it hung. A full queue says so at once, at exactly
/// the number that was set, and 2,000 reads get through it.
#[test]
fn r90_two_thousand_reads_through_a_queue_of_200() {
    for (place, net) in everywhere() {
        let mut pair = pair(&net, 200);
        let (mut posted, mut ended, mut refused) = (0, 0, 0);
        while ended < 2000 {
            while posted < 2000 {
                match pair.reader.submit(pair.transfer(posted, batch(1))) {
                    Ok(()) => posted += 1,
                    Err(why) => {
                        assert_eq!(why.why, SubmitErrorKind::QueueFull, "{place}");
                        assert_eq!(posted - ended, 200, "{place}");
                        refused += 1;
                        break;
                    }
                }
            }
            let events = wait(&mut *pair.reader, |events| !events.is_empty());
            ended += events.iter().map(done).count() as u64;
        }
        assert!((1..=2000).contains(&refused), "{place}: {refused}, one an awakening at most");
    }
}

/// Allocations of posting and taking back so many reads at once, for each of them.
fn allocations(count: u64) -> f64 {
    let mut pair = pair(&Net::Loopback(LoopbackNet::new()), 4096);
    let transfers: Vec<_> = (0..count).map(|id| pair.transfer(id, batch(1))).collect();
    let info = measure(|| {
        for transfer in transfers {
            pair.reader.submit(transfer).unwrap();
        }
        wait(&mut *pair.reader, |events| events.len() as u64 >= count);
    });
    info.count_total as f64 / count as f64
}

/// What a throughput that falls would come from: a long queue costs each read no more than a
/// short one. Counted where no other thread takes part.
#[test]
fn r90_a_long_queue_costs_each_read_no_more() {
    let (short, long) = (allocations(200), allocations(2000));
    assert!(short > 1.0 && long <= 1.1 * short, "{short} and {long} allocations a read");
}

/// Whoever asks is told whether a read goes past the source's processor: what is emulated does
/// not pass for the real thing.
#[test]
fn r90_a_provider_says_what_it_takes() {
    let one_sided = |net: &Net| net.endpoint(SOURCE).capabilities().one_sided;
    let told = everywhere().map(|(_, net)| one_sided(&net));
    assert_eq!(told, [true, false, false, false, false]);
}
