//! Nothing is left behind, however often a driver is opened.

use transport::libfabric::Outcome;

use crate::ends::*;
use crate::stage::*;

/// Rounds of the short form. `KVFERRY_FABRIC_ROUNDS=1000` asks for the long one.
const ROUNDS: usize = 30;

/// Rounds before the first count: the library keeps what it has made once.
const WARM: usize = 5;

/// What the library and the allocator may keep for good, beside what the last round holds.
const SLACK_KIB: usize = 8 << 10;

fn rounds() -> usize {
    std::env::var("KVFERRY_FABRIC_ROUNDS").map_or(ROUNDS, |rounds| rounds.parse().unwrap())
}

fn count(folder: &str) -> usize {
    std::fs::read_dir(folder).map_or(0, Iterator::count)
}

/// This process's own, for others may have theirs at the same time.
fn shared() -> usize {
    let own = format!("{}:", std::process::id());
    let entries = std::fs::read_dir("/dev/shm").into_iter().flatten().flatten();
    let name = |entry: std::fs::DirEntry| entry.file_name().to_string_lossy().into_owned();
    entries.map(name).filter(|name| name.starts_with(&own)).count()
}

fn resident_kib() -> usize {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|line| line.starts_with("VmRSS:")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse().unwrap()
}

fn round(stage: &Stage, seed: u64) {
    let (source, reader) = (End::new(stage, 1 << 20), End::new(stage, 1 << 20));
    source.paint(seed);
    let peer = reader.driver.insert(source.driver.address()).unwrap();
    let moves = shuffled(64, 16 << 10);
    assert_eq!(reader.read(1, peer, source.registered.exposed(), &moves), Outcome::Done);
    assert!(brought(&reader, seed, &moves));
}

#[test]
fn nothing_is_left_behind() {
    on_each_stage("leaks::nothing_is_left_behind", |stage| {
        (0..WARM).for_each(|seed| round(stage, seed as u64));
        let counts = || (count("/proc/self/fd"), count("/proc/self/task"), shared());
        let (before, resident) = (counts(), resident_kib());
        for seed in 0..rounds() {
            round(stage, seed as u64);
        }
        assert_eq!(counts(), before, "descriptors, threads, shared memory");
        let grown = resident_kib().saturating_sub(resident);
        say(&format!("measured: {}: {} rounds, {grown} KiB more", stage.provider, rounds()));
        assert!(grown < SLACK_KIB, "{grown} KiB more");
    });
}
