//! What becomes of works whose peer is no more, or does nothing.

use std::sync::Arc;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use transport::libfabric::{Notice, Outcome, WorkError, WorkId, WorkKind};

use crate::ends::*;
use crate::moves::Source;
use crate::stage::*;

/// How long a fence may take on a busy machine.
const AT_ONCE: Duration = Duration::from_secs(5);

/// How long a test looks whether something happens that must not.
const WHILE: Duration = Duration::from_millis(300);

fn signal(source: &Source, signal: Signal) {
    let pid = Pid::from_raw(i32::try_from(source.child.id()).unwrap()).unwrap();
    kill_process(pid, signal).unwrap();
}

#[test]
fn works_end_when_their_peer_is_killed() {
    on_each_stage("faults::works_end_when_their_peer_is_killed", |stage| {
        let mut source = Source::start(stage);
        let (address, remote) = read_card(&source.card);
        let mut reader = End::new(stage, 32 << 20);
        let peer = reader.driver.insert(&address).unwrap();
        let moves = shuffled(256, 128 << 10);
        assert_eq!(reader.read(1, peer, &remote, &moves), Outcome::Done);
        // Some of it is in flight, and the rest waits.
        let many: Vec<_> = moves.iter().cycle().take(8 * moves.len()).copied().collect();
        reader.submit(2, peer, WorkKind::Read, reader.plan(&remote, &many));
        source.child.kill().unwrap();
        source.child.wait().unwrap();
        let begun = Instant::now();
        let mut notices = reader.hear_within(WHILE);
        let by_itself = !notices.is_empty();
        if !by_itself {
            reader.driver.fence().unwrap();
            notices = reader.hear_within(AT_ONCE);
        }
        let failed = |notice: &Notice| {
            let ended =
                matches!(notice, Notice::Ended { id: WorkId(2), outcome: Outcome::Failed(_) });
            // A fast fabric has brought all before the peer was dead.
            ended || *notice == Notice::Ended { id: WorkId(2), outcome: Outcome::Done }
        };
        assert!(matches!(&notices[..], [notice] if failed(notice)), "{notices:?}");
        say(&format!(
            "measured: {}: a killed peer is told of {} after {:?}: {notices:?}",
            reader.driver.facts().provider,
            if by_itself { "by the fabric" } else { "by a fence" },
            begun.elapsed()
        ));
        // Nothing comes any more.
        reader.paint(10);
        std::thread::sleep(WHILE);
        assert!((0..4 << 20).all(|at| reader.word(at) == painted(10, at)));
        // And another peer can be read from.
        let source = Source::start(stage);
        let (address, remote) = read_card(&source.card);
        let peer = reader.driver.insert(&address).unwrap();
        assert_eq!(reader.read(3, peer, &remote, &moves), Outcome::Done);
        assert!(brought(&reader, 8, &moves));
    });
}

/// A peer that stands still says nothing. Over shared memory it may be read without its help.
#[test]
fn a_fence_ends_what_never_would() {
    on_each_stage("faults::a_fence_ends_what_never_would", |stage| {
        let mut reader = End::new(stage, 32 << 20);
        // The connection stands, or is still to be made.
        for connected in [false, true] {
            let source = Source::start(stage);
            fenced(&mut reader, &source, connected);
            // Over shared memory a source may wait for good for the endpoint that is no more (seen
            // with 1.17), so it is not asked again.
            if stage.provider != "shm" {
                read_all(&reader, &source);
            }
        }
        read_all(&reader, &Source::start(stage));
    });
}

fn read_all(reader: &End, source: &Source) {
    let (address, remote) = read_card(&source.card);
    let peer = reader.driver.insert(&address).unwrap();
    let moves = shuffled(256, 128 << 10);
    assert_eq!(reader.read(1, peer, &remote, &moves), Outcome::Done);
    assert!(brought(reader, 8, &moves));
}

/// Asks a source that stands still, and takes it back.
fn fenced(reader: &mut End, source: &Source, connected: bool) {
    if connected {
        read_all(reader, source);
    }
    let (address, remote) = read_card(&source.card);
    let peer = reader.driver.insert(&address).unwrap();
    signal(source, Signal::STOP);
    let plan = reader.plan(&remote, &shuffled(256, 128 << 10));
    reader.submit(2, peer, WorkKind::Read, plan);
    let mut notices = reader.hear_within(WHILE);
    let early = notices.clone();
    let (before, begun) = (reader.driver.address().to_vec(), Instant::now());
    reader.driver.fence().unwrap();
    let took = begun.elapsed();
    // All is told of by now.
    reader.driver.poll(&mut notices);
    let outcome = Outcome::Failed(WorkError::Fenced);
    let expected = [Notice::Ended { id: WorkId(2), outcome }];
    // Shared memory is read without the peer's help.
    let read = reader.driver.facts().provider == "shm" && !early.is_empty();
    assert!(notices == expected || read && notices == early, "{notices:?}");
    assert!(took < AT_ONCE, "{took:?}");
    assert_ne!(reader.driver.address(), before, "peers can tell the two apart");
    reader.paint(11);
    signal(source, Signal::CONT);
    std::thread::sleep(WHILE);
    assert!((0..4 << 20).all(|at| reader.word(at) == painted(11, at)), "bytes came late");
    let provider = &reader.driver.facts().provider;
    say(&format!("measured: {provider}: a fence took {took:?}; before it: {early:?}"));
}

#[test]
fn a_cancelled_work_ends_and_its_peer_can_be_forgotten() {
    on_each_stage("faults::a_cancelled_work_ends_and_its_peer_can_be_forgotten", |stage| {
        let (source, reader) = (End::new(stage, 32 << 20), End::new(stage, 32 << 20));
        source.paint(12);
        let peer = reader.driver.insert(source.driver.address()).unwrap();
        let moves = shuffled(8192, 4096);
        reader.submit(1, peer, WorkKind::Read, reader.plan(source.registered.exposed(), &moves));
        reader.driver.cancel(WorkId(1));
        let outcome = reader.outcome(1);
        assert!(matches!(outcome, Outcome::Cancelled | Outcome::Done), "{outcome:?}");
        reader.submit(2, peer, WorkKind::Read, reader.plan(source.registered.exposed(), &moves));
        reader.driver.remove(peer);
        let outcome = reader.outcome(2);
        assert!(
            matches!(outcome, Outcome::Failed(WorkError::NoPeer) | Outcome::Done),
            "{outcome:?}"
        );
        reader.submit(3, peer, WorkKind::Read, reader.driver.plan());
        assert_eq!(reader.outcome(3), Outcome::Failed(WorkError::NoPeer));
    });
}

/// A peer's operation may have begun before the key was closed, and goes on in software.
#[test]
fn memory_is_kept_behind_its_registration_until_a_fence() {
    on_each_stage("faults::memory_is_kept_behind_its_registration_until_a_fence", |stage| {
        let mut end = End::new(stage, 1 << 20);
        end.driver.deregister(&end.registered).unwrap();
        assert_eq!(Arc::strong_count(&end.memory), 2);
        end.driver.fence().unwrap();
        assert_eq!(Arc::strong_count(&end.memory), 1);
    });
}
