//! How fast the providers move scattered blocks, beside plain system calls in the same run.
//!
//! `cargo bench -p benches --bench transport` prints tables; with names of sections behind `--`,
//! only those:
//!
//! * `tcp`: **W1**, 10 regions, 165 of 400 blocks of 128 KiB each, and **W3**, 64 regions, 128 of 1024
//!   blocks of 4 KiB each, with random ids on both sides. *Plain* is a pair of threads a
//!   stream that write and read the same blocks with vectored calls of up to 1024 pieces, with
//!   no request, no header and no check: what the kernel can do. The variants take turns, so
//!   that a busy machine slows all of them.
//! * `tls`: **W1 under TLS**, the same blocks with and without.
//! * `shm`: **W1 and W3 out of another process and out of shared memory**, beside `process_vm_readv` by
//!   hand with one and two threads, and beside `memcpy`. The source is a process of its own.
//! * `crowd`: **8 pairs at once**, beside as many plain ones, and **64 transfers in flight** of one
//!   pair, beside its blocks as one transfer: what all of them take, and how far the first and the
//!   last are apart.
//! * `posted`: how long the caller of a request is busy, from block ids until it is free, the plan
//!   included; a thread of the reader sends the request then.
//! * `idle`: the share of a core that **64 connected readers** and their source take.
//! * `latency`: **W4**, the time from `submit` to the completion of one block of 4 KiB, by criterion.
//!
//! Targets are poisoned before every round, and all bytes are compared after the first and the
//! last one.

#![allow(clippy::print_stdout, reason = "a bench is there to print")]

#[path = "transport/certificate.rs"]
mod certificate;
#[path = "transport/crowd.rs"]
mod crowd;
#[path = "transport/floor.rs"]
mod floor;
#[path = "transport/idle.rs"]
mod idle;
#[path = "transport/latency.rs"]
mod latency;
#[path = "transport/other.rs"]
mod other;
#[path = "transport/ours.rs"]
mod ours;
#[path = "transport/plain.rs"]
mod plain;
#[path = "transport/posted.rs"]
mod posted;
#[path = "transport/table.rs"]
mod table;
#[path = "transport/workload.rs"]
mod workload;

use std::error::Error;
use std::sync::Arc;

use floor::Floor;
use other::Other;
use ours::Ours;
use plain::Plain;
use table::Taken;
use workload::Workload;

type Fallible<T> = Result<T, Box<dyn Error + Send + Sync>>;

/// One way to move the blocks of a workload.
trait Mover {
    fn name(&self) -> String;

    /// Overwrites the target blocks.
    fn poison(&mut self);

    /// Moves all blocks once.
    fn run(&mut self) -> Fallible<Taken>;

    /// How many words of the target blocks are not what they should be.
    fn wrong_words(&self) -> usize;
}

const W1: Workload = Workload { regions: 10, pool: 400, moved: 165, block: 128 << 10 };
const W3: Workload = Workload { regions: 64, pool: 1024, moved: 128, block: 4 << 10 };

fn compare(name: &str, workload: &Workload, rounds: usize) -> Fallible<()> {
    let mut movers: Vec<Box<dyn Mover>> = Vec::new();
    let pools = plain::Pools::new(workload);
    for streams in [1, 2, 4] {
        movers.push(Box::new(Plain::new(workload, &pools, streams)?));
    }
    movers.push(Box::new(Ours::new(workload, None)?));
    table::compare(name, workload, &mut movers, rounds)
}

/// What encryption costs: both ways of this crate, by turns.
fn encrypt(name: &str, workload: &Workload, rounds: usize) -> Fallible<()> {
    let plain = Box::new(Ours::new(workload, None)?);
    let sealed = Box::new(Ours::new(workload, Some(certificate::tls()?))?);
    let mut movers: Vec<Box<dyn Mover>> = vec![plain, sealed];
    table::compare(name, workload, &mut movers, rounds)
}

/// Out of another process: by hand with one and two threads, and by this crate.
fn foreign(name: &str, workload: &Workload, rounds: usize) -> Fallible<()> {
    let other = Arc::new(Other::start(name, "foreign")?);
    let mut movers: Vec<Box<dyn Mover>> = vec![
        Box::new(Floor::across(workload, &other, 1)?),
        Box::new(Floor::across(workload, &other, 2)?),
        Box::new(Ours::shm(workload, &other, None)?),
    ];
    table::compare(&format!("{name} out of another process"), workload, &mut movers, rounds)
}

/// Out of memory that both processes map: by hand, and by this crate.
fn mapped(name: &str, workload: &Workload, rounds: usize) -> Fallible<()> {
    let other = Arc::new(Other::start(name, "mapped")?);
    let mut movers: Vec<Box<dyn Mover>> = vec![
        Box::new(Floor::memcpy(workload)?),
        Box::new(Ours::shm(workload, &other, Some(1))?),
        Box::new(Ours::shm(workload, &other, None)?),
    ];
    table::compare(&format!("{name} out of shared memory"), workload, &mut movers, rounds)
}

/// A part of the bench, with the rounds of its tables.
type Section = (&'static str, fn(usize) -> Fallible<()>);

const SECTIONS: [Section; 7] = [
    ("tcp", |rounds| {
        compare("W1", &W1, rounds)?;
        compare("W3", &W3, rounds)
    }),
    ("tls", |rounds| encrypt("W1 under TLS", &W1, rounds)),
    ("shm", |rounds| {
        for (name, workload) in [("W1", &W1), ("W3", &W3)] {
            foreign(name, workload, rounds)?;
            mapped(name, workload, rounds)?;
        }
        Ok(())
    }),
    ("crowd", crowd::bench),
    ("posted", posted::bench),
    ("idle", idle::bench),
    ("latency", |_| latency::bench()),
];

fn main() -> Fallible<()> {
    if other::serve()? {
        return Ok(());
    }
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    // Without `--bench` somebody only wants to know that it works, as `cargo test` does.
    let rounds = if arguments.iter().any(|arg| arg == "--bench") { 15 } else { 1 };
    let named = |(name, _): &&Section| arguments.iter().any(|arg| arg == name);
    let mut some: Vec<&Section> = SECTIONS.iter().filter(named).collect();
    if some.is_empty() {
        some = SECTIONS.iter().collect();
    }
    some.into_iter().try_for_each(|(_, run)| run(rounds))
}
